"""Rows of scans: refusals, columns, filters on rows, streaming."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator
from dataclasses import replace
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

from rootline.client.create_drop import build_definition
from rootline.schemas.content_entry import FileFormat
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.identifiers import ObjectKey, Version
from rootline.schemas.object_keys import key_of
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.root_reader import read_root
from rootline.storage.metadata.scan_loader import plan_scan
from rootline.storage.rows.arrow_types import arrow_schema_of
from rootline.storage.rows.data_file_reader import RowsWanted
from rootline.storage.rows.scan_executor import scan_batches
from rootline.tree.filter.pruning import PruningFilter
from tests.storage.stored_tables import (
    FLIGHTS,
    TABLE,
    CountingStore,
    StoredTable,
    flights,
    flights_definition,
    ids_of,
    replaced,
)


@pytest.fixture
def table() -> StoredTable:
    return StoredTable(flights_definition())


# refusals


def test_damage_is_named_and_never_answered_from(table: StoredTable) -> None:
    (file,) = table.write(flights(*range(1000)))
    vector = table.vector(file, [5])
    table.entries = [file, vector]
    table.commit()
    key, vector_key = key_of(TABLE, file.location), key_of(TABLE, vector.location)
    found = asyncio.run(table.store.get(key))
    assert found is not None
    body = found.body
    for damaged, code in [
        (body[:-1], "data-file-corrupt"),
        (body + b"x", "data-file-corrupt"),
        (body[:200] + bytes([body[200] ^ 1]) + body[201:], "data-file-corrupt"),
    ]:
        table.store.place(key, damaged)
        with pytest.raises(Corrupt, match=file.location) as caught:
            table.scan()
        assert caught.value.code == code
    table.store.discard(key)
    with pytest.raises(Corrupt, match=file.location) as caught:
        table.scan()
    assert caught.value.code == "object-missing"
    table.store.place(key, body)
    table.store.discard(vector_key)
    with pytest.raises(Corrupt, match=vector.location):
        table.scan()


def test_a_footer_with_a_flipped_bit_never_makes_rows_vanish() -> None:
    table = StoredTable(build_definition(pa.schema([("id", pa.int64())]), table_uuid=uuid.UUID(int=3)))
    (file,) = table.write(pa.table({"id": [7] * 100}))
    table.entries = [file]
    table.commit()
    key = key_of(TABLE, file.location)
    found = asyncio.run(table.store.get(key))
    assert found is not None
    footer = len(found.body) - 8 - int.from_bytes(found.body[-8:-4], "little")
    short = 0
    for at in range(footer, len(found.body)):
        table.store.place(key, found.body[:at] + bytes([found.body[at] ^ 4]) + found.body[at + 1 :])
        try:
            assert table.scan().num_rows == 100
        except (Corrupt, Invalid) as error:
            short += "rows can be read" in str(error)
    assert short


def test_a_vector_beyond_the_files_rows_is_corrupt(table: StoredTable) -> None:
    (file,) = table.write(flights(*range(4)))
    table.entries = [file, table.vector(file, [4])]
    table.commit()
    with pytest.raises(Corrupt, match="deletes row 4"):
        table.scan()


def test_other_row_counts_than_the_entry_says_are_corrupt(table: StoredTable) -> None:
    (file,) = table.write(flights(*range(4)))
    table.entries = [replace(file, record_count=3)]
    table.commit()
    with pytest.raises(Corrupt, match="has 4 rows"):
        table.scan()


@pytest.mark.parametrize(
    "change",
    [{"file_format": FileFormat.ORC}, {"file_format": FileFormat.AVRO}, {"key_metadata": b"k"}],
)
def test_what_is_not_plain_parquet_is_refused(table: StoredTable, change: dict[str, Any]) -> None:
    (file,) = table.write(flights(*range(4)))
    table.entries = [replace(file, **change)]
    table.commit()
    with pytest.raises(Invalid) as caught:
        table.scan()
    assert caught.value.code == "file-unreadable"


def test_files_outside_the_tables_folder_are_read_where_the_store_can(table: StoredTable) -> None:
    (file,) = table.write(flights(1))
    body = asyncio.run(table.store.get(key_of(TABLE, file.location)))
    assert body is not None
    table.store.place(ObjectKey("s3://elsewhere/a b%20.parquet"), body.body)
    table.entries = [replace(file, location="s3://elsewhere/a b%20.parquet")]
    table.commit()
    assert ids_of(table.scan()) == [1]
    table.entries = [replace(file, location="hdfs://elsewhere/data.parquet")]
    table.commit()
    with pytest.raises(Invalid, match=r"hdfs://elsewhere/data.parquet: .*reads absolute locations of file:, s3:"):
        table.scan()


def test_an_unknown_column_is_refused(table: StoredTable) -> None:
    table.commit()
    with pytest.raises(Invalid, match="there is no column 'x'"):
        table.scan(columns=["x"])


# columns


def test_columns_are_chosen_and_the_filters_own_are_read_beside_them(table: StoredTable) -> None:
    table.entries = table.write(flights(1, 2, 3))
    table.commit()
    assert table.scan("delay > 0.5", ["carrier"]).to_pydict() == {"carrier": ["UA", "AA"]}
    assert table.scan("delay > 0.5", []).num_rows == 2
    assert table.scan(None, ["delay", "id"]).schema.names == ["delay", "id"]


def _evolved(before: Schema, after: Schema, **changes: Any) -> TableDefinition:
    old = build_definition(before, table_uuid=uuid.UUID(int=3))
    return replace(old, schemas=(before, after), current_schema_id=after.schema_id, **changes)


def test_old_files_are_read_under_the_new_schema() -> None:
    before = Schema(
        NestedField(1, "small", IntegerType()),
        NestedField(2, "ratio", FloatType()),
        NestedField(3, "price", DecimalType(5, 2)),
        NestedField(4, "gone", StringType()),
        NestedField(
            5, "pair", StructType(NestedField(6, "left", IntegerType()), NestedField(7, "right", StringType()))
        ),
        NestedField(8, "many", ListType(9, StructType(NestedField(10, "x", IntegerType())))),
    )
    after = Schema(
        NestedField(11, "fresh", StringType()),
        NestedField(1, "renamed", LongType()),
        NestedField(2, "ratio", DoubleType()),
        NestedField(3, "price", DecimalType(9, 2)),
        NestedField(12, "gone", StringType()),
        NestedField(13, "born", LongType(), required=True, initial_default=42),
        NestedField(14, "day", DateType(), initial_default="2013-01-31"),
        NestedField(5, "pair", StructType(NestedField(7, "r", StringType()), NestedField(15, "new", IntegerType()))),
        NestedField(8, "many", ListType(9, StructType(NestedField(10, "y", LongType())))),
        schema_id=1,
    )
    table = StoredTable(build_definition(before, table_uuid=uuid.UUID(int=3)))
    row = {
        "small": 1,
        "ratio": 0.5,
        "price": Decimal(1),
        "gone": "x",
        "pair": {"left": 1, "right": "r"},
        "many": [{"x": 3}],
    }
    table.entries = table.write(pa.Table.from_pylist([row, {}], arrow_schema_of(before)))
    table.definition = _evolved(before, after)
    table.commit()
    first, second = table.scan().to_pylist()
    assert (first["fresh"], first["renamed"], first["ratio"], str(first["price"])) == (None, 1, 0.5, "1.00")
    assert (first["gone"], first["born"], str(first["day"])) == (None, 42, "2013-01-31")
    assert (first["pair"], first["many"]) == ({"r": "r", "new": None}, [{"y": 3}])
    assert (second["renamed"], second["born"], second["pair"], second["many"]) == (None, 42, None, None)
    assert table.scan("renamed = 1 and pair.r = 'r' and born = 42").num_rows == 1
    assert table.scan("born != 42").num_rows == 0
    assert table.scan("gone is null", ["fresh", "born"]).num_rows == 2
    assert table.scan(None, ["born"]).to_pydict() == {"born": [42, 42]}


def test_files_without_ids_are_read_by_the_name_mapping_or_by_name(table: StoredTable) -> None:
    body = pa.BufferOutputStream()
    pq.write_table(pa.table({"ID_OLD": [1, 2], "carrier": ["UA", "AA"]}), body)
    (file,) = table.write(flights(1))
    table.entries = [replaced(table, file, body.getvalue().to_pybytes(), 2)]
    table.commit()
    assert table.scan().to_pydict() == {"id": [None, None], "carrier": ["UA", "AA"], "delay": [None, None]}
    mapping = [{"field-id": 1, "names": ["id", "ID_OLD"]}, {"field-id": 2, "names": ["airline"]}]
    table.definition = replace(table.definition, properties={"schema.name-mapping.default": json.dumps(mapping)})
    table.commit()
    assert table.scan().to_pydict() == {"id": [1, 2], "carrier": [None, None], "delay": [None, None]}


def test_a_column_that_cannot_be_what_the_schema_says_is_refused(table: StoredTable) -> None:
    body = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": ["one"]}), body)
    (file,) = table.write(flights(1))
    table.entries = [replaced(table, file, body.getvalue().to_pybytes(), 1)]
    table.commit()
    with pytest.raises(Invalid, match="column id is a long, not string"):
        table.scan()


# filters on rows


def test_null_and_nan_follow_sql(table: StoredTable) -> None:
    rows = pa.table(
        {"id": [1, 2, 3, 4], "carrier": ["a", None, "b", "c"], "delay": [None, float("nan"), -0.0, 2.5]}, FLIGHTS
    )
    table.entries = table.write(rows)
    table.commit()
    for where, expected in [
        ("carrier != 'a'", [3, 4]),
        ("not carrier = 'a'", [3, 4]),
        ("carrier is null", [2]),
        ("carrier is null or carrier = 'a'", [1, 2]),
        ("carrier not in ('a', 'b')", [4]),
        ("carrier not like 'a%'", [3, 4]),
        ("delay is nan", [2]),
        ("delay is not nan", [3, 4]),
        ("delay > 0", [4]),
        ("delay != 2.5", [2, 3]),
        ("delay = 0.0", [3]),
        ("delay in (0.0, 2.5)", [3, 4]),
        ("delay not in (0.0, 2.5)", [2]),
        ("delay is null", [1]),
    ]:
        assert ids_of(table.scan(where)) == expected, where


# streaming


async def test_a_reader_that_stops_early_leaves_nothing_running(table: StoredTable) -> None:
    table.entries = [table.write(flights(number))[0] for number in range(10)]
    root = table.commit()
    store = CountingStore(table)
    wanted = RowsWanted.of(table.definition)
    found = await table.plan()
    before = asyncio.all_tasks()
    batches = scan_batches(cast("Any", store), root.header.table, found.tasks(), wanted)
    async for batch in batches:
        assert batch.column("id").to_pylist() == [0]
        break
    await cast("AsyncGenerator[Any, None]", batches).aclose()
    assert asyncio.all_tasks() == before
    assert len(store.read) <= 4


async def test_a_puffin_file_of_many_vectors_is_read_once(table: StoredTable) -> None:
    files = [table.write(flights(*range(5)))[0] for _ in range(4)]
    vectors = [table.vector(file, [0]) for file in files]
    table.entries = [*files, *(replace(vector, location=vectors[0].location) for vector in vectors)]
    root = table.commit()
    store = CountingStore(table)
    wanted = RowsWanted.of(table.definition)
    rows = [b async for b in scan_batches(cast("Any", store), root.header.table, (await table.plan()).tasks(), wanted)]
    assert sum(batch.num_rows for batch in rows) == 16
    assert store.read.count(key_of(TABLE, vectors[0].location)) == 1


async def test_a_version_is_read_as_it_was(table: StoredTable) -> None:
    table.entries = table.write(flights(1))
    table.commit()
    table.entries = table.write(flights(2))
    table.commit()
    root = await read_root(table.store, TABLE, Version(0))
    found = await plan_scan(table.store, root, table.definition, PruningFilter.of(None, table.definition))
    wanted = RowsWanted.of(table.definition)
    batches = [batch async for batch in scan_batches(table.store, TABLE, found.tasks(), wanted)]
    assert [batch.column("id").to_pylist() for batch in batches] == [[1]]
