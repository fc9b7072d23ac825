"""What Spark's tasks do for a group of data files that are written again.

Owns: reading a share of a group, sending rows to the part that they belong to, writing a part. Does not own: which
order rows are in (`row_order`), how files are read and written (`rootline.client.row_changes`), the jobs that
these tasks are of (`group_jobs`).
Invariants: rows keep their ids and the numbers of their last change; between tasks rows are Arrow's bytes, so no type
becomes one of Spark's; nothing is published here, so files of a failed task, or of one that ran twice, are orphans.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from rootline.client.column_statistics import column_paths
from rootline.client.data_file_writer import Ordered, write_rewritten_files
from rootline.client.new_files import store_written
from rootline.client.partition_split import SortKeys
from rootline.client.row_changes import rewritten_files
from rootline.client.session import Session
from rootline.schemas.intent import DataFile
from rootline.schemas.table_definition import TableDefinition
from rootline.spark.connection import guest_lake
from rootline.spark.maintenance.row_order import Cuts, RowOrder, in_order, sampled
from rootline.spark.options import SourceOptions
from rootline.storage.rows.arrow_types import arrow_schema_of
from rootline.storage.rows.data_file_reader import RowsWanted
from rootline.storage.rows.scan_executor import scan_table
from rootline.tree.scan.file_task import FileTask

RESULT: Final = "result binary"
PART_ROWS: Final = "part int, task int, rows binary"
_PARTS_SCHEMA: Final = pa.schema([("part", pa.int32()), ("task", pa.int32()), ("rows", pa.binary())])
_HARD_CAP: Final = 2
"""A part that became larger than was planned stays one file up to so many times the target size."""


@dataclass(frozen=True, slots=True)
class FilesOfGroup:
    """New files that the store holds; when it got the first, in its milliseconds, or `None`: that is not known."""

    files: tuple[DataFile, ...]
    oldest_ms: int | None


@dataclass(frozen=True)
class GroupWork:
    """A group, cut into one share of its files for each task, and how its rows are written."""

    options: SourceOptions
    definition_json: bytes
    shares: tuple[tuple[FileTask, ...], ...]
    target_bytes: int
    order: RowOrder | None = None

    @cached_property
    def definition(self) -> TableDefinition:
        """The one that rows are read and written by."""
        return TableDefinition.from_json(self.definition_json)

    def read(self, share: int, wanted: RowsWanted) -> pa.Table:
        """The rows of a share that live."""
        return guest_lake(self.options).holder.run(
            lambda session: scan_table(session.store, self.options.table, self.shares[share], wanted)
        )

    def ordering(self) -> RowOrder:
        """The order of a group that has one."""
        assert self.order is not None
        return self.order


def pack(work: GroupWork, share: int) -> FilesOfGroup:
    """Write a share's rows again, in the table's order."""

    async def operation(session: Session) -> FilesOfGroup:
        options = work.options
        files = await rewritten_files(session, options.table, work.definition, work.shares[share], work.target_bytes)
        return _noted(session, work, files)

    return guest_lake(work.options).holder.run(operation)


def sample(work: GroupWork, rate: float, share: int) -> pa.Table:
    """Some keys of a share's rows; only the columns that they are made of are read."""
    order, definition = work.ordering(), work.definition
    wanted = RowsWanted.of(definition, order.columns(definition))
    rows = work.read(share, wanted)
    return sampled(order.keys(rows, column_paths(Schema(*wanted.own_fields)), share), rate, share)


def share_out(work: GroupWork, cuts: Cuts, share: int) -> Iterator[pa.RecordBatch]:
    """A share's rows, as bytes for each part that they are of."""
    order, definition = work.ordering(), work.definition
    rows = work.read(share, RowsWanted.to_rewrite(definition))
    keys = order.on_curve(order.keys(rows, column_paths(definition.schema), share), cuts)
    parts = cuts.parts(keys)
    by_part = np.argsort(parts, kind="stable")
    bounds = np.flatnonzero(np.diff(parts[by_part])) + 1
    for chosen in np.split(by_part, bounds):
        if len(chosen):
            body = _to_bytes(rows.take(pa.array(chosen)))
            yield pa.record_batch([[int(parts[chosen[0]])], [share], [body]], schema=_PARTS_SCHEMA)


def write_part(work: GroupWork, cuts: Cuts, sent: pa.Table) -> FilesOfGroup:
    """The file of a part, of all rows that tasks sent it."""
    pieces = sorted(zip(sent.column("task").to_pylist(), sent.column("rows"), strict=True), key=_task_of)
    return _written(work, pa.concat_tables([_from_bytes(rows.as_buffer()) for _, rows in pieces]), cuts)


def write_whole(work: GroupWork, share: int) -> FilesOfGroup:
    """The files of a group that is small enough for one task, in its order."""
    return _written(work, work.read(share, RowsWanted.to_rewrite(work.definition)), None)


def _task_of(piece: tuple[int, object]) -> int:
    return piece[0]


def _written(work: GroupWork, rows: pa.Table, cuts: Cuts | None) -> FilesOfGroup:
    order, definition = work.ordering(), work.definition
    ordered = in_order(rows, order, column_paths(definition.schema), cuts)
    target = work.target_bytes if cuts is None else _HARD_CAP * work.target_bytes
    write = partial(
        write_rewritten_files,
        ordered,
        definition,
        target_file_size_bytes=target,
        ordered=Ordered(order.sort_order_id),
    )

    async def operation(session: Session) -> FilesOfGroup:
        return _noted(session, work, await store_written(session, work.options.table, lambda ids: write(fresh_ids=ids)))

    return guest_lake(work.options).holder.run(operation)


def _noted(session: Session, work: GroupWork, files: Sequence[DataFile]) -> FilesOfGroup:
    oldest_ms = session.uploads.oldest(work.options.table, [file.location for file in files])
    return FilesOfGroup(tuple(files), oldest_ms)


def result_batch(result: object) -> pa.RecordBatch:
    """What a task found, for the driver."""
    return pa.record_batch({"result": pa.array([pickle.dumps(result)], pa.binary())})


def numbers_of(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """The numbers of the shares that a task was given."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def keys_like(sample_of: Sequence[pa.Table], order: RowOrder, definition: TableDefinition) -> SortKeys:
    """The samples of all tasks together, as keys."""
    wanted = RowsWanted.of(definition, order.columns(definition))
    schema = Schema(*wanted.own_fields)
    empty = order.keys(arrow_schema_of(schema).empty_table(), column_paths(schema))
    return SortKeys(pa.concat_tables([empty.columns, *sample_of]).combine_chunks(), empty.directions)


def _to_bytes(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(rows)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def _from_bytes(body: pa.Buffer) -> pa.Table:
    with pa.ipc.open_stream(body) as reader:
        return reader.read_all()
