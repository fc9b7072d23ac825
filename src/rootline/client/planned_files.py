"""Finding the files of one version that may match a filter, and their matching rows.

Owns: the start of a scan or a change (version, root, definition, and a file task for each data file with its deletes),
and reading a planned file for a change. Does not own: planning (`rootline.tree.scan.scan_plan`), reads of metadata
(`table_loader`), decoding (`data_file_reader`), the use of the rows.
Invariants: root, definition and tasks are of one version. Every plan reads the current head from the store. A position
is a row number of the file. Deleted rows never match. A row for which the filter is null (unknown) does not match and
is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias, overload

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyroaring import BitMap64

from rootline.client.session import Session
from rootline.client.time_travel import HEAD, PointInTime, read_root_at
from rootline.ports.head_hints import NO_HINTS
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.identifiers import TableName
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.read_cache import PlanningReads, PlanRequests, hinted_reads
from rootline.storage.metadata.root_reader import read_definition
from rootline.storage.metadata.scan_loader import plan_scan
from rootline.storage.rows.data_file_reader import RowsWanted, output_schema, read_rows
from rootline.storage.rows.metadata_columns import POS
from rootline.storage.rows.row_deletes import DeletesOfScan, RowDeletes
from rootline.storage.stored_objects import read_file
from rootline.tree.filter.filters import BoundFilter
from rootline.tree.filter.pruning import PruningFilter
from rootline.tree.scan.file_task import FileTask
from rootline.tree.scan.scan_plan import DeletesFor, ScanPlan

if TYPE_CHECKING:
    from rootline.schemas.intent import VectorReference


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
        root = await read_root_at(reads, table, point, known)
        return await _planned(session, reads, root, where, deletes_for)


async def _planned(
    session: Session,
    reads: PlanningReads,
    root: Root,
    where: Filter,
    deletes_for: DeletesFor,
) -> FilePlan:
    definition = await read_definition(reads, root.header)
    if callable(where):
        where = await asyncio.to_thread(where, definition)
    pruning = PruningFilter.of(where, definition)
    found = await plan_scan(reads, root, definition, pruning, cache=session.cache, deletes_for=deletes_for)
    reads.keep()
    session.cache.keep_root(root)
    return FilePlan(root, definition, pruning, found, reads.requests)


class Match(Enum):
    """The matching share of a file's live rows."""

    NONE = "none"
    PART = "part"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class Matched:
    """The matching rows of a file. Rows deleted by equality deletes are neither in `deleted` nor in `positions`.

    `deleted`: positions that were deleted before. `positions`: live positions that match, or `None` if the file was not
    read because all of them match.
    """

    extent: Match
    deleted: BitMap64
    positions: BitMap64 | None = None

    def rows_of(self, task: FileTask) -> int | None:
        """The number of live rows of the planned file that match.

        `None`: it is unknown without reading the file's equality deletes.
        """
        if self.positions is not None:
            return len(self.positions)
        if self.extent is Match.NONE:
            return 0
        return None if task.deletes else task.record_count - sum(vector.record_count for vector in task.vectors)


def matched_rows(found: Iterable[tuple[FileTask, Matched]]) -> int | None:
    """The number of live rows of planned files that match, or `None` if it is unknown for one of them."""
    counts = [match.rows_of(task) for task, match in found]
    return None if None in counts else sum(count for count in counts if count is not None)


def seen_vector(task: FileTask) -> VectorReference | None:
    """A reference to the file's delete vector, in the form of an intent."""
    from rootline.schemas.intent import VectorReference

    if not task.vectors:
        return None
    vector = task.vectors[0]
    offset = vector.deletion_vector.offset if vector.deletion_vector is not None else None
    return VectorReference(location=vector.location, offset=offset or 0)


async def match_rows(session: Session, plan: FilePlan, task: FileTask) -> Matched:
    """Find the live rows of the file that match the plan's filter. The file is read only if its statistics do not show
    that all rows match.

    Raises:
        Corrupt: the file or its vector is missing or damaged.
    """
    rows = task.record_count
    if sum(vector.record_count for vector in task.vectors) >= rows:
        return Matched(Match.NONE, BitMap64())  # every row is deleted
    if task.residual is None:
        return Matched(Match.WHOLE, BitMap64())
    deletes = await _deletes(session.store, plan, task)
    deleted = deletes.positions or BitMap64()
    body = await read_file(session.store, plan.table, task.data, code="data-file-corrupt")
    positions = await asyncio.to_thread(_matching_positions, body, plan, task, deletes)
    if not positions:
        return Matched(Match.NONE, deleted, positions)
    whole = len(positions) + len(deleted) >= rows
    return Matched(Match.WHOLE if whole else Match.PART, deleted, positions)


async def surviving_rows(session: Session, plan: FilePlan, task: FileTask, matched: Matched) -> pa.Table:
    """The live rows of the file that do not match, in its order: every column, with lineage if files may store it.

    `plan` must be made for `DeletesFor.EVERY_ROW`, so that every delete is applied here. Equality deletes do not apply
    to the new file of these rows, because it is newer than they are.
    """
    deletes = await _deletes(session.store, plan, task)
    dropped = matched.deleted | (matched.positions if matched.positions is not None else BitMap64())
    body = await read_file(session.store, plan.table, task.data, code="data-file-corrupt")
    wanted = RowsWanted.to_keep(plan.definition)
    return await asyncio.to_thread(
        lambda: pa.Table.from_batches(
            read_rows(body, task.data, wanted, replace(deletes, positions=dropped), None), output_schema(wanted)
        )
    )


async def _deletes(store: ObjectStore, plan: FilePlan, task: FileTask) -> RowDeletes:
    reading = DeletesOfScan(store, plan.table, plan.definition)
    try:
        return await reading.of_task(task)
    finally:
        await reading.close()


def _matching_positions(body: bytes, plan: FilePlan, task: FileTask, deletes: RowDeletes) -> BitMap64:
    found = BitMap64()
    for batch in read_rows(body, task.data, RowsWanted.of(plan.definition, [POS]), deletes, task.residual):
        found.update(batch.column(0).to_pylist())
    return found
