"""Compactions of vectors: large manifest vectors move out of the root, scattered ones of data files are joined.

Owns: the reads of a plan. Does not own: which vectors move (`rootline.maintenance.vector_compaction_plan`), the steps
of a job (`maintenance_job`).
Invariants: no vector is read while none is due; no delete leaf is read while the table has few vectors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from pyroaring import BitMap

from rootline.maintenance.limits import CompactionLimits
from rootline.maintenance.vector_compaction_plan import (
    DataVectors,
    VectorCompactionPlan,
    inline_bytes,
    large_vectors,
    plan_vector_compaction,
)
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import ContentType, Status
from rootline.schemas.identifiers import TableName
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.object_reader import place_of_stored, read_vectors
from rootline.storage.metadata.table_loader import read_root_vectors as read_stored_manifest_vectors
from rootline.tree.scan.scan_plan import manifest_vectors
from rootline.workers.jobs.job import JobContext
from rootline.workers.jobs.maintenance_job import MaintenanceJob


class VectorCompactionPlanner:
    """Plans compactions of vectors. By hand, two Puffin files with few vectors are enough to be joined."""

    what: Final = "compaction of vectors"
    stale: Final = "compaction-stale"
    corrupt: Final = "vector-corrupt"

    def __init__(self, context: JobContext) -> None:
        self._reads, self._leaves, self._now = context.reads, context.leaves, context.now

    async def plan(self, table: TableName, root: Root, definition: TableDefinition) -> VectorCompactionPlan | None:
        """The compaction that is due in `root`, as `Planner.plan`."""
        limits = CompactionLimits.of_properties(definition.properties)
        limits = limits.now if self._now else limits
        is_crowded = bool(large_vectors(inline_bytes(root), limits))
        if not is_crowded and root.header.totals.vectors < limits.vector_files:
            return None
        dead = manifest_vectors(root, await read_stored_manifest_vectors(self._reads, root))
        if is_crowded:
            return plan_vector_compaction(root, limits, dead)
        return await self._plan_join(table, root, definition, limits, dead)

    async def _plan_join(
        self,
        table: TableName,
        root: Root,
        definition: TableDefinition,
        limits: CompactionLimits,
        dead: Mapping[str, BitMap],
    ) -> VectorCompactionPlan | None:
        vectors = DataVectors(root)
        for row in (row.entry for row in root.rows):
            if row.content_type is ContentType.DELETE_MANIFEST and row.version_info.status is not Status.DELETED:
                [leaf] = (await self._leaves.leaves(self._reads, table, [row], definition)).values()
                await asyncio.to_thread(vectors.take, leaf, row, dead.get(row.location))
        scattered = await asyncio.to_thread(vectors.scattered, limits)
        if not scattered:
            return None
        positions = await read_vectors(self._reads, table, scattered)
        joined = [(entry, positions[place_of_stored(entry)]) for entry in scattered]
        return VectorCompactionPlan(root.header.version, joined=joined)


def vector_compaction_job(context: JobContext) -> MaintenanceJob:
    """A job that moves large manifest vectors out of roots, and joins vectors of data files."""
    return MaintenanceJob(context, VectorCompactionPlanner(context))
