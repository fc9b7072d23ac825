"""`format("rootline")`.

Owns: the data source that Spark knows: its name, schema, reader and writers. Does not own: what those do.
Invariants: the schema is the table's current one (or the columns asked for, in the table's order of types).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceReader, DataSourceStreamArrowWriter
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from rootline.schemas.errors import Invalid
from rootline.spark.batch_reader import BatchReader
from rootline.spark.connection import guest_lake
from rootline.spark.options import SourceOptions, parse_options
from rootline.spark.writers import BatchWriter, StreamWriter
from rootline.storage.arrow_types import arrow_schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rootline.schemas.table_definition import TableDefinition


class RootlineDataSource(DataSource):
    """Register it with `spark.dataSource.register(rootline.spark.RootlineDataSource)`."""

    defaults: dict[str, str] = {}

    @classmethod
    def name(cls) -> str:
        """The name in `format(…)`."""
        return "rootline"

    @cached_property
    def _options(self) -> SourceOptions:
        return parse_options({**self.defaults, **dict(self.options)})

    @cached_property
    def _definition(self) -> TableDefinition:
        return guest_lake(self._options).table(self._options.table).definition()

    def schema(self) -> StructType:
        """The table's current schema, or those of its columns that option `columns` names, in that order."""
        whole = from_arrow_schema(arrow_schema_of(self._definition.schema))
        if self._options.columns is None:
            return whole
        unknown = [name for name in self._options.columns if name not in whole.names]
        if unknown:
            raise Invalid("filter-invalid", f"{self._options.table} has no column {', '.join(unknown)}")
        return StructType([whole[name] for name in self._options.columns])

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read of the columns in `schema`."""
        return BatchReader(self._options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """A batch write; `overwrite` replaces all rows."""
        return BatchWriter(self._options, self._definition.to_json(), overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """A streaming write in append mode."""
        if overwrite:
            raise Invalid("setting-invalid", "output mode 'complete' is not supported; use 'append'")
        return StreamWriter(self._options, self._definition.to_json())


def register(spark: SparkSession) -> None:
    """Register the data source, with `spark.rootline.warehouse` and `spark.rootline.log` of the session behind it."""
    names = {"warehouse": "spark.rootline.warehouse", "log": "spark.rootline.log"}
    found: dict[str, Any] = {option: spark.conf.get(name, None) for option, name in names.items()}
    defaults = {option: value for option, value in found.items() if value}
    if not defaults:
        spark.dataSource.register(RootlineDataSource)
        return
    spark.dataSource.register(type("RootlineDataSource", (RootlineDataSource,), {"defaults": defaults}))
