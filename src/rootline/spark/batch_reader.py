"""Spark's batch read of one table: planned in the driver's Python worker, read on executors.

Owns: the partitions of a read, filters pushed by Spark. Does not own: planning (`rootline.client.planned_files`),
reading files (`rootline.storage.rows.scan_executor`), Spark's types (`spark_types`).
Invariants: every partition belongs to one version of the table; Spark checks every filter again, so a filter that
cannot be translated costs time, never rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from rootline.client.planned_files import plan_files
from rootline.client.time_travel import PointInTime
from rootline.schemas.table_definition import TableDefinition
from rootline.spark.connection import guest_lake
from rootline.spark.filter_translation import translated
from rootline.spark.options import SourceOptions
from rootline.spark.spark_types import arrow_schema_for_spark, batch_for_spark
from rootline.spark.task_choice import TaskChoice
from rootline.storage.rows.data_file_reader import RowsWanted
from rootline.storage.rows.scan_executor import scan_batches
from rootline.tree.filter.filters import BoundFilter, all_of, bind_filter
from rootline.tree.scan.file_task import FileTask

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.expressions import BooleanExpression

PARTITION_BYTES: Final = 128 * 1024 * 1024
_FILE_OPEN_COST_BYTES: Final = 4 * 1024 * 1024


@dataclass
class ScanPartition(InputPartition):
    """Some files of one version, and the definition to read them by; without files, no rows."""

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
        """The files that may match, packed to about 128 MiB each."""
        where, point = self._filter(), PointInTime(version=self.version)
        plan = guest_lake(self.options).holder.run(
            lambda session: plan_files(session, self.options.table, where, point)
        )
        tasks: Iterable[FileTask] = plan.scan.tasks()
        if self.options.files_of_plan is not None:
            tasks = TaskChoice.parse(self.options.files_of_plan).chosen(tuple(tasks))
        groups = packed(tasks, PARTITION_BYTES)
        return [ScanPartition(tuple(tasks), self.definition) for tasks in groups] or [
            ScanPartition((), self.definition)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The live rows of a partition's files that match, as Arrow batches in Spark's own types."""
        assert isinstance(partition, ScanPartition)
        definition = TableDefinition.from_json(partition.definition)
        columns = RowsWanted.of(definition, self.wanted.names)
        target = arrow_schema_for_spark(self.wanted)
        batches = guest_lake(self.options).holder.iterate(
            lambda session: scan_batches(session.store, self.options.table, partition.tasks, columns)
        )
        for batch in batches:
            yield batch_for_spark(batch, target)

    def _filter(self) -> BoundFilter:
        """Option `where` and the filters that Spark pushed, together."""
        schema = TableDefinition.from_json(self.definition).schema
        asked, pushed = bind_filter(self.options.where, schema), bind_filter(self.pushed, schema)
        return BoundFilter(all_of((asked.condition, pushed.condition)), f"({asked.text}) and ({pushed.text})")


class PushingReader(BatchReader):
    """A read that lets Spark push filters down; Spark refuses it while its own setting for that is off.

    Only on request: up to Spark 4.3 a pushed filter stays with the DataFrame that was loaded, and later reads of that
    DataFrame without the filter silently lack the rows that it dropped.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep what can be translated, to prune files and rows early; return every filter, so Spark checks it again."""
        self.pushed = translated(filters, TableDefinition.from_json(self.definition).schema)
        return filters


def packed(tasks: Iterable[FileTask], partition_bytes: int) -> Iterator[list[FileTask]]:
    """Tasks in order, in groups of about `partition_bytes`; a file counts for at least the cost of opening it."""
    held: list[FileTask] = []
    size = 0
    for task in tasks:
        held.append(task)
        size += max(task.data.file_size_in_bytes or 0, _FILE_OPEN_COST_BYTES)
        if size >= partition_bytes:
            yield held
            held, size = [], 0
    if held:
        yield held
