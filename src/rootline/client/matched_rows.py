"""The rows of a planned file that match the plan's filter, for a change of them.

Owns: reading a planned file for a change. Does not own: planning (`planned_files`), decoding (`data_file_reader`), the
use of the rows.
Invariants: a position is a row number of the file. Deleted rows never match. A row for which the filter is null
(unknown) does not match and is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

import pyarrow as pa
from pyroaring import BitMap64

from rootline.client.planned_files import FilePlan
from rootline.client.session import Session
from rootline.ports.object_store import ObjectStore
from rootline.schemas.intent import VectorReference
from rootline.storage.rows.data_file_reader import RowsWanted, output_schema, read_rows
from rootline.storage.rows.metadata_columns import POS
from rootline.storage.rows.row_deletes import DeletesOfScan, RowDeletes
from rootline.storage.stored_objects import read_file
from rootline.tree.scan.file_task import FileTask


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
