"""Finding the files of one version that may match a filter.

Owns: the start of a scan or a change (version, root, definition, and a file task for each data file with its deletes).
Does not own: planning (`rootline.tree.scan.scan_plan`), reads of metadata (`scan_loader`), the rows of the files
(`scan_executor`, `matched_rows`).
Invariants: root, definition and tasks are of one version. Every plan reads the current head from the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, overload

from pyiceberg.expressions import BooleanExpression

from rootline.client.session import Session
from rootline.client.time_travel import HEAD, PointInTime, read_root_at
from rootline.ports.head_hints import NO_HINTS
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.identifiers import TableName
from rootline.schemas.object_keys import key_of
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.read_cache import PlanningReads, PlanRequests, hinted_reads
from rootline.storage.metadata.root_reader import read_definition
from rootline.storage.metadata.scan_loader import plan_scan
from rootline.tree.filter.filters import BoundFilter
from rootline.tree.filter.pruning import PruningFilter
from rootline.tree.scan.file_task import FileTask
from rootline.tree.scan.scan_plan import DeletesFor, ScanPlan


@dataclass(frozen=True, slots=True)
class FilePlan:
    """A plan for one version. The files of `scan` belong to `root`, and may match the filter `pruning`."""

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
        """The sequence number of the planned version."""
        return self.root.header.snapshot.sequence_number


@dataclass(frozen=True, slots=True)
class PlannedFiles(Sequence[FileTask]):
    """The files that a scan would read, in order, and the cost of finding them.

    `leaves_read` counts data leaves that may match, `leaves_pruned` those that cannot. `requests` were sent to the
    store. Objects in the lake's cache need no request.
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


Filter: TypeAlias = str | BooleanExpression | BoundFilter | Callable[[TableDefinition], str] | None


async def plan_files(
    session: Session,
    table: TableName,
    where: Filter = None,
    point: PointInTime = HEAD,
    deletes_for: DeletesFor = DeletesFor.MATCHING_ROWS,
) -> FilePlan:
    """Plan the live files that may match `where` in the version of `point`.

    A filter that depends on the definition of that version is a function, which runs in a thread.

    Raises:
        Invalid: `table-unknown`, `version-unknown`, `filter-invalid`, `equality-delete-unread`.
        Corrupt: an object is missing or damaged.
    """
    known = session.cache.root(table)
    async with hinted_reads(session.store, table, session.hints if known is None else NO_HINTS) as store:
        reads = PlanningReads(store, session.cache)
        root, definition = await _root_and_definition(session, reads, table, point, known)
        return await _planned(session, reads, root, definition, where, deletes_for)


async def _root_and_definition(
    session: Session, reads: PlanningReads, table: TableName, point: PointInTime, known: Root | None
) -> tuple[Root, TableDefinition]:
    """The root of `point` and its definition, which is mostly the `known` root's. That one is read beside the LIST."""
    if known is None or session.cache.body(key_of(table, known.header.definition.location)) is not None:
        root = await read_root_at(reads, table, point, known)
        return root, await read_definition(reads, root.header)
    ahead = asyncio.ensure_future(read_definition(reads, known.header))
    try:
        root = await read_root_at(reads, table, point, known)
        is_same = root.header.definition == known.header.definition
        return root, await (ahead if is_same else read_definition(reads, root.header))
    finally:
        ahead.cancel()
        await asyncio.gather(ahead, return_exceptions=True)


async def _planned(
    session: Session,
    reads: PlanningReads,
    root: Root,
    definition: TableDefinition,
    where: Filter,
    deletes_for: DeletesFor,
) -> FilePlan:
    if callable(where):
        where = await asyncio.to_thread(where, definition)
    pruning = PruningFilter.of(where, definition)
    found = await plan_scan(reads, root, definition, pruning, cache=session.cache, deletes_for=deletes_for)
    reads.keep()
    session.cache.keep_root(root)
    return FilePlan(root, definition, pruning, found, reads.requests)
