"""Whether Spark's own Parquet writer may write the rows of a DataFrame, and the rows as it gets them.

Owns: what rows, table and session must be like for that. Does not own: writing (`append`), what the files turn out to
be (`written_files`, which looks at each).
Invariants: rows are handed over only where a file of Spark's is as one of ours: the same columns with their ids and
types, of one partition; what is in doubt is written by ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, PrimitiveType, TimestamptzType
from pyspark.sql import functions as F  # noqa: N812  # as everyone calls it
from pyspark.sql.types import StructType

from rootline.schemas.table_definition import TableDefinition
from rootline.spark.parquet_files import is_scalar
from rootline.spark.parquet_sink.partition_groups import partition_group
from rootline.spark.spark_types import spark_schema_of
from rootline.storage.rows.arrow_types import arrow_field_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

GROUP: Final = "partition_group"
"""The name of folders of one partition, `partition_group=1234`: there for Spark, and nothing is taken from it."""
_FIELD_ID: Final = "parquet.field.id"
_TIMESTAMPS: Final = "spark.sql.parquet.outputTimestampType"
_MICROS: Final = "TIMESTAMP_MICROS"
_ANY_COMMITTER: Final = "spark.sql.sources.outputCommitterClass"
_NEEDED: Final = {
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.sources.commitProtocolClass": (
        "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
    ),
    "spark.sql.parquet.output.committer.class": "org.apache.parquet.hadoop.ParquetOutputCommitter",
}
"""Settings of the session, and what they must be, which are Spark's defaults."""


@dataclass(frozen=True, slots=True)
class HandedRows:
    """`frame`: the table's columns in their order, with field ids; and `GROUP` last if `is_partitioned`."""

    frame: DataFrame
    is_partitioned: bool


def handed_rows(frame: DataFrame, definition: TableDefinition) -> HandedRows | str:
    """The rows as Spark's writer gets them, or the reason why ours writes them."""
    fields = definition.schema.fields
    reason = _unfit_table(definition) or _unfit_columns(frame.schema, fields)
    reason = reason or _unfit_session(frame.sparkSession, fields)
    if reason is not None:
        return reason
    group = partition_group(definition)
    is_partitioned = bool(definition.spec_by_id(definition.default_spec_id).expr_ids)
    if is_partitioned and group is None:
        return "Spark has no function for its partitions"
    columns = [_column(field) for field in fields]
    return HandedRows(frame.select(*columns, *([] if group is None else [group.alias(GROUP)])), group is not None)


def _column(field: NestedField) -> Column:
    """With its id. `DataFrame.to` would give them all at once, but loses them where the order stays as it is."""
    quoted = "`" + field.name.replace("`", "``") + "`"
    return F.col(quoted).alias(field.name, metadata={_FIELD_ID: field.field_id})


def _unfit_table(definition: TableDefinition) -> str | None:
    if any(order.order_id == definition.default_sort_order_id and order.fields for order in definition.sort_orders):
        return "the table has a sort order"
    return None


def _unfit_columns(rows: StructType, fields: Sequence[NestedField]) -> str | None:
    names = [field.name for field in fields]
    if not names or sorted(rows.names) != sorted(names):
        return "the rows have other columns than the table"
    if len({name.lower() for name in (*names, GROUP)}) != len(names) + 1:
        return f"column names differ only in case, or one is {GROUP!r}"
    for field in fields:
        if not isinstance(field.field_type, PrimitiveType) or not is_scalar(arrow_field_of(field).type):
            return f"column {field.name} is of type {field.field_type}"
    wanted = spark_schema_of(Schema(*fields))
    other = next((name for name in names if rows[name].dataType != wanted[name].dataType), None)
    return None if other is None else f"column {other} is {rows[other].dataType.simpleString()} in the rows"


def _unfit_session(spark: SparkSession, fields: Sequence[NestedField]) -> str | None:
    for setting, needed in _NEEDED.items():
        if _setting(spark, setting).lower() != needed.lower():
            return f"{setting} is not {needed}"
    if spark.conf.get(_ANY_COMMITTER, None):
        return f"{_ANY_COMMITTER} is set"
    has_moments = any(isinstance(field.field_type, TimestamptzType) for field in fields)
    if has_moments and _setting(spark, _TIMESTAMPS).upper() != _MICROS:
        return f"{_TIMESTAMPS} is not {_MICROS}"
    return None


def _setting(spark: SparkSession, name: str) -> str:
    return spark.conf.get(name) or ""
