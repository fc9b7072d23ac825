"""Writes with `mergeSchema`: executors write under the definition that the table is to have, and the driver brings it.

Owns: that plan, and whether it still holds when the files are there. Does not own: what rows need of a table
(`rootline.client`), publishing (`batch_commit`).
Invariants: columns and rows are one intent; files are published only under a definition in which their columns' ids
mean what they meant when the files were written.

Theory. Executors name columns by id, so the plan comes before the files and cannot follow the table any more. If the
columns came meanwhile, from this stream's last batch or from someone else in the same order, nothing is left to change.
If other columns have got their ids, the rows must be written again, which is Spark's to do.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructType

from rootline.client.given_rows import GivenRows
from rootline.client.lake import Lake
from rootline.client.merged_rows import MergePlan, merge_plan
from rootline.client.session import Session
from rootline.client.time_travel import read_head
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.table_definition import TableDefinition
from rootline.spark.given_columns import as_table_names
from rootline.spark.spark_types import arrow_schema_for_spark
from rootline.storage.metadata.root_reader import read_definition
from rootline.tree.evolution.evolution_rules import may_become, placed_fields


@dataclass(frozen=True, slots=True)
class MergedWrite:
    """What a write needs of the table; picklable. `definition`: JSON, what its files are written under."""

    columns: pa.Schema
    definition: bytes

    @staticmethod
    def planned(
        table: TableName, rows: StructType, definition: bytes, digest: bytes, *, is_case_sensitive: bool = False
    ) -> MergedWrite | None:
        """Of rows with Spark's schema; `None` when the table, whose definition has `digest`, has all they need.

        Raises:
            Invalid: `definition-invalid` or `evolution-illegal`, naming the column.

        """
        now = TableDefinition.from_json(definition)
        empty = pa.RecordBatch.from_pylist([], arrow_schema_for_spark(rows))
        columns = as_table_names(empty, now.schema, is_case_sensitive=is_case_sensitive).schema
        plan = _plan(table, columns, now, digest)
        return None if plan.changes is None else MergedWrite(columns, plan.definition.to_json())

    def on_head(self, lake: Lake, table: TableName) -> MergePlan:
        """The changes that are still to be made now that the files are there.

        Raises:
            Invalid: `definition-changed`, the files' columns are not those of the table any more.

        """

        async def operation(session: Session) -> tuple[TableDefinition, bytes]:
            header = (await read_head(session.store, table)).header
            return await read_definition(session.store, header), header.definition.digest

        plan = _plan(table, self.columns, *lake.holder.run(operation))
        if not means_the_same(TableDefinition.from_json(self.definition), plan.definition):
            raise Invalid(
                "definition-changed",
                f"{table}: another change of its columns came while the batch was written, and its files do not fit "
                "the result: run the write again; a stream's next run writes this batch again",
            )
        return plan


def means_the_same(written: TableDefinition, now: TableDefinition) -> bool:
    """Whether files that were written under one definition hold, under the other, what they were written to hold."""
    there = placed_fields(now.schema)
    for field_id, placed in placed_fields(written.schema).items():
        found = there.get(field_id)
        if found is None or (found.name, found.parent) != (placed.name, placed.parent):
            return False
        if not may_become(placed.field.field_type, found.field.field_type):
            return False
    known = (now.tracked_fields, *now.past_tracked_fields)
    return written.table_uuid == now.table_uuid and written.tracked_fields in known


def _plan(table: TableName, columns: pa.Schema, definition: TableDefinition, digest: bytes) -> MergePlan:
    return merge_plan(table, GivenRows.of(columns.empty_table()), definition, digest)
