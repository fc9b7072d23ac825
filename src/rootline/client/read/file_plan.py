"""The files of one version of a table that may match a filter.

Owns: what a scan or a change starts from. Does not own: planning (`rootline.tree.scan.scan_plan`), its reads
(`rootline.storage.metadata.table_loader`), reading rows (`file_rows`, `rootline.storage.rows.scan_executor`).
Invariants: root, definition and tasks are of one version; the store is asked for the head every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

from pyiceberg.expressions import BooleanExpression

from rootline.client.read.time_travel import HEAD, PointInTime, read_root_at
from rootline.client.session.session import Session
from rootline.ports.head_hints import NO_HINTS
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.identifiers import TableName
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.read_cache import PlanningReads, PlanRequests, hinted_reads
from rootline.storage.metadata.root_reader import read_definition
from rootline.storage.metadata.table_loader import plan_scan
from rootline.tree.filter.filters import BoundFilter
from rootline.tree.filter.prune import PruningFilter
from rootline.tree.scan.file_task import FileTask
from rootline.tree.scan.scan_plan import DeletesFor, ScanPlan


@dataclass(frozen=True, slots=True)
class FilePlan:
    """The files of `scan` belong to `root`; `pruning` is the filter that they may match."""

    root: Root
    definition: TableDefinition
    pruning: PruningFilter
    scan: ScanPlan
    requests: PlanRequests = PlanRequests()

    @property
    def table(self) -> TableName:
        """The table's name."""
        return self.root.header.table

    @property
    def sequence_number(self) -> int:
        """The newest sequence number that the plan has seen."""
        return self.root.header.snapshot.sequence_number


@dataclass(frozen=True, slots=True)
class PlannedFiles(Sequence[FileTask]):
    """The files that a scan would read, in order, and what it took to find them.

    `leaves_read`: data leaves that may match; `leaves_pruned`: those that cannot. `requests` were sent to the store;
    what the lake has read before is not asked for again.
    """

    tasks: tuple[FileTask, ...]
    version: int
    leaves_read: int
    leaves_pruned: int
    requests: PlanRequests

    @staticmethod
    def of(plan: FilePlan) -> PlannedFiles:
        """All tasks of `plan`."""
        scan = plan.scan
        version = plan.root.header.version
        return PlannedFiles(tuple(scan.tasks()), version, scan.leaves_read, scan.leaves_pruned, plan.requests)

    @overload
    def __getitem__(self, at: int) -> FileTask: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[FileTask]: ...

    def __getitem__(self, at: int | slice) -> FileTask | Sequence[FileTask]:
        return self.tasks[at]

    def __len__(self) -> int:
        return len(self.tasks)


async def plan_files(
    session: Session,
    table: TableName,
    where: str | BooleanExpression | BoundFilter | None = None,
    point: PointInTime = HEAD,
    deletes_for: DeletesFor = DeletesFor.MATCHING_ROWS,
) -> FilePlan:
    """The live files that may match `where` in the version that `point` means.

    Raises:
        Invalid: `table-unknown`, `version-unknown`, `filter-invalid`, `equality-delete-unread`.
        Corrupt: an object is not what was written.

    """
    known = session.cache.root(table)
    async with hinted_reads(session.store, table, session.hints if known is None else NO_HINTS) as store:
        reads = PlanningReads(store, session.cache)
        root = await read_root_at(reads, table, point, known)
        return await _planned(session, reads, root, where, deletes_for)


async def _planned(
    session: Session,
    reads: PlanningReads,
    root: Root,
    where: str | BooleanExpression | BoundFilter | None,
    deletes_for: DeletesFor,
) -> FilePlan:
    definition = await read_definition(reads, root.header)
    pruning = PruningFilter.of(where, definition)
    found = await plan_scan(reads, root, definition, pruning, cache=session.cache, deletes_for=deletes_for)
    reads.keep()
    session.cache.keep_root(root)
    return FilePlan(root, definition, pruning, found, reads.requests)
