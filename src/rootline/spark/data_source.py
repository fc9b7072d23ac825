"""`format("rootline")`: the data source that Spark knows, its writers, and the option `createTable`.

Owns: its name, schema, readers and writers, the name of a batch, creating the table of a first write. Does not own:
reads (`batch_reader`, `change_stream`), files (`file_sink`), commits (`batch_commit`).
Invariants: a DataFrame is one version of the table, the head at `load` unless an option selects another. Its schema is
that version's, or the requested columns in their order. Writers are picklable, and `commit` may run on a fresh copy in
another process. A stream's batch is named by the query's id (or `writerId`) and its batch id, so that a replay commits
once. `abort` deletes nothing, because Spark calls it even when `commit` has already published.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pyiceberg.schema import Schema
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from rootline.client.session import Session
from rootline.client.time_travel import read_root_at
from rootline.schemas.errors import Invalid, Unavailable
from rootline.schemas.table_definition import TableDefinition
from rootline.spark.batch_commit import QUERY_WRITER_PREFIX, MergedWrite, WrittenBatch, commit_append, commit_overwrite
from rootline.spark.batch_reader import BatchReader, PushingReader
from rootline.spark.change_stream import CHANGE_COLUMNS, ChangeStreamReader
from rootline.spark.connection import committing_lake, guest_lake
from rootline.spark.daemon import use_this_python
from rootline.spark.file_sink import FilesWritten, check_keys, check_upsert, write_task
from rootline.spark.options import SourceOptions, Use, absolute_warehouse, parse_options
from rootline.spark.spark_types import (
    arrow_schema_for_spark,
    as_table_names,
    check_columns,
    check_fit,
    check_types,
    spark_schema_of,
)
from rootline.storage.metadata.root_reader import read_definition, root_if_readable
from rootline.storage.rows.metadata_columns import METADATA_COLUMNS, metadata_field
from rootline.tree.filter.filters import bind_filter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_GONE: Final = ("table-unknown", "table-dropped")


def create_where_asked(options: SourceOptions, schema: StructType) -> None:
    """Create the table, empty, if the options ask for it and it does not exist. Rows are added when the write
    commits.

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
                arrow_schema_for_spark(schema.toNullable()),  # as in tables that Spark creates
                partition_by=options.partitioned_by,
                sort_by=options.sorted_by,
                timeout_s=options.verdict_timeout_ms / 1000,
            )
        except Invalid as error:
            if error.code != "table-exists":  # created concurrently: the rows must fit that table
                raise


def _is_there(options: SourceOptions) -> bool:
    async def operation(session: Session) -> bool:
        try:
            await root_if_readable(session.store, options.table)
        except Invalid as error:
            if error.code in _GONE:
                return False
            raise
        return True

    try:
        return guest_lake(options).holder.run(operation)
    except Unavailable:  # the warehouse's folder does not exist yet; after any other error the create fails too
        return False


Messages = Sequence[WriterCommitMessage | None]


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("rootline").mode("append" | "overwrite").save("namespace.table")`."""

    def __init__(
        self, options: SourceOptions, definition: bytes, overwrite: bool, merged: MergedWrite | None = None
    ) -> None:
        self._options = options
        self._definition = definition if merged is None else merged.definition
        self._overwrite = overwrite
        self._merged = merged

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write files, on an executor."""
        return _written_by_task(iterator, self._definition, self._options)

    def commit(self, messages: Messages) -> None:
        """Publish one intent and wait for its verdict, on the driver."""
        options, definition = self._options, TableDefinition.from_json(self._definition)
        nothing = FilesWritten((), definition.table_uuid, definition.current_schema_id)
        batch = WrittenBatch.of([nothing, *_written(messages)], options.writer_id, options.writer_sequence)
        _check_keys(options, messages)
        if self._overwrite:
            commit_overwrite(batch, definition, options, self._merged)
        else:
            commit_append(batch, definition, options, self._merged)

    def abort(self, messages: Messages) -> None:
        """Do nothing: files that no intent names are orphans for the sweep."""


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("rootline").option("checkpointLocation", …).start("namespace.table")`."""

    def __init__(self, options: SourceOptions, definition: bytes, merged: MergedWrite | None = None) -> None:
        self._options = options
        self._definition = definition if merged is None else merged.definition
        self._merged = merged

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write files, on an executor."""
        return _written_by_task(iterator, self._definition, self._options)

    def commit(self, messages: Messages, batchId: int) -> None:
        """Publish one intent under (query, batch) and wait for its verdict, on the driver."""
        written = [message for message in _written(messages) if message.files]
        if written:
            _check_keys(self._options, written)
            batch = WrittenBatch.of(written, self._writer_id(written), batchId)
            commit_append(batch, TableDefinition.from_json(self._definition), self._options, self._merged)

    def abort(self, messages: Messages, batchId: int) -> None:
        """Do nothing: the intent with its files may have been published already."""

    def _writer_id(self, written: Sequence[FilesWritten]) -> str:
        query_id = next((message.query_id for message in written if message.query_id), None)
        if self._options.writer_id is not None:
            return self._options.writer_id
        if query_id is None:
            raise Invalid(
                "setting-invalid", f"{self._options.table}: Spark provides no id of the query: set option 'writerId'"
            )
        return f"{QUERY_WRITER_PREFIX}{query_id}"


def _written_by_task(batches: Iterator[pa.RecordBatch], definition: bytes, options: SourceOptions) -> FilesWritten:
    table = TableDefinition.from_json(definition)
    is_case_sensitive = options.case_sensitive
    named = (as_table_names(batch, table.schema, is_case_sensitive=is_case_sensitive) for batch in batches)
    return write_task(named, table, options)


def _written(messages: Messages) -> list[FilesWritten]:
    return [message for message in messages if isinstance(message, FilesWritten)]


def _check_keys(options: SourceOptions, messages: Messages) -> None:
    """Check an upsert. Raises `Invalid` (`rows-invalid`): a key is in the batch twice."""
    check_keys(options.table, [message.keys for message in _written(messages) if message.keys is not None])


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


@dataclass(frozen=True, slots=True)
class TableAt:
    """One version of a table, with the definition to read it by. `digest`: of the definition's object."""

    version: int
    definition: bytes
    digest: bytes


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
        options = self._options.checked_for(Use.READ)
        check_columns(schema, self._readable(), options.table)
        make = PushingReader if options.push_filters else BatchReader
        return make(options, self._table.version, self._table.definition, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream of added rows, or of all changes of rows, with the columns in `schema`."""
        options = self._options.checked_for(Use.STREAM_READ)
        whole = self._whole()
        more = CHANGE_COLUMNS.fields if options.changes else []
        check_columns(schema, StructType([*whole.fields, *more]), options.table)
        return ChangeStreamReader(options, self._table.definition, schema)

    def _with_changes(self) -> StructType:
        """The requested columns, and those that describe the change of a row."""
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
        options = self._options.checked_for(Use.BATCH_WRITE)
        if options.replace_where is not None and not overwrite:
            raise Invalid("setting-invalid", "option 'replaceWhere' is for an overwrite only: add mode('overwrite')")
        check_types(schema, options.table)
        create_where_asked(options, schema)
        if options.replace_where is not None:  # before anything is written
            bind_filter(options.replace_where, TableDefinition.from_json(self._table.definition).schema)
        self._check_upsert(overwrite=overwrite)
        return BatchWriter(options, self._table.definition, overwrite, self._merged(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """A streaming write in append mode."""
        if overwrite:
            raise Invalid("setting-invalid", "output mode 'complete' is not supported; use 'append'")
        options = self._options.checked_for(Use.STREAM_WRITE)
        check_types(schema, options.table)
        create_where_asked(options, schema)
        self._check_upsert(overwrite=False)
        return StreamWriter(options, self._table.definition, self._merged(schema))

    def _check_upsert(self, *, overwrite: bool) -> None:
        if self._options.upsert:
            if overwrite:
                raise Invalid("setting-invalid", "option 'upsert' has no meaning for an overwrite: use mode('append')")
            check_upsert(self._options.table, TableDefinition.from_json(self._table.definition))

    def _merged(self, schema: StructType) -> MergedWrite | None:
        """The changes of the table by a write with `mergeSchema`. Raises `Invalid`: the rows do not fit."""
        options, merged = self._options, merged_write(schema, self._table, self._options)
        definition = TableDefinition.from_json(self._table.definition if merged is None else merged.definition)
        check_fit(schema, definition, options.table, is_case_sensitive=options.case_sensitive)
        return merged


def merged_write(rows: StructType, table: TableAt, options: SourceOptions) -> MergedWrite | None:
    """The changes of `table` that rows with these columns need, or `None` without the option `mergeSchema`.

    Raises:
        Invalid: `definition-invalid` or `evolution-illegal`, naming the column.
    """
    if not options.merge_schema:
        return None
    by_case = options.case_sensitive
    return MergedWrite.planned(options.table, rows, table.definition, table.digest, is_case_sensitive=by_case)


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
    return None if getattr(spark, "_jvm", None) is None else spark.sparkContext.getLocalProperty(name)


@contextlib.contextmanager
def described_jobs(spark: SparkSession, text: str) -> Iterator[None]:
    """Describe this thread's jobs in Spark's UI, unless the user or a streaming query has described them."""
    if getattr(spark, "_jvm", None) is None or local_property(spark, _JOB_DESCRIPTION):
        yield
        return
    spark.sparkContext.setJobDescription(text)
    try:
        yield
    finally:
        spark.sparkContext.setLocalProperty(_JOB_DESCRIPTION, None)  # type: ignore[arg-type]  # removes it
