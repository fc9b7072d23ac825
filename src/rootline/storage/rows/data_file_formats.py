"""The content of a data file or delete file, opened by its format: Parquet, Avro or ORC.

Owns: the choice of the format, Avro blocks and ORC stripes as Arrow columns, refusing a file that cannot be read
reliably. Does not own: Parquet (`parquet_file`), the blocks of an Avro file (`foreign_avro`), the meaning of columns
(`row_projection`), fetching (`stored_rows`).
Invariants: the entry's `file_format` decides, never the suffix. An encrypted file is refused by name. Rows are in the
file's order, and complete, or an error is raised. Avro values are read in their stored form (days, microseconds,
unscaled decimals), so no library's calendar limits them. An Avro union of several types is refused if its column is
read, never read as absent. ORC columns are matched by `iceberg.id`. ORC timestamps are refused: a timestamp without a
zone is shifted by the writer's time zone, and both kinds are read as nanoseconds, which are limited to the years 1677
to 2262.

Source: the Iceberg specification, Appendix A (Avro, ORC).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa
from pyiceberg.types import NestedField

from rootline.schemas.content_entry import ContentEntry, FileFormat
from rootline.schemas.errors import Corrupt, Invalid
from rootline.storage.rows.arrow_types import FIELD_ID_KEY, rows_without_columns
from rootline.storage.rows.parquet_file import BATCH_ROWS, STREAMED, ParquetRows, Portion, Run, Source, open_parquet

if TYPE_CHECKING:
    from pyarrow import orc

    from rootline.schemas.bytes.foreign_avro import ForeignAvro

_PLAIN: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_LOGICAL: Final = {
    ("int", "date"): pa.date32(),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-micros"): pa.timestamp("us"),
    ("long", "timestamp-nanos"): pa.timestamp("ns"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}


@dataclass(frozen=True, slots=True)
class _Column:
    """A field of a record. `build` makes an array of its values, or is `None` if its type is not supported."""

    field: pa.Field
    build: Callable[[list[Any]], pa.Array] | None


@dataclass(frozen=True, slots=True)
class AvroRows:
    """An open Avro file. `name` is its name in errors."""

    file: ForeignAvro
    name: str
    columns: Mapping[str, _Column]
    row_count: int

    @staticmethod
    def of(body: bytes | pa.Buffer, name: str) -> AvroRows:
        """The file in `body`. Raises `Invalid` (`file-unreadable`) if it is not an Avro file of records."""
        from rootline.schemas.bytes.foreign_avro import BROKEN, ForeignAvro

        try:
            file = ForeignAvro.of(bytes(body))
            columns = {column.field.name: column for column in map(_column, file.schema["fields"])}
            return AvroRows(file, name, columns, file.count)
        except BROKEN as error:
            raise Invalid("file-unreadable", f"{name}: is not a readable Avro file: {error!s:.200}") from error

    @property
    def schema(self) -> pa.Schema:
        """Columns with their field ids."""
        return pa.schema([column.field for column in self.columns.values()])

    def batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """The rows of `columns`, block by block. Raises `Invalid` (`file-unreadable`) for unsupported types."""
        from rootline.schemas.bytes.foreign_avro import BROKEN

        wanted = [self.columns[name] for name in columns]
        for column in wanted:
            if column.build is None:
                reason = "its Avro type is not supported"
                raise Invalid("file-unreadable", f"{self.name}: column {column.field.name}: {reason}")
        schema = pa.schema([column.field for column in wanted])
        try:
            for rows in self.file.blocks():
                arrays = [column.build([row[column.field.name] for row in rows]) for column in wanted if column.build]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        except BROKEN as error:
            raise Corrupt("data-file-corrupt", f"{self.name}: cannot be decoded: {error!s:.200}") from error


def _column(field: Mapping[str, Any]) -> _Column:
    metadata = {FIELD_ID_KEY: str(int(field["field-id"])).encode()} if "field-id" in field else None
    kind, is_optional = field["type"], False
    if isinstance(kind, list):
        is_optional, choices = "null" in kind, [choice for choice in kind if choice != "null"]
        kind = choices[0] if len(choices) == 1 else None
    arrow, build = _kind(kind)
    if build is None:
        return _Column(pa.field(field["name"], pa.null(), metadata=metadata), None)
    return _Column(pa.field(field["name"], arrow, nullable=is_optional, metadata=metadata), build)


def _kind(schema: Any) -> tuple[pa.DataType, Callable[[list[Any]], pa.Array] | None]:
    """The Arrow type of an Avro type, and the function that makes its arrays."""
    full = schema if isinstance(schema, dict) else {"type": schema}
    kind, logical = full.get("type"), full.get("logicalType")
    if kind == "record":
        return _struct([_column(field) for field in full["fields"]])
    if kind == "map":
        return _map(
            *(_column({"name": name, "type": of}) for name, of in (("key", "string"), ("value", full["values"])))
        )
    if kind == "array" and logical == "map":
        return _map(*map(_column, full["items"]["fields"]))
    if kind == "array":
        return _list(_column({"name": "element", "type": full["items"]} | _element_id(full)))
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return _decimal(int(full["precision"]), int(full.get("scale", 0)))
    if kind == "fixed":
        return _simple(pa.binary(int(full["size"])))
    if not isinstance(kind, str) or kind not in _PLAIN:
        return pa.null(), None
    known = _LOGICAL.get((kind, str(logical)))
    if known is not None:
        is_moment = pa.types.is_timestamp(known) and full.get("adjust-to-utc")
        return _stored_as(pa.timestamp(known.unit, "UTC") if is_moment else known, _PLAIN[kind])
    if logical not in (None, "uuid"):
        return pa.null(), None
    return _simple(_PLAIN[kind])


def _element_id(array: Mapping[str, Any]) -> dict[str, Any]:
    return {"field-id": array["element-id"]} if "element-id" in array else {}


def _simple(kind: pa.DataType) -> tuple[pa.DataType, Callable[[list[Any]], pa.Array]]:
    return kind, lambda values: pa.array(values, kind)


def _stored_as(kind: pa.DataType, plain: pa.DataType) -> tuple[pa.DataType, Callable[[list[Any]], pa.Array]]:
    return kind, lambda values: pa.array(values, plain).view(kind)


def _decimal(precision: int, scale: int) -> tuple[pa.DataType, Callable[[list[Any]], pa.Array]]:
    kind = pa.decimal128(precision, scale)

    def value(stored: bytes | None) -> Decimal | None:
        if stored is None:
            return None
        unscaled = int.from_bytes(stored, "big", signed=True)
        return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))

    return kind, lambda values: pa.array([value(stored) for stored in values], kind)


def _struct(members: Sequence[_Column]) -> tuple[pa.DataType, Callable[[list[Any]], pa.Array] | None]:
    if any(member.build is None for member in members):
        return pa.null(), None
    fields = [member.field.with_nullable(True) for member in members]

    def build(values: list[Any]) -> pa.Array:
        children = [
            member.build([None if value is None else value[member.field.name] for value in values])
            for member in members
            if member.build is not None
        ]
        return pa.StructArray.from_arrays(children, fields=fields, mask=pa.array([value is None for value in values]))

    return pa.struct(fields), build


def _map(key: _Column, value: _Column) -> tuple[pa.DataType, Callable[[list[Any]], pa.Array] | None]:
    """A map from an Avro map, or from an array of pairs, which Iceberg writes for keys that are not strings."""
    keys_of, values_of = key.build, value.build
    if keys_of is None or values_of is None:
        return pa.null(), None
    kind = pa.map_(key.field.type, value.field.type)

    def build(values: list[Any]) -> pa.Array:
        pairs = [
            list(held.items()) if isinstance(held, dict) else [(pair["key"], pair["value"]) for pair in held or ()]
            for held in values
        ]
        offsets = [0]
        for of_row in pairs:
            offsets.append(offsets[-1] + len(of_row))
        keys = keys_of([pair[0] for of_row in pairs for pair in of_row])
        items = values_of([pair[1] for of_row in pairs for pair in of_row])
        absent = pa.array([held is None for held in values])
        return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items, type=kind, mask=absent)

    return kind, build


def _list(element: _Column) -> tuple[pa.DataType, Callable[[list[Any]], pa.Array] | None]:
    inner = element.build
    if inner is None:
        return pa.null(), None
    kind = pa.list_(element.field.with_nullable(True))

    def build(values: list[Any]) -> pa.Array:
        offsets = [0]
        for value in values:
            offsets.append(offsets[-1] + len(value or ()))
        items = inner([item for value in values for item in value or ()])
        absent = pa.array([value is None for value in values])
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items, type=kind, mask=absent)

    return kind, build


_SLICE_ROWS: Final = 65_536


@dataclass(frozen=True, slots=True)
class OrcRows:
    """An open ORC file. `name` is its name in errors."""

    file: orc.ORCFile
    name: str

    @staticmethod
    def of(body: bytes | pa.Buffer, name: str) -> OrcRows:
        """The file in `body`. Raises `Invalid` (`file-unreadable`) if it is not an ORC file."""
        from pyarrow import orc

        try:
            return OrcRows(orc.ORCFile(pa.BufferReader(body)), name)
        except (pa.ArrowException, OSError) as error:
            raise Invalid("file-unreadable", f"{name}: is not an ORC file: {error}") from error

    @property
    def row_count(self) -> int:
        """The number of rows in the footer."""
        count: int = self.file.nrows
        return count

    @property
    def schema(self) -> pa.Schema:
        """Columns with their `iceberg.id`."""
        return self.file.schema

    def batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `columns`, stripe by stripe. Raises `Invalid` (`file-unreadable`) for timestamp columns."""
        schema = self.schema
        for column in columns:
            if _holds_timestamp(schema.field(column).type):
                raise Invalid("file-unreadable", f"{self.name}: column {column}: ORC timestamps are not supported")
        for stripe in range(self.file.nstripes):
            try:
                rows = self.file.read_stripe(stripe, columns=columns)
                rows.validate(full=True)
            except (pa.ArrowException, OSError) as error:
                raise Corrupt("data-file-corrupt", f"{self.name}: cannot be decoded: {error}") from error
            for start in range(0, rows.num_rows, _SLICE_ROWS):
                yield rows.slice(start, _SLICE_ROWS)


def _holds_timestamp(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return True
    return any(_holds_timestamp(kind.field(at).type) for at in range(kind.num_fields))


@dataclass(frozen=True, slots=True)
class StatedRows:
    """Stands for a file of which no column is read. Its entry states the number of rows, so it is not opened."""

    row_count: int

    @property
    def schema(self) -> pa.Schema:
        """No columns."""
        return pa.schema([])

    def batches(self, _columns: list[str]) -> Iterator[pa.RecordBatch]:
        """The rows, without columns."""
        return _empty_batches(self.row_count)


class OpenFile(Protocol):
    """An open data file or delete file."""

    @property
    def row_count(self) -> int:
        """The number of rows that the file itself states, for instance in its footer."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The file's columns, with field ids in the metadata if it has any."""
        ...

    def batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield the top-level columns of these names, for all rows in order. Raises `Corrupt` (`data-file-corrupt`)."""
        ...


def refuse_unreadable(entry: ContentEntry) -> None:
    """Raise `Invalid` (`file-unreadable`) if the file is encrypted or of a format without rows."""
    if entry.key_metadata is not None:
        raise Invalid("file-unreadable", f"{entry.location}: encrypted files are not supported (it has key metadata)")
    if entry.file_format not in _READERS:
        raise Invalid("file-unreadable", f"{entry.location}: files of format {entry.file_format} contain no rows")


def open_data_file(source: Source, entry: ContentEntry) -> OpenFile:
    """Open the file of `entry`, whose bytes are in `source`. Unless it is Parquet, it is in memory whole.

    Raises:
        Corrupt: `data-file-corrupt`, it states another number of rows than its entry.
        Invalid: `file-unreadable`.
    """
    refuse_unreadable(entry)
    file = _READERS[entry.file_format](source, entry.location)
    if file.row_count != entry.record_count:
        reason = f"has {file.row_count} rows, its entry states {entry.record_count}"
        raise Corrupt("data-file-corrupt", f"{entry.location}: {reason}")
    return file


def all_rows(
    file: OpenFile, entry: ContentEntry, fields: Iterable[NestedField], place_of: Callable[[NestedField], int | None]
) -> Iterator[pa.RecordBatch]:
    """Yield the stored columns of all rows in order. `place_of` returns the place of a field's column in the file.

    Fields that the file lacks are omitted.

    Raises:
        Corrupt: `data-file-corrupt`, also if the file's parts have another number of rows than it states.
    """
    names = stored_names(file, fields, place_of)
    # without columns, all values are defaults or nulls, and only the number of rows is needed
    batches = file.batches(names) if names else _empty_batches(file.row_count)
    yield from _counted(batches, entry.record_count, entry, "its entry states")


def stored_names(
    file: OpenFile, fields: Iterable[NestedField], place_of: Callable[[NestedField], int | None]
) -> list[str]:
    """The names that columns of `fields` have in the file. Fields that the file lacks are omitted."""
    names = [file.schema.field(at).name for field in fields if (at := place_of(field)) is not None]
    return list(dict.fromkeys(names))


def rows_of_run(
    file: OpenFile,
    entry: ContentEntry,
    run: Run,
    names: Sequence[str],
    at_once: Portion = STREAMED,
) -> Iterator[pa.RecordBatch]:
    """Yield the columns `names` of the rows of `run` (consecutive row groups of Parquet, else the whole file) in order.

    Raises the errors of `all_rows`.
    """
    if not names:
        batches = _empty_batches(run.rows)
    elif isinstance(file, ParquetRows):
        batches = file.batches_of(run.groups, names, at_once)
    else:
        batches = file.batches(list(names))
    yield from _counted(batches, run.rows, entry, "its footer states")


def _counted(
    batches: Iterable[pa.RecordBatch], rows: int, entry: ContentEntry, source: str
) -> Iterator[pa.RecordBatch]:
    read = 0
    for batch in batches:
        read += batch.num_rows
        yield batch
    if read != rows:
        raise Corrupt("data-file-corrupt", f"{entry.location}: {read} rows can be read, {source} {rows}")


_READERS: Final[dict[FileFormat, Callable[[Source, str], OpenFile]]] = {
    FileFormat.PARQUET: lambda source, name: ParquetRows(open_parquet(source, name), name, source),
    FileFormat.ORC: lambda source, name: OrcRows.of(_whole(source), name),
    FileFormat.AVRO: lambda source, name: AvroRows.of(_whole(source), name),
}


def _whole(source: Source) -> bytes | pa.Buffer:
    assert isinstance(source, bytes | pa.Buffer), "only Parquet is read in parts"
    return source


def _empty_batches(row_count: int) -> Iterator[pa.RecordBatch]:
    left = row_count
    while left > 0:
        size = min(left, BATCH_ROWS)
        yield rows_without_columns(size)
        left -= size
