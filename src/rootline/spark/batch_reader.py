"""Spark's batch read of one table: planned in the driver's Python worker, read on executors.

Owns: the partitions of a read, the translation of Spark's pushed filters to PyIceberg's expressions, a choice of files
as the text of an option. Does not own: planning (`planned_files`), reading files (`scan_executor`), Spark's types
(`spark_types`).
Invariants: every partition belongs to one version of the table. A row that satisfies a filter in Spark satisfies its
translation. A filter without a translation costs time, never rows, because Spark checks every filter again. The two
differ on NaN: in Spark it is greater than every number, here it satisfies no comparison. The text of a choice contains
a digest of the files' names, so it selects nothing from another plan.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pyiceberg import expressions
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType
from pyspark.sql import datasource as spark
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from rootline.client.time_travel import PointInTime
from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import TableDefinition
from rootline.spark.connection import guest_lake
from rootline.spark.options import SourceOptions
from rootline.spark.spark_types import arrow_schema_for_spark, batch_for_spark
from rootline.tree.filter.filters import BoundFilter, all_of, bind_filter
from rootline.tree.scan.file_task import FileTask

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.expressions import BooleanExpression

_make: Final[Any] = expressions  # the constructors of its models name some fields differently
_COMPARISONS: Final[dict[type[spark.Filter], tuple[Any, Any]]] = {
    spark.EqualTo: (_make.EqualTo, _make.NotEqualTo),
    spark.GreaterThan: (_make.GreaterThan, _make.LessThanOrEqual),
    spark.GreaterThanOrEqual: (_make.GreaterThanOrEqual, _make.LessThan),
    spark.LessThan: (_make.LessThan, _make.GreaterThanOrEqual),
    spark.LessThanOrEqual: (_make.LessThanOrEqual, _make.GreaterThan),
}
"""Spark's filter → its translation, and the translation of its negation. Both drop nulls, as SQL does."""


def translated(filters: Iterable[spark.Filter], schema: Schema) -> expressions.BooleanExpression | None:
    """The conjunction of those `filters` that can be translated for a table of `schema`, or `None` if none can."""
    parts = [part for part in (_bindable(condition, schema) for condition in filters) if part is not None]
    return reduce(_make.And, parts) if parts else None


def _bindable(condition: spark.Filter, schema: Schema) -> Any:
    is_negated = isinstance(condition, spark.Not)
    inner = condition.child if isinstance(condition, spark.Not) else condition
    if isinstance(inner, spark.Not) or any("." in part for part in getattr(inner, "attribute", ())):
        return None  # a dot in a name is ambiguous with a path
    expression = _translate(inner, schema, is_negated)
    if expression is not None:
        try:
            bind_filter(expression, schema)
        except Invalid:
            return None
    return expression


def _translate(condition: Any, schema: Schema, is_negated: bool) -> Any:
    column = ".".join(condition.attribute)
    match condition:
        case spark.IsNull():
            return (_make.NotNull if is_negated else _make.IsNull)(column)
        case spark.IsNotNull():
            return (_make.IsNull if is_negated else _make.NotNull)(column)
        case spark.In(value=values):
            literals = [_literal(value) for value in values]
            if not literals or None in literals:
                return None
            return (_make.NotIn if is_negated else _make.In)(column, literals)
        case spark.StringStartsWith(value=prefix):
            return (_make.NotStartsWith if is_negated else _make.StartsWith)(column, prefix)
        case spark.EqualNullSafe(value=None):
            return (_make.NotNull if is_negated else _make.IsNull)(column)
        case spark.EqualNullSafe(value=value):
            literal = _literal(value)
            if literal is None:
                return None
            if is_negated:
                return _make.Or(_make.NotEqualTo(column, literal), _make.IsNull(column))
            return _make.EqualTo(column, literal)
    if type(condition) not in _COMPARISONS:
        return None
    return _comparison(_COMPARISONS[type(condition)][is_negated], column, _literal(condition.value), schema)


def _comparison(make: Any, column: str, literal: Any, schema: Schema) -> Any:
    if literal is None:
        return None
    expression = make(column, literal)
    if make in (_make.GreaterThan, _make.GreaterThanOrEqual) and _may_hold_nan(column, schema):
        return _make.Or(expression, _make.IsNaN(column))
    return expression


def _may_hold_nan(column: str, schema: Schema) -> bool:
    try:
        return isinstance(schema.find_field(column).field_type, FloatType | DoubleType)
    except ValueError:
        return False


def _literal(value: Any) -> Any:
    """A value that PyIceberg can bind to a column, or `None` if there is none."""
    match value:
        case bool() | int() | str() | bytes() | Decimal():
            return value
        case float():
            return value if value == value else None
        case dt.date() | dt.time():  # a datetime is a date
            return value.isoformat()
    return None


_SHAPE: Final = re.compile(r"((?:\d{1,9}-\d{1,9},)*)@([0-9a-f]{32})")


@dataclass(frozen=True, slots=True)
class TaskChoice:
    """A choice of a plan's files: inclusive ranges of their numbers, and the digest of their locations."""

    ranges: tuple[tuple[int, int], ...]
    digest: str

    @staticmethod
    def of(numbers: Sequence[int], tasks: Sequence[FileTask]) -> TaskChoice:
        """The choice of the `tasks` with the ascending `numbers`."""
        ranges: list[tuple[int, int]] = []
        for number in numbers:
            if ranges and number == ranges[-1][1] + 1:
                ranges[-1] = ranges[-1][0], number
            else:
                ranges.append((number, number))
        return TaskChoice(tuple(ranges), _digest(tasks[number] for number in numbers))

    @staticmethod
    def parse(text: str) -> TaskChoice:
        """The choice in a text made by `str`. Raises `Invalid` (`setting-invalid`)."""
        match = _SHAPE.fullmatch(text)
        if match is None:
            raise Invalid("setting-invalid", "option 'filesOfPlan' is for rootline.spark.table only: leave it out")
        pairs = (pair.split("-") for pair in match[1].split(",") if pair)
        return TaskChoice(tuple((int(first), int(last)) for first, last in pairs), match[2])

    def __str__(self) -> str:
        return "".join(f"{first}-{last}," for first, last in self.ranges) + f"@{self.digest}"

    def chosen(self, tasks: Sequence[FileTask]) -> list[FileTask]:
        """The tasks of a plan that this choice selects.

        Raises:
            Invalid: `setting-invalid`, `tasks` are of another plan.
        """
        found = [task for first, last in self.ranges for task in tasks[first : last + 1]]
        if _digest(iter(found)) != self.digest:
            raise Invalid(
                "setting-invalid", "option 'filesOfPlan' belongs to another plan: call rootline.spark.table again"
            )
        return found


def _digest(tasks: Iterator[FileTask]) -> str:
    found = hashlib.sha256()
    for task in tasks:
        found.update(task.location.encode() + b"\n")
    return found.hexdigest()[:32]


PARTITION_BYTES: Final = 128 * 1024 * 1024
_PARTITION_BYTES_MIN: Final = 16 * 1024 * 1024
_FILE_OPEN_COST_BYTES: Final = 4 * 1024 * 1024


@dataclass
class ScanPartition(InputPartition):
    """Some files of one version, and the definition to read them by. Without files, no rows."""

    tasks: tuple[FileTask, ...]
    definition: bytes


class BatchReader(DataSourceReader):
    """`spark.read.format("rootline").load("namespace.table")`, at one version of the table."""

    def __init__(self, options: SourceOptions, version: int, definition: bytes, wanted: StructType) -> None:
        self.options = options
        self.version = version
        self.definition = definition
        self.wanted = wanted
        self.pushed: BooleanExpression | None = None

    def partitions(self) -> Sequence[InputPartition]:
        """The files that may match, packed to at most about 128 MiB each."""
        from rootline.client.planned_files import plan_files  # only a process that plans needs it

        where, point = self._filter(), PointInTime(version=self.version)
        plan = guest_lake(self.options).holder.run(
            lambda session: plan_files(session, self.options.table, where, point)
        )
        tasks: Iterable[FileTask] = plan.scan.tasks()
        if self.options.files_of_plan is not None:
            tasks = TaskChoice.parse(self.options.files_of_plan).chosen(tuple(tasks))
        tasks = tuple(tasks)
        groups = packed(tasks, partition_bytes(sum(map(_cost, tasks)), os.cpu_count() or 1))
        return [ScanPartition(tuple(group), self.definition) for group in groups] or [
            ScanPartition((), self.definition)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The matching live rows of a partition's files, as Arrow batches in Spark's own types."""
        from rootline.storage.rows.data_file_reader import RowsWanted  # only a process that reads needs them
        from rootline.storage.rows.scan_executor import scan_portions

        assert isinstance(partition, ScanPartition)
        definition = TableDefinition.from_json(partition.definition)
        columns = RowsWanted.of(definition, self.wanted.names)
        target = arrow_schema_for_spark(self.wanted)
        portions = guest_lake(self.options).holder.iterate(
            lambda session: scan_portions(session.store, self.options.table, partition.tasks, columns)
        )
        for portion in portions:
            for batch in portion:
                yield batch_for_spark(batch, target)

    def _filter(self) -> BoundFilter:
        """Option `where` and the filters that Spark pushed, together."""
        schema = TableDefinition.from_json(self.definition).schema
        asked, pushed = bind_filter(self.options.where, schema), bind_filter(self.pushed, schema)
        return BoundFilter(all_of((asked.condition, pushed.condition)), f"({asked.text}) and ({pushed.text})")


class PushingReader(BatchReader):
    """A read that lets Spark push filters down. Spark refuses it while its own setting for that is off.

    Only on request: up to Spark 4.3 a pushed filter stays with the DataFrame that was loaded. Later reads of that
    DataFrame without the filter silently lack the rows that it dropped.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Store the translated filters, to prune files and rows early. Returns every filter, so that Spark checks it
        again.
        """
        self.pushed = translated(filters, TableDefinition.from_json(self.definition).schema)
        return filters


def partition_bytes(total: int, processors: int) -> int:
    """The size of each partition of `total` bytes, so that all `processors` have the same number of partitions.

    As Spark does with its own files. A planning process does not know the cluster, so these are the driver's.
    """
    count = -(-total // (PARTITION_BYTES * processors)) * processors
    return max(_PARTITION_BYTES_MIN, -(-total // max(1, count)))


def _cost(task: FileTask) -> int:
    return max(task.data.file_size_in_bytes or 0, _FILE_OPEN_COST_BYTES)


def packed(tasks: Iterable[FileTask], partition_bytes: int) -> Iterator[list[FileTask]]:
    """Tasks in order, in groups of about `partition_bytes`. A file counts for at least the cost of opening it."""
    held: list[FileTask] = []
    size = 0
    for task in tasks:
        held.append(task)
        size += _cost(task)
        if size >= partition_bytes:
            yield held
            held, size = [], 0
    if held:
        yield held
