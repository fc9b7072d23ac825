"""`format("rootline")`: the data source that Spark knows.

Owns: its name, schema, readers and writers, the session's settings as defaults. Does not own: reads (`batch_reader`,
`change_stream`), writes (`source_writers`).
Invariants: a DataFrame is one version of the table, the head at `load` unless an option selects another. Its schema is
that version's, or the requested columns in their order. A process that plans a batch read imports neither writers nor
streams, because Spark has a Python process for each kind of work, and the first query waits for all their imports.
"""

from __future__ import annotations

import contextlib
import weakref
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pyiceberg.schema import Schema
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from rootline.client.session import Session
from rootline.client.time_travel import read_root_at
from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import TableDefinition
from rootline.spark.connection import TableAt, guest_lake
from rootline.spark.daemon import classic_context, use_this_python
from rootline.spark.options import SourceOptions, Use, absolute_warehouse, parse_options
from rootline.spark.spark_types import check_columns, check_types, spark_schema_of
from rootline.storage.metadata.root_reader import read_definition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from rootline.spark.batch_commit import MergedWrite

REPORTS_SETTING: Final = "spark.rootline.reportsTo"
"""The address to which commits of the session report. `rootline.spark.serve_metrics` sets it."""
_SESSION_SETTINGS: Final = {
    "warehouse": "spark.rootline.warehouse",
    "log": "spark.rootline.log",
    "caseSensitive": "spark.sql.caseSensitive",
    "reportsTo": REPORTS_SETTING,
}
_JOB_DESCRIPTION: Final = "spark.job.description"
_registered: Final[weakref.WeakSet[SparkSession]] = weakref.WeakSet()


class RootlineDataSource(DataSource):
    """The data source. Register it with `spark.dataSource.register(rootline.spark.RootlineDataSource)`, or with
    `register`.
    """

    defaults: dict[str, str] = {}

    @classmethod
    def name(cls) -> str:
        """The name in `format(…)`."""
        return "rootline"

    @cached_property
    def _options(self) -> SourceOptions:
        return parse_options({**self.defaults, **dict(self.options)})

    @cached_property
    def _table(self) -> TableAt:
        """The version to read, found once. Spark pickles it with this object after `schema`, so that it stays the
        same.
        """
        options = self._options

        async def operation(session: Session) -> TableAt:
            root = await read_root_at(session.store, options.table, options.point)
            header = root.header
            definition = (await read_definition(session.store, header)).to_json()
            return TableAt(header.version, definition, header.definition.digest)

        return guest_lake(options).holder.run(operation)

    def _whole(self) -> StructType:
        return spark_schema_of(TableDefinition.from_json(self._table.definition).schema)

    def _readable(self) -> StructType:
        """The table's columns, and the metadata columns, which are read only if named."""
        from rootline.storage.rows.metadata_columns import METADATA_COLUMNS, metadata_field

        definition, whole = TableDefinition.from_json(self._table.definition), self._whole()
        more = [metadata_field(name, definition) for name in METADATA_COLUMNS if name not in whole.names]
        hidden = [field for field in more if field is not None and getattr(field.field_type, "fields", True)]
        return StructType([*whole.fields, *spark_schema_of(Schema(*hidden)).fields])

    def schema(self) -> StructType:
        """The schema of the table, or the columns in the option `columns`, in that order."""
        if self._options.changes:
            return self._with_changes()
        if self._options.columns is None:
            return self._whole()
        readable = self._readable()
        unknown = [name for name in self._options.columns if name not in readable.names]
        if unknown:
            raise Invalid("column-unknown", f"{self._options.table} has no column {', '.join(unknown)}")
        return StructType([readable[name] for name in self._options.columns])

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read of the columns in `schema`, which may include metadata columns (`_file`, `_pos`, …)."""
        from rootline.spark.batch_reader import BatchReader, PushingReader

        options = self._options.checked_for(Use.READ)
        check_columns(schema, self._readable(), options.table)
        make = PushingReader if options.push_filters else BatchReader
        return make(options, self._table.version, self._table.definition, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream of added rows, or of all changes of rows, with the columns in `schema`."""
        from rootline.spark.change_stream import CHANGE_COLUMNS, ChangeStreamReader

        options = self._options.checked_for(Use.STREAM_READ)
        whole = self._whole()
        more = CHANGE_COLUMNS.fields if options.changes else []
        check_columns(schema, StructType([*whole.fields, *more]), options.table)
        return ChangeStreamReader(options, self._table.definition, schema)

    def _with_changes(self) -> StructType:
        """The requested columns, and those that describe the change of a row."""
        from rootline.spark.change_stream import CHANGE_COLUMNS

        whole = self._whole()
        taken = [name for name in CHANGE_COLUMNS.names if name in whole.names]
        if taken:
            raise Invalid("setting-invalid", f"{self._options.table} has a column {taken[0]!r} of its own: rename it")
        named = whole.names if self._options.columns is None else self._options.columns
        unknown = [name for name in named if name not in whole.names]
        if unknown:
            raise Invalid("column-unknown", f"{self._options.table} has no column {', '.join(unknown)}")
        return StructType([*(whole[name] for name in named), *CHANGE_COLUMNS.fields])

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """A batch write. `overwrite` replaces all rows unless an option selects them."""
        from rootline.spark.source_writers import BatchWriter, create_where_asked

        options = self._options.checked_for(Use.BATCH_WRITE)
        if options.replace_where is not None and not overwrite:
            raise Invalid("setting-invalid", "option 'replaceWhere' is for an overwrite only: add mode('overwrite')")
        check_types(schema, options.table)
        create_where_asked(options, schema)
        if options.replace_where is not None:  # before anything is written
            from rootline.tree.filter.filters import bind_filter

            bind_filter(options.replace_where, TableDefinition.from_json(self._table.definition).schema)
        return BatchWriter(options, self._table.definition, overwrite, self._checked_write(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """A streaming write in append mode."""
        from rootline.spark.source_writers import StreamWriter, create_where_asked

        if overwrite:
            raise Invalid("setting-invalid", "output mode 'complete' is not supported; use 'append'")
        options = self._options.checked_for(Use.STREAM_WRITE)
        check_types(schema, options.table)
        create_where_asked(options, schema)
        return StreamWriter(options, self._table.definition, self._checked_write(schema, overwrite))

    def _checked_write(self, schema: StructType, overwrite: bool) -> MergedWrite | None:
        from rootline.spark.source_writers import checked_write

        return checked_write(schema, self._table, self._options, overwrite=overwrite)


def session_defaults(spark: SparkSession) -> dict[str, str]:
    """Options from the session's settings, as defaults.

    A relative path also becomes absolute in the session.
    """
    found = {option: spark.conf.get(setting, None) for option, setting in _SESSION_SETTINGS.items()}
    defaults = {option: value for option, value in found.items() if value}
    given = defaults.get("warehouse")
    if given is not None and absolute_warehouse(given) != given:
        defaults["warehouse"] = absolute_warehouse(given)
        spark.conf.set(_SESSION_SETTINGS["warehouse"], defaults["warehouse"])
    return defaults


def register(spark: SparkSession) -> None:
    """Register the data source. The session's `spark.rootline.*` settings are the defaults of its options.

    The settings are read here, so set them before. Call it again in each of your threads that writes with
    `frame.write.format("rootline")`. If the master is local and neither `spark.pyspark.python` nor `PYSPARK_PYTHON` is
    set, Spark's Python workers run the Python of this process. They then start with the library imported, unless
    `spark.python.daemon.module` is set.
    """
    use_this_python(spark)
    _make_active(spark)
    defaults = session_defaults(spark)
    _registered.add(spark)
    if not defaults:
        spark.dataSource.register(RootlineDataSource)
        return
    spark.dataSource.register(type("RootlineDataSource", (RootlineDataSource,), {"defaults": defaults}))


def ensure_registered(spark: SparkSession) -> None:
    """Register the data source unless `register` did, and make it available in this thread."""
    if spark not in _registered:
        register(spark)
    _make_active(spark)


def _make_active(spark: SparkSession) -> None:
    """Make the session active in this thread. A write finds its source in the active session, which new threads
    lack.
    """
    java = getattr(spark, "_jvm", None)
    if java is not None:
        java.SparkSession.setActiveSession(spark._jsparkSession)


def local_property(spark: SparkSession, name: str) -> str | None:
    """A property of this thread's jobs. `None`: it is not set, or the session is one of Spark Connect."""
    context = classic_context(spark)
    return None if context is None else context.getLocalProperty(name)


@contextlib.contextmanager
def described_jobs(spark: SparkSession, text: str) -> Iterator[None]:
    """Describe this thread's jobs in Spark's UI, unless the user or a streaming query has described them."""
    context = classic_context(spark)
    if context is None or context.getLocalProperty(_JOB_DESCRIPTION):
        yield
        return
    context.setJobDescription(text)
    try:
        yield
    finally:
        context.setLocalProperty(_JOB_DESCRIPTION, None)  # type: ignore[arg-type]  # removes it
