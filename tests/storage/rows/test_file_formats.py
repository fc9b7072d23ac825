"""ORC and Avro data files: the same rows as from Parquet, or a refusal that says why."""

from __future__ import annotations

import datetime as dt
import io
import uuid
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyarrow import orc
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from rootline.client.create_drop import build_definition
from rootline.schemas.content_entry import ContentEntry, FileFormat
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.object_keys import key_of
from rootline.storage.rows.arrow_types import FIELD_ID_KEY, arrow_schema_of
from tests.storage.stored_deletes import equality_delete
from tests.storage.stored_tables import TABLE, StoredTable

COMMON = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "flag", BooleanType()),
    NestedField(3, "small", IntegerType()),
    NestedField(4, "ratio", FloatType()),
    NestedField(5, "wide", DoubleType()),
    NestedField(6, "price", DecimalType(9, 2)),
    NestedField(7, "day", DateType()),
    NestedField(8, "text", StringType()),
    NestedField(9, "raw", BinaryType()),
    NestedField(10, "pair", StructType(NestedField(11, "x", IntegerType()), NestedField(12, "y", StringType()))),
    NestedField(13, "many", ListType(14, IntegerType(), element_required=True)),
)
ROWS: list[dict[str, Any]] = [
    {
        "id": 1,
        "flag": True,
        "small": -3,
        "ratio": 0.5,
        "wide": -0.0,
        "price": Decimal("-12.34"),
        "day": dt.date(1500, 2, 3),
        "text": "ü",
        "raw": b"\x00\xff",
        "pair": {"x": 1, "y": None},
        "many": [1, 3],
    },
    {name: None for name in COMMON.column_names if "." not in name} | {"id": 2},
    {**dict.fromkeys(("flag", "small", "ratio", "wide", "day", "raw")), "id": 3, "price": Decimal("0.07"), "text": "",
     "pair": {"x": None, "y": "b"}, "many": []},
]  # fmt: skip


def orc_bytes(rows: pa.Table) -> bytes:
    def renamed(field: pa.Field) -> pa.Field:
        kind = field.type
        if pa.types.is_struct(kind):
            kind = pa.struct([renamed(kind.field(at)) for at in range(kind.num_fields)])
        return pa.field(field.name, kind, field.nullable, {b"iceberg.id": field.metadata[FIELD_ID_KEY]})

    schema = pa.schema([renamed(field) for field in rows.schema])
    sink = io.BytesIO()
    orc.write_table(pa.Table.from_arrays(rows.columns, schema=schema), sink)
    return sink.getvalue()


def avro_schema(schema: Schema) -> dict[str, Any]:
    converted: dict[str, Any] = AvroSchemaConversion().iceberg_to_avro(schema, "rows")
    return converted


def avro_bytes(schema: Schema, rows: list[dict[str, Any]], **options: Any) -> bytes:
    sink = io.BytesIO()
    fastavro.writer(sink, avro_schema(schema), rows, **options)
    return sink.getvalue()


def _orc_of_rows(rows: list[dict[str, Any]]) -> bytes:
    return orc_bytes(pa.Table.from_pylist(rows, arrow_schema_of(COMMON)))


def _avro_of_rows(rows: list[dict[str, Any]]) -> bytes:
    return avro_bytes(COMMON, rows)


WRITERS = [(FileFormat.ORC, _orc_of_rows), (FileFormat.AVRO, _avro_of_rows)]
Writer = Callable[[list[dict[str, Any]]], bytes]


def _table(schema: Schema) -> StoredTable:
    return StoredTable(build_definition(schema, table_uuid=uuid.UUID(int=3)))


def _stored(table: StoredTable, file_format: FileFormat, body: bytes, rows: int) -> ContentEntry:
    """The entry of a file whose suffix says nothing about its format."""
    (like,) = table.write(_one_row(table))
    table.store.place(key_of(TABLE, like.location), body)
    return replace(
        like, file_format=file_format, file_size_in_bytes=len(body), record_count=rows, content_stats={},
        split_offsets=None,
    )  # fmt: skip


def _one_row(table: StoredTable) -> pa.Table:
    schema = table.definition.schema
    row = {field.name: 1 if field.required else None for field in schema.fields}
    return pa.Table.from_pylist([row], arrow_schema_of(schema))


@pytest.mark.parametrize(("file_format", "write"), WRITERS)
def test_rows_are_the_same_whatever_the_format(file_format: FileFormat, write: Writer) -> None:
    table = _table(COMMON)
    table.entries = [_stored(table, file_format, write(ROWS), 3)]
    table.commit()
    assert table.scan().to_pylist() == ROWS
    assert table.scan("price < 0.05 and pair.x = 1", ["text"]).to_pylist() == [{"text": "ü"}]
    assert table.scan(columns=[]).num_rows == 3


@pytest.mark.parametrize(("file_format", "write"), WRITERS)
def test_columns_are_found_by_field_id_and_promoted(file_format: FileFormat, write: Writer) -> None:
    table = _table(COMMON)
    table.entries = [_stored(table, file_format, write(ROWS), 3)]
    renamed = Schema(
        NestedField(3, "bigger", LongType()),
        NestedField(4, "ratio", DoubleType()),
        NestedField(20, "small", LongType(), initial_default=7),
        NestedField(10, "pair", StructType(NestedField(12, "x", StringType()))),
        schema_id=1,
    )
    table.definition = replace(table.definition, schemas=(COMMON, renamed), current_schema_id=1)
    table.commit()
    assert table.scan().to_pylist() == [
        {"bigger": -3, "ratio": 0.5, "small": 7, "pair": {"x": None}},
        {"bigger": None, "ratio": None, "small": 7, "pair": None},
        {"bigger": None, "ratio": None, "small": 7, "pair": {"x": "b"}},
    ]


@pytest.mark.parametrize(("file_format", "write"), WRITERS)
def test_rows_are_deleted_by_position_and_by_equality(file_format: FileFormat, write: Writer) -> None:
    table = _table(COMMON)
    rows = [ROWS[0] | {"id": number} for number in range(1000)]
    file = _stored(table, file_format, write(rows), 1000)
    delete = equality_delete(table, pa.table({"id": [5, 999]}), [1], 2)
    body = write([ROWS[1] | {"id": 7}])
    other = replace(
        delete, location="data/x", file_format=file_format, record_count=1, file_size_in_bytes=len(body),
        content_stats={},
    )  # fmt: skip
    table.store.place(key_of(TABLE, "data/x"), body)
    table.entries = [file, table.vector(file, [0, 998]), delete, other]
    table.commit()
    found = table.scan("id < 10 or id > 995", ["id", "_pos"])
    assert found.column("id").to_pylist() == found.column("_pos").to_pylist() == [1, 2, 3, 4, 6, 8, 9, 996, 997]


def test_avro_values_are_read_as_they_are_stored() -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "local", TimestampType()),
        NestedField(3, "moment", TimestamptzType()),
        NestedField(4, "time", TimeType()),
        NestedField(5, "key", UUIDType()),
        NestedField(6, "code", FixedType(3)),
    )
    table = _table(schema)
    plain = fastavro.parse_schema(_without_logical(avro_schema(schema)))
    far = -200_000_000_000_000_000  # before year 1: no calendar of Python's has it
    sink = io.BytesIO()
    row = {"id": 1, "local": far, "moment": 86_400_000_000, "time": 1, "key": uuid.UUID(int=7).bytes, "code": b"abc"}
    fastavro.writer(sink, plain, [row])
    body = _with_schema(sink.getvalue(), plain, avro_schema(schema))
    table.entries = [_stored(table, FileFormat.AVRO, body, 1)]
    table.commit()
    found = table.scan()
    assert found.column("local").cast(pa.int64()).to_pylist() == [far]
    assert found.select(["moment", "time", "key", "code"]).to_pylist() == [
        {
            "moment": dt.datetime(1970, 1, 2, tzinfo=dt.UTC),
            "time": dt.time(0, 0, 0, 1),
            "key": uuid.UUID(int=7),
            "code": b"abc",
        }
    ]


def _without_logical(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {key: _without_logical(value) for key, value in schema.items() if key != "logicalType"}
    return [_without_logical(item) for item in schema] if isinstance(schema, list) else schema


def _with_schema(body: bytes, before: Any, after: Any) -> bytes:
    """The same blocks under a header with another schema."""
    reader = fastavro.block_reader(io.BytesIO(body))
    sync = body[-16:]
    start = body.index(sync) + 16
    sink = io.BytesIO()
    fastavro.writer(sink, after, [], sync_marker=sync, codec=reader.codec)
    return sink.getvalue()[: sink.getvalue().index(sync) + 16] + body[start:]


@pytest.mark.parametrize(
    ("kind", "value"),
    [(TimestampType(), dt.datetime(2013, 1, 1)), (TimestamptzType(), dt.datetime(2013, 1, 1, tzinfo=dt.UTC)),
     (TimestampNanoType(), dt.datetime(2013, 1, 1))],
)  # fmt: skip
def test_timestamps_in_orc_are_refused_where_they_are_asked_for(kind: Any, value: dt.datetime) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "ts", kind))
    table = _table(schema)
    body = orc_bytes(pa.Table.from_pylist([{"id": 1, "ts": value}], arrow_schema_of(schema)))
    table.entries = [_stored(table, FileFormat.ORC, body, 1)]
    table.commit()
    assert table.scan(columns=["id"]).to_pylist() == [{"id": 1}]
    with pytest.raises(Invalid, match="column ts: ORC timestamps are not supported"):
        table.scan()


def test_maps_in_avro_are_read_as_maps_or_as_arrays_of_pairs() -> None:
    kind = MapType(3, IntegerType(), 4, LongType(), value_required=False)
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "m", kind))
    table = _table(schema)
    rows = [{"id": 1, "m": [{"key": 7, "value": 1}, {"key": 8, "value": 2}]}, {"id": 2, "m": None}, {"id": 3, "m": []}]
    table.entries = [_stored(table, FileFormat.AVRO, avro_bytes(schema, rows), 3)]
    table.commit()
    assert table.scan().to_pylist() == [{"id": 1, "m": [(7, 1), (8, 2)]}, {"id": 2, "m": None}, {"id": 3, "m": []}]
    texts = Schema(NestedField(1, "id", LongType()), NestedField(2, "m", MapType(3, StringType(), 4, LongType())))
    table = _table(texts)
    avro = {"type": "record", "name": "rows", "fields": [
        {"name": "m", "field-id": 2, "type": {"type": "map", "values": "long"}}]}  # fmt: skip
    sink = io.BytesIO()
    fastavro.writer(sink, avro, [{"m": {"a": 1}}, {"m": {}}])
    table.entries = [_stored(table, FileFormat.AVRO, sink.getvalue(), 2)]
    table.commit()
    assert table.scan().to_pylist() == [{"id": None, "m": [("a", 1)]}, {"id": None, "m": []}]


def test_a_union_of_several_types_is_refused_where_it_is_asked_for() -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "u", LongType()))
    table = _table(schema)
    fields = [
        {"name": "id", "field-id": 1, "type": "long"},
        {"name": "u", "field-id": 2, "type": ["int", "string"]},
    ]
    avro = {"type": "record", "name": "rows", "fields": fields}
    sink = io.BytesIO()
    fastavro.writer(sink, avro, [{"id": 1, "u": 5}])
    table.entries = [_stored(table, FileFormat.AVRO, sink.getvalue(), 1)]
    table.commit()
    assert table.scan(columns=["id"]).to_pylist() == [{"id": 1}]
    with pytest.raises(Invalid, match="column u: its Avro type is not supported"):
        table.scan()


@pytest.mark.parametrize(("file_format", "write"), WRITERS)
def test_what_is_not_of_the_format_that_its_entry_says_is_refused(file_format: FileFormat, write: Writer) -> None:
    table = _table(COMMON)
    good = _stored(table, file_format, write(ROWS), 3)
    for strange in (
        _stored(table, file_format, b"", 3),
        _stored(table, file_format, b"PAR1" + bytes(100) + b"PAR1", 3),
        replace(good, record_count=2),
        replace(good, key_metadata=b"k"),
        replace(good, file_format=FileFormat.PARQUET),
    ):
        table.entries = [strange]
        table.commit()
        with pytest.raises((Invalid, Corrupt), match=strange.location):
            table.scan()


def test_a_cut_or_damaged_avro_file_is_never_answered_from() -> None:
    table = _table(COMMON)
    rows = [ROWS[0] | {"id": number} for number in range(200)]
    body = avro_bytes(COMMON, rows, codec="deflate", sync_interval=500)
    for length in range(0, len(body), 97):
        table.entries = [_stored(table, FileFormat.AVRO, body[:length], 200)]
        table.commit()
        with pytest.raises((Invalid, Corrupt)):
            table.scan()
