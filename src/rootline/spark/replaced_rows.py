"""Which rows an overwrite of Spark's takes out: every row, those of a filter, or the partitions that it brings.

Owns: the choice, and the plan of what leaves. Does not own: rewriting files that match in part
(`rootline.client.row_changes`), the intent and its commit (`batch_commit`).
Invariants: a partition is one of the spec that the batch's files were written under; a file of another spec is read,
and its rows are told apart by that spec; the filter that a plan is held against matches every row that it may replace.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

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
from rootline.schemas.table_definition import TableDefinition
from rootline.spark.options import PartitionMode
from rootline.spark.partition_filter import filter_of_partitions
from rootline.storage.rows.data_file_reader import RowsWanted
from rootline.storage.rows.scan_executor import scan_table
from rootline.tree.filter.column_predicates import rows_matching
from rootline.tree.filter.filters import bind_filter
from rootline.tree.scan.file_task import FileTask
from rootline.tree.scan.partition_tuple import PartitionTuple, is_unpartitioned, partition_tuple
from rootline.tree.scan.scan_plan import DeletesFor


@dataclass(frozen=True, slots=True)
class Replaced:
    """What an overwrite takes out: rows that match `where`, or `partitions`; every row without both."""

    where: str | None = None
    partitions: frozenset[PartitionTuple] | None = None
    spec_id: int = 0

    def filter_for(self, definition: TableDefinition) -> str:
        """A filter that every row matches which the overwrite may replace."""
        if self.partitions is None:
            return self.where or EVERY_ROW
        return filter_of_partitions(definition, definition.spec_by_id(self.spec_id), self.partitions) or EVERY_ROW

    async def planned(
        self, session: Session, table: TableName, definition: TableDefinition, target_bytes: int
    ) -> tuple[FilePlan, Removal]:
        """The files of the present head that leave, and what is left of them; `definition` is what that is written by.

        Raises:
            Invalid: `filter-invalid`.

        """
        plan = await plan_files(session, table, self.where, deletes_for=DeletesFor.EVERY_ROW)
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
        """Rows of a file of another spec that are in none of the partitions; `None`: all of them."""
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
    """What an overwrite by `files`, written under `definition`, takes out; `None`: nothing, and it brings nothing.

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
    """Check that all rows match the filter that says what they replace: another run must replace them too.

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
            f"{other} of {table.num_rows} rows do not match replaceWhere ({where:.200}): they would stay beside the "
            "rows of the next such write; leave them out, or widen replaceWhere",
        )


def _key(values: Sequence[Bound | None]) -> PartitionTuple:
    """Values that can be compared: NaN is in a partition of its own."""
    return tuple("NaN" if value != value else value for value in values)
