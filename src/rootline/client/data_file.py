"""A data file to add, described from an existing Parquet file and its path.

Owns: reading such a file for its statistics and partition values, and the values in Hive folders such as
`day=2024-01-01`. Does not own: writing files (`data_file_writer`), adding them to a table, the values of absent columns
when rows are read (`metadata_columns`).
Invariants: statistics are exact, gathered from every row, never taken from the file's own footer. A file with rows of
several partitions is refused. Rows are read in pieces, and one piece is in memory at a time. A value in the path is
used only if the file lacks the column, and only for an identity partition column: readers take the value of a column
that a file lacks from its partition. A value for any other column is refused, because readers would return null for it.

Source: the Iceberg specification, "Column Projection", docs/spark.md, "Files that are there already".
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField, PrimitiveType, TimestamptzNanoType, TimestamptzType, UUIDType

from rootline.client import checks
from rootline.client.column_statistics import ColumnTally, column_paths
from rootline.client.data_file_writer import FileDescriber, check_texts, split_offsets_of
from rootline.client.partition_split import split_by_partition
from rootline.schemas import intent
from rootline.schemas.bytes.single_values import to_generic
from rootline.schemas.content_entry import Bound
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.table_definition import PartitionSpec, TableDefinition
from rootline.storage.rows.arrow_types import arrow_schema_of, arrow_type_of, as_type
from rootline.storage.rows.parquet_file import ParquetRows, open_parquet
from rootline.storage.rows.row_projection import RowProjection, finder_for, initial_default

_NULL: Final = "__HIVE_DEFAULT_PARTITION__"


def path_values(
    location: str, columns: pa.Schema, definition: TableDefinition, source: str | None = None
) -> dict[int, pa.Array]:
    """The values in the path: field id → an array of one value, for each table column that is not in `columns`.

    `source`: the path that the file is read from, if it differs from `location`. Its folders are searched too. If both
    have a value for a column, the one in `location` is used.

    Raises:
        Invalid: `rows-invalid`, the table is not partitioned by such a column, or the value is not of its type.
    """
    stated = {**dict(_stated(source or "", location)), **dict(_stated(location, location))}
    if not stated:
        return {}
    find_column = finder_for(columns, definition.properties)(list(columns))
    names = pa.schema([pa.field(name, pa.string()) for name in stated])
    find_name = finder_for(names, definition.properties)(list(names))
    folded = {name.lower(): name for name in stated}
    found: dict[int, pa.Array] = {}
    for field in definition.schema.fields:
        at = find_name(field)
        name = folded.get(field.name.lower()) if at is None else names.names[at]
        if name is not None and find_column(field) is None:
            found[field.field_id] = _value(location, name, stated[name], field, definition)
    return found


def _stated(place: str, location: str) -> Iterator[tuple[str, str | None]]:
    """Yield the names and values of Hive folders such as `day=2024-01-01`, outermost first. `None` is null.

    Raises:
        Invalid: `rows-invalid`, the escaped bytes of a folder of the file at `location` are not UTF-8.
    """
    for part in PurePosixPath(place).parts[:-1]:
        name, equals, text = part.partition("=")
        if not name or not equals:
            continue
        try:
            yield unquote(name, errors="strict"), None if text == _NULL else unquote(text, errors="strict")
        except UnicodeDecodeError as error:
            reason = f"{location:.300}: the escaped bytes of {part!r:.80} in its path are not UTF-8: rename the folder"
            raise Invalid("rows-invalid", reason) from error


def _value(location: str, name: str, text: str | None, field: NestedField, definition: TableDefinition) -> pa.Array:
    shown = f"{location:.300}: its path states {name}={text!r:.80}, and the file has no column {field.name}"
    kind = field.field_type
    if not isinstance(kind, PrimitiveType) or field.field_id not in _identities(definition):
        raise Invalid(
            "rows-invalid",
            f"{shown}. A table can store it only if it is partitioned by {field.name} itself: partition it so "
            "before you add the file, or read the folder with the engine that wrote it and append its rows, as in "
            "rootline.spark.append(spark.read.parquet(folder), table)",
        )
    try:
        return _read_value(text, kind)
    except (pa.ArrowException, ValueError) as error:
        has_no_zone = isinstance(kind, TimestamptzType | TimestamptzNanoType)
        fault = f"is not a {kind}" + (" with an offset from UTC, such as 2024-01-01T10:00:00Z" if has_no_zone else "")
        raise Invalid(
            "rows-invalid",
            f"{shown}. The text {fault}: read the folder with the engine that wrote it and append its rows",
        ) from error


def _read_value(text: str | None, kind: PrimitiveType) -> pa.Array:
    """An array of the value that a path states. Raises `ValueError` or Arrow's error: the text is not a `kind`."""
    wanted = arrow_type_of(kind)
    if text is None:
        return pa.nulls(1, wanted)
    if isinstance(kind, UUIDType):
        return as_type(pa.array([uuid.UUID(text).bytes], pa.binary(16)), wanted)
    return as_type(pa.array([text]), wanted)


def _identities(definition: TableDefinition) -> set[int]:
    """Ids of the columns that partition the table by identity."""
    members = definition.spec_by_id(definition.default_spec_id).expr_ids
    sources = map(definition.transform_of, members)
    return {source for source, transform in sources if isinstance(transform, IdentityTransform)}


_PIECE_BYTES: Final = 64 * 1024 * 1024


class DataFile(intent.DataFile):
    """A file to add to a table. Its location is relative to the table's folder."""

    @classmethod
    def from_parquet(
        cls, location: str, schema: TableDefinition | Schema, *, source: str | Path | bytes | None = None
    ) -> DataFile:
        """Describe the Parquet file at `location`: rows, size, partition, and the statistics of every column.

        A column absent from the file but present in its path (`day=2024-01-01/one.parquet`) has the path's value, if
        the table is partitioned by the column itself.

        Args:
            location: the file's place below the table's folder, such as `data/one.parquet`.
            schema: the table's definition (`table.definition()`), or only its schema if the table is not partitioned.
            source: a local path to read the file from, or its bytes. By default, `location` is a local path.

        Returns:
            A description for `TableHandle.add_files` or an intent's `add_data_files`. The file itself is not stored.

        Raises:
            Invalid: `file-unreadable`, it is not a Parquet file of this schema; `rows-invalid`, its rows belong to
                several partitions, a value is out of its transform's range, a text is not UTF-8, or its path has a
                value that the table cannot store.
        """
        checks.text(location, "location")
        definition = schema if isinstance(schema, TableDefinition) else _unpartitioned(schema)
        if isinstance(source, bytes):
            file: pa.NativeFile = pa.BufferReader(source)
        else:
            file = _open_file(Path(location if source is None else checks.place(source, "source")))
        with file:
            found = _scan_file(file, definition, location, None if isinstance(source, bytes) else source)
            size = file.size()
        describer = FileDescriber(definition, column_paths(definition.schema))
        statistics = describer.statistics(found.tallies, found.row_count, found.values)
        if isinstance(schema, TableDefinition):
            described = describer.described(location, found.row_count, size, statistics, None, found.split_offsets)
            return cls(**{name: getattr(described, name) for name in type(described).model_fields})
        return cls(
            location=location,
            record_count=found.row_count,
            file_size_in_bytes=size,
            statistics=to_generic(statistics, definition.tracked_by_id),
            split_offsets=found.split_offsets or None,
        )


@dataclass(frozen=True, slots=True)
class _Found:
    """The facts about a file's rows: their count, partition values, statistics and split offsets."""

    row_count: int
    values: Mapping[int, Bound | None]
    tallies: Mapping[int, ColumnTally]
    split_offsets: tuple[int, ...]


def _scan_file(file: pa.NativeFile, definition: TableDefinition, location: str, source: str | Path | None) -> _Found:
    parquet = open_parquet(file, location)
    path = None if source is None else Path(source).as_posix()
    constants = path_values(location, parquet.schema_arrow, definition, path)
    paths, spec = column_paths(definition.schema), definition.spec_by_id(definition.default_spec_id)
    describer = FileDescriber(definition, paths)
    values: dict[int, Bound | None] | None = None if spec.expr_ids else {}
    tallies: dict[int, ColumnTally] = {}
    row_count = 0
    try:
        for rows in _pieces(ParquetRows(parquet, location, file), definition, location, constants):
            check_texts(rows, location, row_count)
            row_count += rows.num_rows
            for part in split_by_partition(rows, definition, spec, paths):
                if values is not None and not _is_same(values, part.values):
                    reason = f"{location}: its rows are of more than one partition; write a file for each"
                    raise Invalid("rows-invalid", reason)
                values = part.values
            more = describer.tallies(rows, values or {})
            tallies = {tracked_id: tallies[tracked_id] + more[tracked_id] for tracked_id in more} if tallies else more
    except (ValueError, OverflowError) as error:  # a text that is not UTF-8; a partition that is out of range
        reason = f"{location}: statistics or partition of a value cannot be computed: {error}; write a corrected file"
        raise Invalid("rows-invalid", reason) from error
    if values is None:
        raise Invalid("rows-invalid", f"{location}: it has no rows, so it is in no partition; remove it from the list")
    return _Found(row_count, values, tallies, split_offsets_of(parquet.metadata))


def _pieces(
    rows: ParquetRows, definition: TableDefinition, location: str, constants: Mapping[int, pa.Array]
) -> Iterator[pa.Table]:
    """Yield the rows in the table's schema, in pieces of about 64 MiB, at least one piece."""
    fields, schema = definition.schema.fields, arrow_schema_of(definition.schema)
    projection = RowProjection(
        finder_for(rows.schema, definition.properties),
        initial_default,
        "file-unreadable",
        location,
        lambda field: constants.get(field.field_id),
    )
    batches: list[pa.RecordBatch] = []
    size = pieces = 0
    try:
        for batch in rows.batches(rows.schema.names):
            batches.append(projection.columns(batch, fields))
            size += batches[-1].nbytes
            if size >= _PIECE_BYTES:
                yield pa.Table.from_batches(batches, schema)
                batches, size, pieces = [], 0, pieces + 1
    except Corrupt as error:
        raise Invalid("file-unreadable", f"{error.message}; write it again") from error
    if batches or not pieces:
        yield pa.Table.from_batches(batches, schema)


def _is_same(values: Mapping[int, Bound | None], others: Mapping[int, Bound | None]) -> bool:
    """Whether both are the same partition. NaN equals NaN."""
    return all(value == others[at] or (value != value and others[at] != others[at]) for at, value in values.items())


def _open_file(path: Path) -> pa.NativeFile:
    try:
        return pa.OSFile(str(path))
    except OSError as error:
        raise Invalid("file-unreadable", f"{path}: {error.strerror or error}") from error


def _unpartitioned(given: Schema) -> TableDefinition:
    schema = checks.one_of(given, Schema, "schema", "the table's definition, or an Iceberg schema")
    return TableDefinition(
        table_uuid=uuid.UUID(int=0),
        schemas=(schema,),
        current_schema_id=schema.schema_id,
        expressions=(),
        partition_specs=(PartitionSpec(0),),
        default_spec_id=0,
        sort_orders=(),
        default_sort_order_id=0,
        last_column_id=schema.highest_field_id,
        properties={},
    )
