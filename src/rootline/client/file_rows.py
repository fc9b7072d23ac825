"""Which rows of a data file match a filter, and the rows that are left without them.

Owns: reading a planned file for a change. Does not own: decoding (`data_file_reader`), what happens to the rows.
Invariants: a position is a row number of the file; rows that are deleted already never match; a row whose test is
null (unknown) does not match and is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import NestedField, StructType
from pyroaring import BitMap64

from rootline.client.file_plan import FilePlan
from rootline.client.session import Session
from rootline.ports.object_store import ObjectStore
from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import VectorReference
from rootline.storage.arrow_types import arrow_schema_of
from rootline.storage.data_file_reader import RowsWanted, read_rows
from rootline.storage.stored_file import read_stored
from rootline.storage.vector_reader import read_vector
from rootline.tree.column_tests import rows_matching
from rootline.tree.file_task import FileTask


class Match(Enum):
    """How much of a file's live rows match."""

    NONE = "none"
    PART = "part"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class Matched:
    """`deleted`: positions deleted before; `positions`: live ones that match, `None` when all do without reading."""

    extent: Match
    deleted: BitMap64
    positions: BitMap64 | None = None


def seen_vector(task: FileTask) -> VectorReference | None:
    """The vector on the file, as intents name it."""
    if not task.vectors:
        return None
    vector = task.vectors[0]
    offset = vector.deletion_vector.offset if vector.deletion_vector is not None else None
    return VectorReference(location=vector.location, offset=offset or 0)


async def match_rows(session: Session, plan: FilePlan, task: FileTask) -> Matched:
    """Which live rows of the file match the plan's filter; reads as little of it as decides that.

    Raises:
        Corrupt: the file or its vector is not what was written.

    """
    rows = task.record_count
    if sum(vector.record_count for vector in task.vectors) >= rows:
        return Matched(Match.NONE, BitMap64())  # nothing is left that could match
    if task.residual is None:
        return Matched(Match.WHOLE, BitMap64())
    deleted = await _deleted(session.store, plan.table, task)
    body = await _body(session.store, plan.table, task.data)
    positions = await asyncio.to_thread(_matching_positions, body, plan, task.data) - deleted
    if not positions:
        return Matched(Match.NONE, deleted, positions)
    whole = len(positions) + len(deleted) >= rows
    return Matched(Match.WHOLE if whole else Match.PART, deleted, positions)


async def surviving_rows(session: Session, plan: FilePlan, task: FileTask, matched: Matched) -> pa.Table:
    """The live rows of the file that do not match, in the file's order, every column."""
    gone = matched.deleted | (matched.positions if matched.positions is not None else BitMap64())
    body = await _body(session.store, plan.table, task.data)
    schema = plan.definition.schema
    wanted = RowsWanted.of(schema, None, plan.definition.properties)
    return await asyncio.to_thread(
        lambda: pa.Table.from_batches(read_rows(body, task.data, wanted, gone, None), arrow_schema_of(schema))
    )


async def _body(store: ObjectStore, table: TableName, entry: ContentEntry) -> bytes:
    length = entry.file_size_in_bytes
    return await read_stored(store, table, entry.location, code="data-file-corrupt", length=length)


async def _deleted(store: ObjectStore, table: TableName, task: FileTask) -> BitMap64:
    deleted = BitMap64()
    for vector in task.vectors:
        deleted |= await read_vector(store, table, vector)
    if deleted and deleted.max() >= task.data.record_count:
        raise Corrupt(
            "vector-corrupt",
            f"{task.vectors[0].location}: deletes row {deleted.max()} of "
            f"{task.data.location}, which has {task.data.record_count}",
        )
    return deleted


def _matching_positions(body: bytes, plan: FilePlan, entry: ContentEntry) -> BitMap64:
    bound = plan.pruning.bound
    fields = [field for field in plan.definition.schema.fields if bound.field_ids & _ids_in(field)]
    wanted = RowsWanted.of(plan.definition.schema, [field.name for field in fields], plan.definition.properties)
    found, start = BitMap64(), 0
    for batch in read_rows(body, entry, wanted, None, None):
        mask = rows_matching(bound.condition, partial(_column, batch, fields), batch.num_rows)
        positions = np.flatnonzero(np.asarray(mask)).astype(np.uint64) + np.uint64(start)
        found.update(positions.tolist())
        start += batch.num_rows
    return found


def _ids_in(field: NestedField) -> set[int]:
    inner = field.field_type.fields if isinstance(field.field_type, StructType) else ()
    return {field.field_id}.union(*(_ids_in(one) for one in inner))


def _column(batch: pa.RecordBatch, fields: Sequence[NestedField], field_id: int) -> pa.Array:
    for at, field in enumerate(fields):
        if field_id in _ids_in(field):
            return _within(batch.column(at), field, field_id)
    raise KeyError(field_id)


def _within(array: pa.Array, field: NestedField, field_id: int) -> pa.Array:
    if field.field_id == field_id or not isinstance(field.field_type, StructType):
        return array
    at = next(at for at, one in enumerate(field.field_type.fields) if field_id in _ids_in(one))
    return _within(pc.struct_field(array, at), field.field_type.fields[at], field_id)
