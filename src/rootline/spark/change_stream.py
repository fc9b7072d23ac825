"""`spark.readStream.format("rootline")`: a table's commits as micro-batches.

Owns: offsets, the size of a trigger's micro-batch, its partitions. Does not own: the changes of a version and their
rows (`changed_rows`).
Invariants: an offset is a version of one table that was read to its end, or a number of files of the initial content.
The rows between two offsets are the same in every read. A commit is never split between micro-batches. An expired
version that was not read is an error, never skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
from pyiceberg.schema import index_by_id
from pyiceberg.types import NestedField
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from rootline.client.session import Session
from rootline.client.time_travel import PointInTime, read_head, resolve
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.table_definition import TableDefinition
from rootline.spark.batch_reader import PARTITION_BYTES
from rootline.spark.changed_rows import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    ChangedFile,
    ChangeReading,
    VersionChange,
    check_unread,
    content_of,
    version_change,
)
from rootline.spark.connection import guest_lake
from rootline.spark.options import OnDeletedRows, SourceOptions
from rootline.spark.spark_types import arrow_schema_for_spark, batch_for_spark
from rootline.storage.metadata.root_reader import read_definition

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:  # Spark 4.1 has no limits for streams
        SupportsTriggerAvailableNow = object

CHANGE_COLUMNS: Final = spark.StructType(
    [
        spark.StructField(CHANGE_TYPE, spark.StringType(), False),
        spark.StructField(COMMIT_VERSION, spark.LongType(), False),
        spark.StructField(COMMIT_TIMESTAMP, spark.TimestampType(), False),
    ]
)
_Result = TypeVar("_Result")
_LATEST: Final = "latest"
_WHOLE: Final = -1
_FILE_OPEN_COST_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Offset:
    """The progress of a stream: it has read `version` of the table with `uuid`, or the first `files` files of its
    content.
    """

    uuid: str
    version: int
    files: int = _WHOLE

    @staticmethod
    def of(found: Mapping[str, Any]) -> Offset:
        """An offset from a checkpoint. Raises `Invalid` (`setting-invalid`)."""
        try:
            return Offset(str(found["table"]), int(found["version"]), int(found["files"]))
        except (KeyError, TypeError, ValueError) as error:
            raise Invalid(
                "setting-invalid", f"{str(found)[:200]} is not an offset of a Rootline stream: use a new checkpoint"
            ) from error

    def as_dict(self) -> dict[str, Any]:
        """The offset in Spark's form."""
        return {"table": self.uuid, "version": self.version, "files": self.files}


@dataclass
class ChangePartition(InputPartition):
    """A partition: changes, each of one version, with the definition to read them by."""

    changes: tuple[VersionChange, ...]
    definition: bytes


@dataclass(frozen=True, slots=True)
class _Amount:
    """A number of files, rows and bytes. The limit of a micro-batch restricts one of them."""

    files: int = 0
    rows: int = 0
    bytes: int = 0

    def plus(self, files: Sequence[ChangedFile]) -> _Amount:
        rows = self.rows + sum(file.data.record_count for file in files)
        return _Amount(self.files + len(files), rows, self.bytes + sum(file.size for file in files))


class ChangeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of changes. The driver plans. `read` runs on executors, on a pickled copy."""

    def __init__(self, options: SourceOptions, definition: bytes, wanted: spark.StructType) -> None:
        self.options = options
        self.definition = definition
        self.wanted = wanted
        self._last: int | None = None
        """The version at which a query with `availableNow` ends."""
        self._known: dict[tuple[int, bool], VersionChange] = {}
        """Changes that were planned for a limit, and are needed again for partitions."""

    def __reduce__(self) -> tuple[Any, ...]:
        return ChangeStreamReader, (self.options, self.definition, self.wanted)

    def initialOffset(self) -> dict[str, Any]:
        """The offset of a new query: before the content, or before the starting version."""
        return self._run(self._first_offset).as_dict()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit in the options, which contain at most one."""
        from pyspark.sql.streaming import datasource

        options = self.options
        if options.max_files_per_trigger is not None:
            return datasource.ReadMaxFiles(options.max_files_per_trigger)
        if options.max_rows_per_trigger is not None:
            return datasource.ReadMaxRows(options.max_rows_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return datasource.ReadMaxBytes(options.max_bytes_per_trigger)
        return datasource.ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """The end of the next micro-batch: at least one commit, if there is one, and no more than `limit`."""
        if start is None:  # Spark 4.1 does not pass its progress
            return self._run(self._newest).as_dict()
        begin = Offset.of(start)
        is_within = _within(limit)
        return self._run(lambda session: self._end_of_batch(session, begin, is_within)).as_dict()

    def prepareForTriggerAvailableNow(self) -> None:
        """End the query at the version that is the newest now."""
        self._last = self._run(self._newest).version

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The newest version, with the table's name, for the query's progress and `stream_metrics`."""
        return {**self._run(self._newest).as_dict(), "name": str(self.options.table)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The changes after `start` and up to `end`, in partitions of about 128 MiB."""
        begin, last = Offset.of(start), Offset.of(end)
        return self._run(lambda session: self._planned(session, begin, last))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition, as Arrow batches in Spark's own types."""
        assert isinstance(partition, ChangePartition)
        names = [name for name in self.wanted.names if name not in CHANGE_COLUMNS.names]
        pinned = TableDefinition.from_json(self.definition)
        fields = tuple(_field(pinned, name) for name in names)
        shows_changes = self.options.changes
        keys = tuple(field for field in pinned.schema.fields if field.field_id in pinned.schema.identifier_field_ids)
        has_keys = len(keys) == len(pinned.schema.identifier_field_ids)  # identifiers inside structs are ignored
        definition = TableDefinition.from_json(partition.definition)
        others = (field for field in pinned.schema.fields if field not in fields)
        more = tuple(field.model_copy(update={"required": False}) for field in others)  # older rows may lack them
        reading = ChangeReading(self.options.table, definition, fields, more, keys if has_keys else (), shows_changes)
        target = arrow_schema_for_spark(self.wanted)
        holder = guest_lake(self.options).holder
        for change in partition.changes:
            for changed in holder.iterate(partial(reading.rows, change=change)):
                yield batch_for_spark(self._with_change(changed.rows, changed.kinds, change, names), target)

    def commit(self, end: dict[str, Any]) -> None:
        """Drop cached plans for versions before that of `end`. The query has processed them."""
        done = Offset.of(end).version
        self._known = {key: change for key, change in self._known.items() if key[0] >= done}

    def _with_change(
        self, rows: pa.RecordBatch, kinds: pa.Array, change: VersionChange, names: Sequence[str]
    ) -> pa.RecordBatch:
        """The columns that Spark wants, in its order."""
        more = {
            CHANGE_TYPE: kinds,
            COMMIT_VERSION: pa.repeat(pa.scalar(change.version, pa.int64()), len(rows)),
            COMMIT_TIMESTAMP: pa.repeat(pa.scalar(1000 * change.timestamp_ms, pa.timestamp("us", "UTC")), len(rows)),
        }
        found = dict(zip(names, rows.columns, strict=True))
        columns = [found[name] if name in found else more[name] for name in self.wanted.names]
        return pa.RecordBatch.from_arrays(columns, names=self.wanted.names)

    def _run(self, operation: Callable[[Session], Coroutine[Any, Any, _Result]]) -> _Result:
        return guest_lake(self.options).holder.run(operation)

    async def _head(self, session: Session, uuid: str | None = None) -> Root:
        head = await read_head(session.store, self.options.table)
        if uuid is not None and str(head.header.table_uuid) != uuid:
            raise Invalid(
                "table-uuid-mismatch",
                f"{self.options.table} was dropped and created again since the stream read it: start a new query, with "
                "a checkpoint of its own",
            )
        return head

    async def _first_offset(self, session: Session) -> Offset:
        head = await self._head(session)
        uuid, newest = str(head.header.table_uuid), int(head.header.version)
        options = self.options
        if options.starting_timestamp is not None:
            return Offset(uuid, await self._version_before(session, head, options.starting_timestamp))
        if options.starting_version is None:
            return Offset(uuid, newest, 0)
        if options.starting_version == _LATEST:
            return Offset(uuid, newest)
        first = int(options.starting_version)
        if first > newest + 1:
            raise Invalid("version-unknown", f"{options.table}: version {first} does not exist. The newest is {newest}")
        check_unread(head, first, newest)
        return Offset(uuid, first - 1)

    async def _version_before(self, session: Session, head: Root, moment_ms: int) -> int:
        """The newest version before `moment_ms`, or -1 if all versions are newer."""
        table = self.options.table
        try:
            return int(await resolve(session.store, table, head, PointInTime(timestamp=moment_ms - 1)))
        except Invalid as error:
            if error.code == "version-unknown" and head.header.versions.oldest == 0:
                return -1
            raise

    async def _newest(self, session: Session) -> Offset:
        head = (await self._head(session)).header
        return Offset(str(head.table_uuid), int(head.version))

    async def _end_of_batch(self, session: Session, begin: Offset, is_within: Callable[[_Amount], bool]) -> Offset:
        head = await self._head(session, begin.uuid)
        newest = int(head.header.version)
        last = newest if self._last is None else min(newest, max(self._last, begin.version))
        taken = _Amount()
        if begin.files != _WHOLE:
            content = await self._change(session, begin.version, is_content=True)
            for at, file in enumerate(content.files[begin.files :]):
                taken = taken.plus([file])
                if at and not is_within(taken):
                    return replace(begin, files=begin.files + at)
            return replace(begin, files=_WHOLE)
        check_unread(head, begin.version + 1, last)
        if is_within(_EVERYTHING):
            return replace(begin, version=max(last, begin.version))
        for version in range(begin.version + 1, last + 1):
            taken = taken.plus((await self._change(session, version)).files)
            if version > begin.version + 1 and not is_within(taken):
                return replace(begin, version=version - 1)
        return replace(begin, version=max(last, begin.version))

    async def _planned(self, session: Session, begin: Offset, end: Offset) -> list[InputPartition]:
        if begin == end:
            return []
        head = await self._head(session, begin.uuid)
        found: list[VersionChange] = []
        if begin.files != _WHOLE:
            content = await self._change(session, begin.version, is_content=True)
            upto = end.files if end.version == begin.version and end.files != _WHOLE else len(content.files)
            found.append(replace(content, files=content.files[begin.files : upto]))
        check_unread(head, begin.version + 1, end.version)
        for version in range(begin.version + 1, end.version + 1):
            found.append(self._checked(await self._change(session, version)))
        definition = await read_definition(session.store, head.header)
        _check_types(self.options.table, TableDefinition.from_json(self.definition), definition)
        return [ChangePartition(changes, definition.to_json()) for changes in _packed(found)]

    async def _change(self, session: Session, version: int, *, is_content: bool = False) -> VersionChange:
        known = self._known.get((version, is_content))
        if known is None:
            plan = content_of if is_content else version_change
            known = self._known[version, is_content] = await plan(session, self.options.table, version)
        return known

    def _checked(self, change: VersionChange) -> VersionChange:
        if self.options.changes or not change.takes_rows_away:
            return change
        if self.options.on_deleted_rows is OnDeletedRows.FAIL:
            raise Invalid(
                "stream-rows-deleted",
                f"{self.options.table}: version {change.version} deleted or changed rows, which a stream of appended "
                "rows cannot show: read with option changes=true, or leave them out with onDeletedRows=skip",
            )
        return change


_EVERYTHING: Final = _Amount(1 << 62, 1 << 62, 1 << 62)


def _within(limit: ReadLimit | None) -> Callable[[_Amount], bool]:
    """A predicate that is true for amounts within `limit`."""
    files, rows = getattr(limit, "max_files", None), getattr(limit, "max_rows", None)
    size = getattr(limit, "max_bytes", None)

    def is_within(amount: _Amount) -> bool:
        pairs = ((amount.files, files), (amount.rows, rows), (amount.bytes, size))
        return all(most is None or taken <= most for taken, most in pairs)

    return is_within


def _check_types(table: TableName, pinned: TableDefinition, now: TableDefinition) -> None:
    """Raise `Invalid` (`definition-changed`) if a column has a wider type since the query started."""
    before, after = (index_by_id(definition.schema) for definition in (pinned, now))
    for field_id, field in before.items():
        other = after.get(field_id, field)
        if field.field_type.is_primitive and other.field_type != field.field_type:
            raise Invalid(
                "definition-changed",
                f"{table}: column {other.name} is a {other.field_type} now, and was a {field.field_type} when the "
                "query started: start the query again, with the same checkpoint",
            )


def _field(definition: TableDefinition, name: str) -> NestedField:
    return next(field for field in definition.schema.fields if field.name == name)


def _packed(changes: Sequence[VersionChange]) -> Iterator[tuple[VersionChange, ...]]:
    """Changes in order, in groups of about 128 MiB. A version that removes rows is never split, because both
    images of an updated row must be read together.
    """
    held: list[VersionChange] = []
    size = 0
    for change in changes:
        for piece in [change] if change.takes_rows_away else (replace(change, files=(file,)) for file in change.files):
            if held and not change.takes_rows_away and held[-1].version == change.version:
                held[-1] = replace(held[-1], files=(*held[-1].files, *piece.files))
            elif piece.files:
                held.append(piece)
            size += sum(max(file.size, _FILE_OPEN_COST_BYTES) for file in piece.files)
            if size >= PARTITION_BYTES:
                yield tuple(held)
                held, size = [], 0
    if held:
        yield tuple(held)
