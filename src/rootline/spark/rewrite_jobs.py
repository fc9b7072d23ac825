"""Spark jobs and tasks that rewrite one group of data files, and the order of its rows.

Owns: dividing a group into tasks, the order of jobs, reading a share, sending rows to their part, writing a part,
sorting and Z-order as keys that Arrow can compare, the cuts between files from a sample. Does not own: the groups and
their commits (`compaction`), reading and writing files (`row_changes`), the meaning of a sort field
(`partition_split`).
Invariants: a job is one call, so groups run in parallel on threads of the driver. Only descriptions of files and
samples of keys reach the driver, never rows. Rows keep their ids and the sequence numbers of their last change. Between
tasks rows are Arrow's bytes, so no type becomes one of Spark's. No two keys are equal, so cuts divide rows of equal
values too. Every row is in exactly one part, the parts are in order, and the same rows and cuts yield the same parts.
Nothing is published here, so files of a failed task, or of one that ran twice, are orphans.

Theory. The key of a row on the Z-curve interleaves the bits of its columns. The bits of a column are those of its rank
in the sample, not of its value, so all sortable types count alike, however skewed they are.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from rootline.client.column_statistics import ColumnPath, column_paths
from rootline.client.data_file_writer import Ordered, write_rewritten_files
from rootline.client.layout_terms import sort_fields
from rootline.client.new_files import store_written
from rootline.client.partition_split import SortKeys, sort_keys
from rootline.client.row_changes import rewritten_files
from rootline.client.session import Session, oldest_date
from rootline.maintenance.data_compaction_plan import filled, size_of
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import DataFile
from rootline.schemas.table_definition import SortField, TableDefinition
from rootline.spark.connection import guest_lake
from rootline.spark.options import SourceOptions
from rootline.storage.rows.arrow_types import arrow_schema_of
from rootline.storage.rows.data_file_reader import RowsWanted
from rootline.storage.rows.scan_executor import scan_table
from rootline.tree.scan.file_task import FileTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CURVE_BITS: Final = 63
_COLUMN_BITS_MAX: Final = 16
_RANKS_MAX: Final = 4_096
_COLUMNS_MAX: Final = 8
_TASK_BITS: Final = 40
_TIE: Final = "tie"
_PLACE: Final = "place"
Places = np.ndarray[tuple[int], np.dtype[np.int64]]


class Curve(StrEnum):
    """The way in which several columns become one order."""

    LINEAR = "one after the other"
    Z = "in turn"


@dataclass(frozen=True, slots=True)
class RowOrder:
    """An order of rows. `sort_order_id`: the id of the table's sort order, if this is one."""

    fields: tuple[SortField, ...]
    curve: Curve
    sort_order_id: int | None = None

    @staticmethod
    def of(sort_by: tuple[str, ...] | None, curve: Curve, definition: TableDefinition) -> RowOrder:
        """The order by these terms. Without them, the table's own.

        Raises:
            Invalid: `definition-invalid`, a term names no column, or an unsortable one; `setting-invalid`, there is no
                order.
        """
        own = next(order for order in definition.sort_orders if order.order_id == definition.default_sort_order_id)
        fields = own.fields if sort_by is None else sort_fields(sort_by, definition.schema)
        if not fields:
            raise Invalid("setting-invalid", "there is no order to write rows in: give sort_by=[…], as in create_table")
        if curve is Curve.Z and len(fields) > _COLUMNS_MAX:
            raise Invalid("setting-invalid", f"sort_by has {len(fields)} columns: name {_COLUMNS_MAX} or fewer")
        known = (order.order_id for order in definition.sort_orders if order.fields == fields)
        order = RowOrder(fields, curve, next(known, None) if curve is Curve.LINEAR else None)
        empty = arrow_schema_of(definition.schema).empty_table()
        try:
            order.keys(empty, column_paths(definition.schema)).order()
        except pa.ArrowNotImplementedError as error:
            raise Invalid("definition-invalid", f"sort_by: {error}: leave that column out") from error
        return order

    def columns(self, definition: TableDefinition) -> tuple[str, ...]:
        """The top-level columns from which keys are made."""
        wanted = {field.source_id for field in self.fields}
        return tuple(field.name for field in definition.schema.fields if wanted & set(column_paths(Schema(field))))

    def keys(self, rows: pa.Table, paths: dict[int, ColumnPath], task: int = 0) -> SortKeys:
        """The sort keys of rows, column by column. `task` breaks ties: equal rows of a later task are later."""
        found = sort_keys(rows, self.fields, paths)
        if found is None:
            raise Invalid(
                "definition-invalid", "sort_by: a column has values that cannot be sorted: remove it from sort_by"
            )
        ties = pa.array(np.arange(rows.num_rows, dtype=np.int64) + (task << _TASK_BITS))
        return SortKeys(found.columns.append_column(_TIE, ties), (*found.directions, (_TIE, "ascending")))

    def on_curve(self, keys: SortKeys, cuts: Cuts) -> SortKeys:
        """The sort keys of rows: `keys` unchanged for a linear order, or their places on the Z-order curve."""
        if self.curve is Curve.LINEAR:
            return keys
        bits = min(_COLUMN_BITS_MAX, _CURVE_BITS // len(self.fields))
        place = np.zeros(keys.columns.num_rows, dtype=np.int64)
        ranks = [_scaled(_keys_of(keys, index), cut, bits) for index, cut in enumerate(cuts.ranks)]
        for bit in reversed(range(bits)):
            for rank in ranks:
                place = (place << 1) | ((rank >> bit) & 1)
        table = pa.table({_PLACE: place, _TIE: keys.columns.column(_TIE)})
        return SortKeys(table, ((_PLACE, "ascending"), (_TIE, "ascending")))

    def cuts(self, sample: SortKeys, parts: int) -> Cuts:
        """The cuts that divide the sampled rows into parts of about equal size."""
        ranks: tuple[pa.Table, ...] = ()
        if self.curve is Curve.Z:
            ranks = tuple(_quantiles(_keys_of(sample, index), _RANKS_MAX) for index in range(len(self.fields)))
        return Cuts(ranks, _quantiles(self.on_curve(sample, Cuts(ranks, None)), parts))


@dataclass(frozen=True, slots=True)
class Cuts:
    """The keys at which the rows of a group are divided into parts, one for each Spark task.

    * `ranks`: for a Z-order, the quantiles of each column. Otherwise empty.
    * `between`: the first key of each part except the first.
    """

    ranks: tuple[pa.Table, ...]
    between: pa.Table | None

    def parts(self, keys: SortKeys) -> Places:
        """The number of the part of each row, by its keys on the curve."""
        assert self.between is not None, "cuts of a whole sample"
        return _places(self.between, keys)


def _keys_of(keys: SortKeys, index: int) -> SortKeys:
    """The keys of one field."""
    directions = keys.directions[2 * index : 2 * index + 2]
    return SortKeys(keys.columns.select([name for name, _ in directions]), directions)


def _quantiles(keys: SortKeys, parts: int) -> pa.Table:
    """At most `parts` - 1 rows of `keys`, evenly spread over their order."""
    rows = keys.columns.num_rows
    cuts = min(parts, rows) - 1
    if cuts < 1:
        return keys.columns.slice(0, 0)
    at = np.arange(1, cuts + 1, dtype=np.int64) * rows // (cuts + 1)
    return keys.columns.take(keys.order().take(pa.array(at))).combine_chunks()


def _places(cuts: pa.Table, keys: SortKeys) -> Places:
    """For each row, the number of cuts that are not greater."""
    both = pa.concat_tables([cuts, keys.columns]).combine_chunks()
    order = SortKeys(both, keys.directions).order().to_numpy()
    is_cut = order < cuts.num_rows
    found = np.empty(keys.columns.num_rows, dtype=np.int64)
    found[(order[~is_cut] - cuts.num_rows).astype(np.int64)] = np.cumsum(is_cut)[~is_cut]
    return found


def _scaled(keys: SortKeys, cuts: pa.Table, bits: int) -> Any:
    """The rank of each row among the cuts, scaled to use all bits."""
    return (_places(cuts, keys) << bits) // (cuts.num_rows + 1)


def in_order(rows: pa.Table, order: RowOrder, paths: dict[int, ColumnPath], cuts: Cuts | None) -> pa.Table:
    """`rows` in the order. Without `cuts`, the ranks for a Z-order are those among `rows`."""
    keys = order.keys(rows, paths)
    known = order.cuts(keys, 1) if cuts is None else cuts
    return rows.take(order.on_curve(keys, known).order())


def sampled(keys: SortKeys, share: float, seed: int) -> pa.Table:
    """About `share` of the keys."""
    chosen = np.random.default_rng(seed).random(keys.columns.num_rows) < share
    return keys.columns.filter(pa.array(chosen)).combine_chunks()


RESULT: Final = "result binary"
PART_ROWS: Final = "part int, task int, rows binary"
_PARTS_SCHEMA: Final = pa.schema([("part", pa.int32()), ("task", pa.int32()), ("rows", pa.binary())])
_HARD_CAP: Final = 2
"""A part that is larger than planned stays one file up to this multiple of the target size."""


@dataclass(frozen=True, slots=True)
class FilesOfGroup:
    """New files in the store. `oldest_ms`: the time of the first upload, in the store's milliseconds, or `None` if
    unknown.
    """

    files: tuple[DataFile, ...]
    oldest_ms: int | None


@dataclass(frozen=True)
class GroupWork:
    """A group, divided into one share of its files for each task, and the way in which its rows are written."""

    options: SourceOptions
    definition_json: bytes
    shares: tuple[tuple[FileTask, ...], ...]
    target_bytes: int
    order: RowOrder | None = None

    @cached_property
    def definition(self) -> TableDefinition:
        """The definition by which rows are read and written."""
        return TableDefinition.from_json(self.definition_json)

    def read(self, share: int, wanted: RowsWanted) -> pa.Table:
        """Read the live rows of the files of one Spark task. `share`: the number of the task."""
        return guest_lake(self.options).holder.run(
            lambda session: scan_table(session.store, self.options.table, self.shares[share], wanted)
        )

    def ordering(self) -> RowOrder:
        """The order of a group that has one."""
        assert self.order is not None
        return self.order


def pack(work: GroupWork, share: int) -> FilesOfGroup:
    """Rewrite the rows of one task's files, in the table's sort order. `share`: the number of the task."""

    async def operation(session: Session) -> FilesOfGroup:
        options = work.options
        files = await rewritten_files(session, options.table, work.definition, work.shares[share], work.target_bytes)
        return _noted(session, work, files)

    return guest_lake(work.options).holder.run(operation)


def sample(work: GroupWork, rate: float, share: int) -> pa.Table:
    """A random sample of the sort keys in one task's files. Only the columns of the keys are read."""
    order, definition = work.ordering(), work.definition
    wanted = RowsWanted.of(definition, order.columns(definition))
    rows = work.read(share, wanted)
    return sampled(order.keys(rows, column_paths(Schema(*wanted.own_fields)), share), rate, share)


def share_out(work: GroupWork, cuts: Cuts, share: int) -> Iterator[pa.RecordBatch]:
    """The rows of one task's files, in one record batch for each part of the key range."""
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
    """Write the file of one part of a group, from all rows that tasks sent to this part."""
    pieces = sorted(zip(sent.column("task").to_pylist(), sent.column("rows"), strict=True), key=_task_of)
    return _written(work, pa.concat_tables([_from_bytes(rows.as_buffer()) for _, rows in pieces]), cuts)


def write_whole(work: GroupWork, share: int) -> FilesOfGroup:
    """Write the files of a group that is small enough for one task, sorted by the group's sort order."""
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
    """The result of a task, for the driver."""
    return pa.record_batch({"result": pa.array([pickle.dumps(result)], pa.binary())})


def numbers_of(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """Yield the numbers of the shares that Spark assigned to this task. A share is a tuple of files to read."""
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


_SAMPLE_ROWS_OF_PART: Final = 1_000
_SAMPLE_ROWS_MIN: Final = 20_000
_SHARE_FILES_MAX: Final = 500
_Found = TypeVar("_Found")


def packed(spark: SparkSession, work: GroupWork) -> FilesOfGroup:
    """The new files of the group, written by one task."""
    [written] = on_cluster(spark, len(work.shares), partial(pack, work))
    return written


def ordered(spark: SparkSession, work: GroupWork) -> FilesOfGroup:
    """The new files of the group, with rows in order within each file and across files.

    One task suffices for a single new file. Otherwise a first job takes a sample of the keys, and a second one sends
    each row to the part of its key.
    """
    tasks = [task for share in work.shares for task in share]
    parts = math.ceil(sum(map(_live_bytes, tasks)) / work.target_bytes)
    if parts < 2:
        [written] = on_cluster(spark, len(work.shares), partial(write_whole, work))
        return written
    shared = GroupWork(
        work.options, work.definition_json, _shares(tasks, work.target_bytes), work.target_bytes, work.order
    )
    rows = sum(task.record_count for task in tasks)
    rate = max(_SAMPLE_ROWS_MIN, _SAMPLE_ROWS_OF_PART * parts) / max(rows, 1)
    samples = on_cluster(spark, len(shared.shares), partial(sample, shared, rate))
    order, definition = shared.ordering(), TableDefinition.from_json(work.definition_json)
    cuts = order.cuts(keys_like(samples, order, definition), parts)

    def sent(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in numbers_of(batches):
            yield from share_out(shared, cuts, number)

    def written_part(rows_of_part: pa.Table) -> pa.Table:
        part = rows_of_part.column("part")[0].as_py()
        return pa.Table.from_batches([result_batch((part, write_part(shared, cuts, rows_of_part)))])

    count = len(shared.shares)
    frame = spark.range(0, count, 1, count).mapInArrow(sent, PART_ROWS)
    found = frame.repartition(parts, "part").groupBy("part").applyInArrow(written_part, RESULT).collect()
    results = [result for _, result in sorted(map(_unpacked, found), key=_part_of)]
    dates = oldest_date(result.oldest_ms for result in results)
    return FilesOfGroup(tuple(file for result in results for file in result.files), dates)


def _part_of(found: tuple[int, FilesOfGroup]) -> int:
    return found[0]


def _shares(tasks: list[FileTask], target_bytes: int) -> tuple[tuple[FileTask, ...], ...]:
    """One share for each task, with about as many bytes as a new file."""
    return tuple(filled(tasks, target_bytes, _SHARE_FILES_MAX))


def _live_bytes(task: FileTask) -> float:
    """The approximate bytes of the file's live rows."""
    deleted = sum(vector.record_count for vector in task.vectors)
    return size_of(task) * max(0.0, 1 - deleted / max(task.record_count, 1))


def on_cluster(spark: SparkSession, count: int, run: Callable[[int], _Found]) -> list[_Found]:
    """Call `run` with each number below `count`, each in its own Spark task, and return the results.

    Raises:
        Invalid: the first one that `run` raised. Spark's own error would contain only its text, without the code.
    """

    def each(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in numbers_of(batches):
            yield result_batch(_outcome(run, number))

    found = [_unpacked(row) for row in spark.range(0, count, 1, count).mapInArrow(each, RESULT).collect()]
    for result in found:
        if isinstance(result, Invalid):
            raise result
    return found


def _outcome(run: Callable[[int], _Found], number: int) -> _Found | Invalid:
    try:
        return run(number)
    except Invalid as error:  # a retry of the task would fail in the same way
        return error


def _unpacked(row: Any) -> Any:
    return pickle.loads(bytes(row.result))
