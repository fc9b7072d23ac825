"""Jobs that move entries and vectors between roots and leaves: flushes, compactions of leaves, compactions of
vectors.

A root lists live files in rows. A flush moves rows to new *leaves*, manifests in Parquet that the root references. An
*adopted* leaf is a manifest in Avro of an Iceberg table that Rootline took over. A *manifest vector* in the root marks
dead entries of a leaf.

Owns: the reads of these plans, the list of adopted leaves that stay in Avro. Does not own: the choice (`flush_plan`,
`leaf_compaction_plan`, `vector_compaction_plan`), the steps of a job (`maintenance_job`).
Invariants: no leaf and no vector is read unless work is due. A flush reads leaves only if vectors of their data files
move. A compaction of vectors reads no delete leaf while the table has few vectors. If an adopted leaf cannot be
represented in columns, a process tries it only once. A damaged or missing leaf is tried in every run. Neither delays
the compaction of other leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from pyroaring import BitMap

from rootline.library_log import library_logger
from rootline.maintenance.flush_plan import CommitPace, FlushPlan, RootLoad, plan_flush
from rootline.maintenance.leaf_compaction_plan import (
    LeafCompactionPlan,
    LeafLoad,
    LoadedLeaf,
    fault_in_columns,
    leaves_to_read,
    plan_leaf_compaction,
)
from rootline.maintenance.limits import FLUSH_NOW, CompactionLimits, FlushLimits
from rootline.maintenance.vector_compaction_plan import (
    DataVectors,
    VectorCompactionPlan,
    inline_bytes,
    large_vectors,
    plan_vector_compaction,
)
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import ContentType, Status
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.object_reader import place_of_stored, read_vectors
from rootline.storage.metadata.scan_loader import read_root_vectors as read_stored_manifest_vectors
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
        """Plan a flush of `root`, or return `None` if none is due. Raises the errors of `Planner.plan`."""
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


_log = library_logger("rootline.workers")


class LeafCompactionPlanner:
    """Plans compactions of leaves. For an operator's command it ignores the thresholds."""

    what: Final = "compaction of leaves"
    stale: Final = "compaction-stale"
    corrupt: Final = "leaf-corrupt"

    def __init__(self, context: JobContext) -> None:
        self._reads, self._leaves, self._now = context.reads, context.leaves, context.now
        self._kept_apart: dict[TableName, frozenset[str]] = {}

    async def plan(self, table: TableName, root: Root, definition: TableDefinition) -> LeafCompactionPlan | None:
        """Plan a compaction of leaves, or return `None` if none is due. Raises the errors of `Planner.plan`."""
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
        """The locations of adopted leaves among `chosen` that must stay in Avro, or that cannot be read now."""
        lasting, passing = set[str](), set[str]()
        for row in (leaf.row for leaf in chosen if leaf.is_adopted):
            try:
                leaves = await self._leaves.leaves(self._reads, table, [row], definition)
                fault = await asyncio.to_thread(
                    fault_in_columns, row, leaves[row.location], dead.get(row.location), definition
                )
            except Invalid as error:  # this process may not read it
                fault = error.message
            except Corrupt as error:  # perhaps a truncated response: retried in the next run
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


class VectorCompactionPlanner:
    """Plans compactions of vectors. For an operator's command two Puffin files with few vectors are enough."""

    what: Final = "compaction of vectors"
    stale: Final = "compaction-stale"
    corrupt: Final = "vector-corrupt"

    def __init__(self, context: JobContext) -> None:
        self._reads, self._leaves, self._now = context.reads, context.leaves, context.now

    async def plan(self, table: TableName, root: Root, definition: TableDefinition) -> VectorCompactionPlan | None:
        """Plan a compaction of vectors, or return `None` if none is due. Raises the errors of `Planner.plan`."""
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
    """A job that moves large manifest vectors out of roots, and joins scattered deletion vectors in one Puffin file."""
    return MaintenanceJob(context, VectorCompactionPlanner(context))
