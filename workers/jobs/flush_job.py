"""Flushes: the root's own rows move to leaves.

Owns: what is read to plan a flush. Does not own: what is moved (`rootline.maintenance.flush_plan`), the steps of a job
(`maintenance_job`).
Invariants: leaves are read only when vectors of their data files are to move.
"""

from __future__ import annotations

from typing import Final

from rootline.maintenance.flush_plan import CommitPace, FlushPlan, RootLoad, plan_flush
from rootline.maintenance.limits import FLUSH_NOW, FlushLimits
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import ContentType
from rootline.schemas.identifiers import TableName
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.table_loader import read_root_vectors as read_stored_manifest_vectors
from rootline.tree.scan.scan_plan import manifest_vectors
from rootline.workers.jobs.job import JobContext
from rootline.workers.jobs.maintenance_job import MaintenanceJob


class FlushPlanner:
    """Plans flushes."""

    what: Final = "flush"
    stale: Final = "flush-stale"
    corrupt: Final = "leaf-corrupt"

    def __init__(self, context: JobContext) -> None:
        self._reads, self._leaves = context.reads, context.leaves
        self._limits = FLUSH_NOW if context.now else None
        self._pace = CommitPace()

    async def plan(self, table: TableName, root: Root, definition: TableDefinition) -> FlushPlan | None:
        """What is due in `root`; as `Planner.plan`."""
        pace = self._pace.see(root.header)
        limits = self._limits or FlushLimits.of_properties(definition.properties).at_pace(root.size_in_bytes, pace)
        load = RootLoad.of(root)
        wanted = set(load.leaves_to_read(limits))
        rows = [row.entry for row in root.rows if row.entry.content_type is ContentType.DATA_MANIFEST]
        needed = [row for row in rows if row.location in wanted]
        leaves = await self._leaves.leaves(self._reads, table, needed, definition)
        dead = manifest_vectors(root, await read_stored_manifest_vectors(self._reads, root)) if leaves else {}
        plan = plan_flush(root, definition, limits, load=load, leaves=leaves, dead=dead)
        return plan if plan.leaves else None


def flush_job(context: JobContext) -> MaintenanceJob:
    """A job that flushes tables."""
    return MaintenanceJob(context, FlushPlanner(context))
