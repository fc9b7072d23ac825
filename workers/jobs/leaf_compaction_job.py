"""Compactions of leaves: small ones become one, mostly dead ones lose what is dead.

Owns: what is read to plan a compaction. Does not own: what is moved (`rootline.maintenance.leaf_compaction_plan`), the
steps of a job (`maintenance_job`).
Invariants: no leaf is read while none is due.
"""

from __future__ import annotations

import asyncio
from typing import Final

from rootline.maintenance.compaction_limits import CompactionLimits
from rootline.maintenance.leaf_compaction_plan import LeafCompactionPlan, leaves_to_read, plan_leaf_compaction
from rootline.maintenance.leaf_load import LeafLoad
from rootline.ports.environment import Environment
from rootline.ports.object_store import ObjectStore
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import IntentKind
from rootline.schemas.root_codec import Root
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.table_loader import read_stored_manifest_vectors
from rootline.tree.scan_plan import manifest_vectors
from rootline.workers.jobs.maintenance_job import MaintenanceJob, WorkerLog
from rootline.workers.leaf_cache import LeafCache
from rootline.workers.settings import WorkerSettings


class LeafCompactionPlanner:
    """Plans compactions of leaves. `now`: whatever can become fewer leaves does, whatever the properties say."""

    kind: Final = IntentKind.COMPACT_LEAVES
    stale: Final = "compaction-stale"

    def __init__(self, store: ObjectStore, leaves: LeafCache, *, now: bool = False) -> None:
        self._store, self._leaves, self._now = store, leaves, now

    async def plan(self, table: TableName, root: Root, definition: TableDefinition) -> LeafCompactionPlan | None:
        """What is due in `root`. Raises `Corrupt`, `Unavailable`, and `Invalid` (`setting-invalid`)."""
        limits = CompactionLimits.of_properties(definition.properties)
        limits = limits.now if self._now else limits
        load = LeafLoad.of(root)
        chosen = load.chosen(limits)
        if not chosen and not load.dead:
            return None
        leaves = await self._leaves.leaves(self._store, table, leaves_to_read(load, chosen), definition)
        dead = manifest_vectors(root, await read_stored_manifest_vectors(self._store, root))
        plan = await asyncio.to_thread(
            plan_leaf_compaction, root, definition, limits, load=load, chosen=chosen, leaves=leaves, dead=dead
        )
        return plan if plan.leaves or plan.replaces else None


def leaf_compaction_job(
    store: ObjectStore,
    log: WorkerLog,
    environment: Environment,
    settings: WorkerSettings,
    *,
    leaves: LeafCache | None = None,
    now: bool = False,
) -> MaintenanceJob:
    """A job that compacts leaves; arguments as `LeafCompactionPlanner` and `MaintenanceJob`."""
    leaves = leaves or LeafCache(settings.leaf_cache_bytes_max)
    return MaintenanceJob(store, log, environment, settings, LeafCompactionPlanner(store, leaves, now=now))
