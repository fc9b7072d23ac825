"""Compactions of leaves: small ones are merged, dead entries are dropped, adopted Avro leaves become columns.

Owns: what is read to plan a compaction, and which adopted leaves stay in Avro. Does not own: what is moved
(`rootline.maintenance.leaf_compaction_plan`), the steps of a job (`maintenance_job`).
Invariants: no leaf is read while none is due; a process tries an adopted leaf that columns cannot hold only once, and
one that is damaged or missing at every look; neither keeps other leaves from being compacted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import structlog
from pyroaring import BitMap

from rootline.maintenance.leaf_compaction_plan import (
    LeafCompactionPlan,
    LeafLoad,
    LoadedLeaf,
    fault_in_columns,
    leaves_to_read,
    plan_leaf_compaction,
)
from rootline.maintenance.limits import CompactionLimits
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.table_loader import read_root_vectors as read_stored_manifest_vectors
from rootline.tree.scan.scan_plan import manifest_vectors
from rootline.workers.jobs.job import JobContext
from rootline.workers.jobs.maintenance_job import MaintenanceJob

_log = structlog.get_logger("rootline.workers")


class LeafCompactionPlanner:
    """Plans compactions of leaves. By hand, everything that can become fewer leaves does."""

    what: Final = "compaction of leaves"
    stale: Final = "compaction-stale"
    corrupt: Final = "leaf-corrupt"

    def __init__(self, context: JobContext) -> None:
        self._reads, self._leaves, self._now = context.reads, context.leaves, context.now
        self._kept_apart: dict[TableName, frozenset[str]] = {}

    async def plan(self, table: TableName, root: Root, definition: TableDefinition) -> LeafCompactionPlan | None:
        """What is due in `root`; as `Planner.plan`."""
        limits = CompactionLimits.of_properties(definition.properties)
        limits = limits.now if self._now else limits
        whole = LeafLoad.of(root)
        apart = self._kept_apart.get(table, frozenset()) & {leaf.location for leaf in whole.leaves}
        self._kept_apart[table] = apart
        load = whole.without(apart)
        chosen = load.chosen(limits)
        if not chosen and not load.dead:
            return None
        dead = manifest_vectors(root, await read_stored_manifest_vectors(self._reads, root))
        while staying := await self._staying(table, chosen, definition, dead):
            apart |= staying
            load = whole.without(apart)
            chosen = load.chosen(limits)
        leaves = await self._leaves.leaves(self._reads, table, leaves_to_read(load, chosen), definition)
        plan = await asyncio.to_thread(
            plan_leaf_compaction, root, definition, limits, load=load, chosen=chosen, leaves=leaves, dead=dead
        )
        return plan if plan.leaves or plan.replaces else None

    async def _staying(
        self,
        table: TableName,
        chosen: Sequence[LoadedLeaf],
        definition: TableDefinition,
        dead: Mapping[str, BitMap],
    ) -> set[str]:
        """The adopted ones of the `chosen` leaves that columns cannot hold, or that cannot be read."""
        lasting, passing = set[str](), set[str]()
        for row in (leaf.row for leaf in chosen if leaf.is_adopted):
            try:
                leaves = await self._leaves.leaves(self._reads, table, [row], definition)
                fault = await asyncio.to_thread(
                    fault_in_columns, row, leaves[row.location], dead.get(row.location), definition
                )
            except Invalid as error:  # this process is not allowed to read it
                fault = error.message
            except Corrupt as error:  # perhaps the answer was cut off: try it again at the next look
                passing.add(row.location)
                _log.warning("an adopted leaf cannot be read", action="adopted-leaf-unreadable", reason=error.message)
                continue
            if fault is not None:
                lasting.add(row.location)
                facts = {"action": "adopted-leaf-kept", "table": table, "leaf": row.location, "reason": fault}
                _log.warning("an adopted leaf stays in Avro", **facts)
        self._kept_apart[table] |= lasting
        return lasting | passing


def leaf_compaction_job(context: JobContext) -> MaintenanceJob:
    """A job that compacts leaves."""
    return MaintenanceJob(context, LeafCompactionPlanner(context))
