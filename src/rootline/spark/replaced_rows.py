"""Chooses the rows that an overwrite by Spark removes: every row, those of a filter, or the partitions of the new
rows.

Owns: the choice, the plan of the removal, and the partitions as a filter for the isolation check. Does not own:
rewriting files that match in part (`row_changes`), the grammar of filters (`rootline.tree.filter`), the intent and its
commit (`batch_commit`).
Invariants: partitions are those of the spec under which the batch's files were written. A file of another spec is
read, and its rows are assigned to partitions of that spec. The filter of a plan matches every row that it may replace.
If a transform or a type has no filter, the filter is wider, and more concurrent changes are conflicts.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    YearTransform,
)
from pyiceberg.types import (
    BooleanType,
    DateType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from rootline.client.column_statistics import column_paths
from rootline.client.data_file_writer import checked_rows
from rootline.client.new_files import entry_of, write_and_store_kept
from rootline.client.partition_split import split_by_partition
from rootline.client.planned_files import FilePlan, plan_files
from rootline.client.row_changes import EVERY_ROW, Removal, removal_of
from rootline.client.session import Session
from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.content_entry import Bound
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import DataFile
from rootline.schemas.table_definition import PartitionSpec, TableDefinition
from rootline.spark.options import PartitionMode
from rootline.storage.rows.data_file_reader import RowsWanted
from rootline.storage.rows.scan_executor import scan_table
from rootline.tree.filter.conditions import rows_matching
from rootline.tree.filter.filters import bind_filter
from rootline.tree.rules.isolation_rules import FILTER_CHARS_MAX
from rootline.tree.scan.delete_index import PartitionTuple, is_unpartitioned, partition_tuple
from rootline.tree.scan.file_task import FileTask
from rootline.tree.scan.scan_plan import DeletesFor

PARTITIONS_MAX: Final = 500
"""With more partitions, the filter costs the coordinator more time than it saves by avoiding conflicts."""
_EPOCH: Final = dt.datetime(1970, 1, 1)


def filter_of_partitions(
    definition: TableDefinition, spec: PartitionSpec, partitions: Iterable[PartitionTuple]
) -> str | None:
    """A filter that all rows of `partitions` match, or `None` if only a filter for every row is possible."""
    found: set[str] = set()
    for values in partitions:
        said = [_said(definition, member, value) for member, value in zip(spec.expr_ids, values, strict=True)]
        known = [text for text in said if text is not None]
        if not known or len(found) >= PARTITIONS_MAX:
            return None
        found.add(" and ".join(known))
    text = " or ".join(f"({each})" for each in sorted(found))
    return text if text and len(text) <= FILTER_CHARS_MAX else None


def _said(definition: TableDefinition, member: int, value: Bound | None) -> str | None:
    source_id, transform = definition.transform_of(member)
    expression = definition.expressions_by_id.get(member)
    if expression is not None and len(expression.source_ids) != 1:
        return None
    column = _column(definition.schema, source_id)
    if column is None:
        return None
    name, kind = column
    if isinstance(transform, IdentityTransform):
        literal = "null" if value is None else _literal(value, kind)
        return None if literal is None else f"{name} {'is' if value is None else '='} {literal}"
    bounds = None if value is None or type(value) is not int else _range(transform, value, kind)
    return None if bounds is None else f"{name} >= '{bounds[0]}' and {name} < '{bounds[1]}'"


def _column(schema: Schema, field_id: int) -> tuple[str, IcebergType] | None:
    field = next((field for field in schema.fields if field.field_id == field_id), None)
    return None if field is None else ('"' + field.name.replace('"', '""') + '"', field.field_type)


def _literal(value: Any, kind: IcebergType) -> str | None:
    if isinstance(kind, BooleanType):
        return "true" if value else "false"
    if isinstance(kind, IntegerType | LongType):
        return str(value)
    if isinstance(kind, StringType):
        return "'" + str(value).replace("'", "''") + "'"
    if isinstance(kind, DateType):
        day = _start(DayTransform(), value)
        return None if day is None else f"'{day.date().isoformat()}'"
    return None


def _range(transform: Transform[Any, Any], value: int, kind: IcebergType) -> tuple[str, str] | None:
    """The first moment of a year, month, day or hour, and the first moment after it."""
    if not isinstance(kind, DateType | TimestampType | TimestamptzType):
        return None
    starts = [_start(transform, each) for each in (value, value + 1)]
    if None in starts:
        return None
    is_date = isinstance(kind, DateType)
    low, high = ((start.date() if is_date else start).isoformat() for start in starts if start is not None)
    return low, high


def _start(transform: Transform[Any, Any], value: int) -> dt.datetime | None:
    try:
        if isinstance(transform, YearTransform):
            return _EPOCH.replace(year=1970 + value)
        if isinstance(transform, MonthTransform):
            return _EPOCH.replace(year=1970 + value // 12, month=1 + value % 12)
        if isinstance(transform, DayTransform):
            return _EPOCH + dt.timedelta(days=value)
        if isinstance(transform, HourTransform):
            return _EPOCH + dt.timedelta(hours=value)
    except (OverflowError, ValueError):
        return None
    return None


@dataclass(frozen=True, slots=True)
class Replaced:
    """The rows that an overwrite removes: rows that match `where`, rows of `partitions`, or every row if both are
    `None`.
    """

    where: str | None = None
    partitions: frozenset[PartitionTuple] | None = None
    spec_id: int = 0

    def filter_for(self, definition: TableDefinition) -> str:
        """A filter that matches every row that the overwrite may replace."""
        if self.partitions is None:
            return self.where or EVERY_ROW
        return filter_of_partitions(definition, definition.spec_by_id(self.spec_id), self.partitions) or EVERY_ROW

    async def planned(
        self, session: Session, table: TableName, becomes: TableDefinition | None, target_bytes: int
    ) -> tuple[FilePlan, Removal]:
        """Plan the removal at the newest version. Write new files with the rows that remain, under the definition of
        that version, or the one that it `becomes`.

        Raises:
            Invalid: `filter-invalid`.
        """
        plan = await plan_files(session, table, self.where, deletes_for=DeletesFor.EVERY_ROW)
        definition = becomes or plan.definition
        if self.partitions is None:
            return plan, await removal_of(session, plan, definition, target_bytes)
        removed: list[FileTask] = []
        rewritten: list[DataFile] = []
        for task in plan.scan.tasks():
            found = None
            if task.data.partition_spec_id == self.spec_id:
                found = partition_tuple(task.data, plan.definition)
            if found is not None:
                removed += [task] if _key(found) in self.partitions else []
                continue
            kept = await self._kept_rows(session, plan, task, definition)
            if kept is not None:
                removed.append(task)
                rewritten += await write_and_store_kept(session, table, definition, kept, target_bytes)
        return plan, Removal(tuple(removed), tuple(rewritten))

    async def _kept_rows(
        self, session: Session, plan: FilePlan, task: FileTask, definition: TableDefinition
    ) -> pa.Table | None:
        """The rows of a file of another spec that are not in the partitions. `None`: no row is in them."""
        whole = FileTask(task.data, task.vectors, deletes=task.deletes)
        rows = await scan_table(session.store, plan.table, [whole], RowsWanted.to_keep(plan.definition))
        spec = definition.spec_by_id(self.spec_id)
        parts = list(split_by_partition(rows, plan.definition, spec, column_paths(plan.definition.schema)))
        known = self.partitions or frozenset()
        kept = [part.rows for part in parts if _key(list(part.values.values())) not in known]
        if len(kept) == len(parts):
            return None
        return pa.concat_tables(kept) if kept else rows.slice(0, 0)


def replaced_by(
    files: Sequence[DataFile], definition: TableDefinition, where: str | None, mode: PartitionMode
) -> Replaced | None:
    """The rows that an overwrite removes, or `None` if it changes nothing.

    `files`: the new files, which were written under `definition`.

    Raises:
        Invalid: `statistics-missing`, a file's partition is not known.
    """
    spec = definition.spec_by_id(definition.default_spec_id)
    if where is not None or mode is PartitionMode.STATIC:
        return Replaced(where)
    if not files:
        return None
    if is_unpartitioned(spec, definition):
        return Replaced()
    codec = EntryCodec.of_definition(definition)
    found: set[PartitionTuple] = set()
    for file in files:
        values = partition_tuple(entry_of(file, definition, codec), definition)
        if values is None:
            raise Invalid("statistics-missing", f"{file.location}: its partition values are not known")
        found.add(_key(values))
    return Replaced(partitions=frozenset(found), spec_id=spec.spec_id)


def check_replaced(rows: Iterable[pa.RecordBatch], definition: TableDefinition, where: str) -> None:
    """Check that all new rows match the filter of replaced rows, so that a repeated run replaces them too.

    Raises:
        Invalid: `rows-invalid`, some do not, or a column does not fit.
    """
    table = checked_rows(rows, definition)
    wanted, paths = bind_filter(where, definition.schema), column_paths(definition.schema)
    names = {field.field_id: field.name for field in definition.schema.fields}

    def column(field_id: int) -> pa.Array:
        found = paths[field_id].of(table) if field_id in paths else table.column(names[field_id])
        return found.combine_chunks()

    other = table.num_rows - pc.sum(rows_matching(wanted.condition, column, table.num_rows)).as_py()
    if other:
        raise Invalid(
            "rows-invalid",
            f"{other} of {table.num_rows} rows do not match replaceWhere ({where:.200}), so the next such write would "
            "not replace them: leave them out, or widen replaceWhere",
        )


def _key(values: Sequence[Bound | None]) -> PartitionTuple:
    """The values of a partition as a key for sets. All NaN values are one partition."""
    return tuple("NaN" if value != value else value for value in values)
