"""Flushes: the root's own rows go to leaves.

Owns: what is read to plan a flush. Does not own: what is moved (`rootline.maintenance.flush_plan`), the steps of a job
(`maintenance_job`).
Invariants: leaves are read only when vectors of their data files are to move.
"""

from __future__ import annotations

from typing import Final

from rootline.maintenance.commit_pace import CommitPace
from rootline.maintenance.flush_limits import FlushLimits
from rootline.maintenance.flush_plan import FlushPlan, RootLoad, plan_flush
from rootline.ports.environment import Environment
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import ContentType
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import IntentKind
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.table_loader import read_stored_manifest_vectors
from rootline.storage.metadata.timed_reads import TimedReads
from rootline.tree.scan.scan_plan import manifest_vectors
from rootline.workers.jobs.maintenance_job import MaintenanceJob, WorkerLog
from rootline.workers.leaf_cache import LeafCache
from rootline.workers.settings import WorkerSettings


class FlushPlanner:
    """Plans flushes. `limits`: instead of what the tables' properties say."""

    kind: Final = IntentKind.FLUSH
    stale: Final = "flush-stale"

    def __init__(self, store: ObjectStore, leaves: LeafCache, limits: FlushLimits | None = None) -> None:
        self._store, self._leaves, self._limits = store, leaves, limits
        self._pace = CommitPace()

    async def plan(self, table: TableName, root: Root, definition: TableDefinition) -> FlushPlan | None:
        """What is due in `root`. Raises `Corrupt`, `Unavailable`, and `Invalid` (`setting-invalid`)."""
        pace = self._pace.see(root.header)
        limits = self._limits or FlushLimits.of_properties(definition.properties).at_pace(root.size_in_bytes, pace)
        load = RootLoad.of(root)
        wanted = set(load.leaves_to_read(limits))
        rows = [row.entry for row in root.rows if row.entry.content_type is ContentType.DATA_MANIFEST]
        needed = [row for row in rows if row.location in wanted]
        leaves = await self._leaves.leaves(self._store, table, needed, definition)
        dead = manifest_vectors(root, await read_stored_manifest_vectors(self._store, root)) if leaves else {}
        plan = plan_flush(root, definition, limits, load=load, leaves=leaves, dead=dead)
        return plan if plan.leaves else None


def flush_job(
    store: ObjectStore,
    log: WorkerLog,
    environment: Environment,
    settings: WorkerSettings,
    *,
    leaves: LeafCache | None = None,
    limits: FlushLimits | None = None,
) -> MaintenanceJob:
    """A job that flushes tables; arguments as `FlushPlanner` and `MaintenanceJob`."""
    leaves, reads = leaves or LeafCache(settings.leaf_cache_bytes_max), TimedReads(store, settings.request_timeout_s)
    return MaintenanceJob(store, log, environment, settings, FlushPlanner(reads, leaves, limits))
