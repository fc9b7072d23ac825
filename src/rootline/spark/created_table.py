"""Option `createTable`: a write makes the table that it writes to, of the columns of its rows."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import StructType

from rootline.client.session import Session
from rootline.schemas.errors import Invalid, Unavailable
from rootline.spark.connection import committing_lake, guest_lake
from rootline.spark.options import SourceOptions
from rootline.spark.spark_types import arrow_schema_for_spark
from rootline.storage.metadata.root_reader import check_there

_GONE: Final = ("table-unknown", "table-dropped")


def create_where_asked(options: SourceOptions, schema: StructType) -> None:
    """Make the table if the options say so and there is none; empty: its rows come when the write commits.

    Raises:
        Invalid: `definition-invalid`, naming the column or the term.
        OutcomeUnknown: `verdict-timeout`.

    """
    if not options.create_table or _is_there(options):
        return
    with committing_lake(options) as lake:
        try:
            lake.create_table(
                options.table,
                arrow_schema_for_spark(schema.toNullable()),  # as Spark makes tables of rows
                partition_by=options.partitioned_by,
                sort_by=options.sorted_by,
                timeout_s=options.verdict_timeout_ms / 1000,
            )
        except Invalid as error:
            if error.code != "table-exists":  # someone else was faster, and the rows have to fit that table
                raise


def _is_there(options: SourceOptions) -> bool:
    async def operation(session: Session) -> bool:
        try:
            await check_there(session.store, options.table)
        except Invalid as error:
            if error.code in _GONE:
                return False
            raise
        return True

    try:
        return guest_lake(options).holder.run(operation)
    except Unavailable:  # a warehouse's folder that is not there yet; any other trouble meets the create too
        return False
