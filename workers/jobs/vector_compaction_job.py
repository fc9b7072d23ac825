"""Compactions of manifest vectors: large ones move from the root into Puffin files.

Owns: what is read to plan one. Does not own: which vectors move (`rootline.maintenance.vector_compaction_plan`), the
steps of a job (`maintenance_job`).
Invariants: no vector is read while none is due.
"""

from __future__ import annotations

from typing import Final

from rootline.maintenance.compaction_limits import CompactionLimits
from rootline.maintenance.vector_compaction_plan import (
    VectorCompactionPlan,
    inline_bytes,
    large_vectors,
    plan_vector_compaction,
)
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.identifiers import TableName
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.table_loader import read_stored_manifest_vectors
from rootline.tree.scan.scan_plan import manifest_vectors
from rootline.workers.jobs.job import JobContext
from rootline.workers.jobs.maintenance_job import MaintenanceJob


class VectorCompactionPlanner:
    """Plans compactions of manifest vectors."""

    what: Final = "compaction of vectors"
    stale: Final = "compaction-stale"
    corrupt: Final = "vector-corrupt"

    def __init__(self, context: JobContext) -> None:
        self._reads = context.reads

    async def plan(self, table: TableName, root: Root, definition: TableDefinition) -> VectorCompactionPlan | None:
        """What is due in `root`; as `Planner.plan`."""
        limits = CompactionLimits.of_properties(definition.properties)
        if not large_vectors(inline_bytes(root), limits):
            return None
        dead = manifest_vectors(root, await read_stored_manifest_vectors(self._reads, root))
        return plan_vector_compaction(root, limits, dead)


def vector_compaction_job(context: JobContext) -> MaintenanceJob:
    """A job that moves large manifest vectors out of roots."""
    return MaintenanceJob(context, VectorCompactionPlanner(context))
