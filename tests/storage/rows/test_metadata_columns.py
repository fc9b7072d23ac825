"""`_file`, `_pos`, `_deleted`, `_spec_id`, `_partition` and the lineage of rows in scans."""

from __future__ import annotations

import datetime as dt
import uuid
from dataclasses import replace

import pyarrow as pa
import pytest

from rootline.client.create_drop import build_definition
from rootline.schemas.errors import Invalid, RootlineError
from rootline.schemas.object_keys import key_of
from rootline.schemas.table_definition import PartitionSpec
from rootline.storage.rows.arrow_types import FIELD_ID_KEY
from rootline.storage.rows.metadata_columns import METADATA_COLUMNS
from tests.storage.stored_deletes import at, equality_delete, parquet, position_delete
from tests.storage.stored_tables import TABLE, StoredTable, flights, flights_definition, replaced


@pytest.fixture
def table() -> StoredTable:
    return StoredTable(flights_definition())


def test_they_have_icebergs_reserved_ids_and_types(table: StoredTable) -> None:
    table.commit()
    schema = table.scan(columns=METADATA_COLUMNS).schema
    assert [(field.name, int(field.metadata[FIELD_ID_KEY]), str(field.type)) for field in schema] == [
        ("_file", 2147483646, "string"),
        ("_pos", 2147483645, "int64"),
        ("_deleted", 2147483644, "bool"),
        ("_spec_id", 2147483643, "int32"),
        ("_partition", 2147483642, "struct<>"),
        ("_row_id", 2147483540, "int64"),
        ("_last_updated_sequence_number", 2147483539, "int64"),
    ]


def test_they_stand_where_they_are_named_and_nowhere_else(table: StoredTable) -> None:
    (file,) = table.write(flights(5, 6))
    table.entries = [file]
    table.commit()
    assert table.scan().schema.names == ["id", "carrier", "delay"]
    assert table.scan(columns=["_pos", "id", "_file"]).to_pylist() == [
        {"_pos": 0, "id": 5, "_file": file.location},
        {"_pos": 1, "id": 6, "_file": file.location},
    ]
    assert table.scan(columns=["_spec_id"]).to_pydict() == {"_spec_id": [0, 0]}


def test_positions_are_those_of_the_file_after_deletes_filters_and_batches(table: StoredTable) -> None:
    (file,) = table.write(flights(*range(70_000)))
    table.entries = [file, table.vector(file, [69_998])]
    table.commit()
    found = table.scan("id > 69996 or id = 1", ["_pos", "carrier"])
    assert found.column("_pos").to_pylist() == [1, 69_997, 69_999]


@pytest.mark.parametrize("body", [None, b"not a data file"])
def test_no_data_file_is_opened_for_columns_that_its_entry_states(table: StoredTable, body: bytes | None) -> None:
    first, second = *table.write(flights(*range(70_000))), *table.write(flights(1, 2))
    table.entries = [first, second, table.vector(first, [0, 65_536])]
    table.commit()
    for file in (first, second):
        key = key_of(TABLE, file.location)
        table.store.discard(key)
        if body is not None:
            table.store.place(key, body)
    found = table.scan(columns=["_pos", "_spec_id"])
    assert found.column("_pos").to_pylist() == [*range(1, 65_536), *range(65_537, 70_000), 0, 1]
    assert table.scan(columns=[]).num_rows == 70_000
    shown = table.scan(columns=["_file", "_deleted"])
    assert (shown.num_rows, shown.column("_deleted").to_pylist().count(True)) == (70_002, 2)
    for columns, where in ((["_row_id"], None), (["_pos"], "id = 1"), (["id"], None)):
        with pytest.raises(RootlineError, match=first.location):
            table.scan(where, columns)


def test_equality_deletes_apply_where_only_metadata_columns_are_read(table: StoredTable) -> None:
    (file,) = table.write(flights(*range(4)))
    table.entries = [file, equality_delete(table, pa.table({"id": [2]}), [1], 2)]
    table.commit()
    assert table.scan(columns=["_pos"]).to_pydict() == {"_pos": [0, 1, 3]}


def test_deleted_rows_are_shown_as_deleted_where_that_is_asked_for(table: StoredTable) -> None:
    (file,) = table.write(flights(*range(6)))
    table.entries = [
        file,
        table.vector(file, [0]),
        table.adopted_leaf([position_delete(table, [(file.location, 1)], file, 2)]),
        equality_delete(table, pa.table({"id": [2]}), [1], 2),
    ]
    table.commit()
    assert table.scan(columns=["id"]).to_pydict() == {"id": [3, 4, 5]}
    assert table.scan(columns=["id", "_deleted"]).to_pydict() == {
        "id": [0, 1, 2, 3, 4, 5],
        "_deleted": [True, True, True, False, False, False],
    }
    assert table.scan("id in (1, 4)", ["_deleted", "_pos"]).to_pylist() == [
        {"_deleted": True, "_pos": 1},
        {"_deleted": False, "_pos": 4},
    ]


def test_the_partition_has_a_field_for_every_member_of_every_spec() -> None:
    schema = pa.schema([("day", pa.timestamp("us")), ("carrier", pa.string()), ("u", pa.uuid())])
    definition = build_definition(schema, partition_by=["day(day) as d", "carrier", "u"], table_uuid=uuid.UUID(int=3))
    table = StoredTable(replace(definition, partition_specs=(*definition.partition_specs, PartitionSpec(1, (2,)))))
    row = {"day": dt.datetime(2013, 1, 31, 5), "carrier": "UA", "u": uuid.UUID(int=7).bytes}
    (file,) = table.write(pa.Table.from_pylist([row], schema))
    (second,) = table.write(pa.Table.from_pylist([{**row, "carrier": None}], schema))
    table.entries = [file, table.leaf([replace(second, partition_spec_id=1)])]
    table.commit()
    assert table.scan(columns=["_partition", "_spec_id"]).to_pylist() == [
        {"_partition": {"d": dt.date(2013, 1, 31), "carrier": "UA", "u": uuid.UUID(int=7)}, "_spec_id": 0},
        {"_partition": {"d": None, "carrier": None, "u": None}, "_spec_id": 1},
    ]


def test_a_column_of_the_tables_own_comes_first() -> None:
    table = StoredTable(build_definition(pa.schema([("_pos", pa.string())]), table_uuid=uuid.UUID(int=3)))
    table.entries = table.write(pa.table({"_pos": ["mine"]}))
    table.commit()
    assert table.scan(columns=["_pos", "_spec_id"]).to_pylist() == [{"_pos": "mine", "_spec_id": 0}]


def test_an_unknown_column_is_refused_by_a_message_that_names_them_too(table: StoredTable) -> None:
    table.commit()
    with pytest.raises(Invalid, match="_partition"):
        table.scan(columns=["_files"])


def test_a_row_has_the_id_and_number_that_its_file_gives_or_that_its_entry_implies(table: StoredTable) -> None:
    plain, unnumbered, rewritten = (table.write(flights(*ids))[0] for ids in ((1, 2, 3), (4,), (5, 6)))
    names = ["id", "_row_id", "_last_updated_sequence_number"]
    ids = [b"1", b"2147483540", b"2147483539"]
    fields = [pa.field(name, pa.int64(), metadata={FIELD_ID_KEY: id_}) for name, id_ in zip(names, ids, strict=True)]
    kept = pa.table([[5, 6], [77, None], [3, None]], schema=pa.schema(fields))
    rewritten = at(replaced(table, rewritten, parquet(kept), 2), 9)
    table.entries = [
        table.leaf([replace(plain, first_row_id=100)]),
        unnumbered,
        replace(rewritten, first_row_id=200),
        table.vector(plain, [0]),
    ]
    table.commit()
    assert table.scan(columns=names).sort_by("id").to_pydict() == {
        "id": [2, 3, 4, 5, 6],
        "_row_id": [101, 102, None, 77, 201],
        "_last_updated_sequence_number": [1, 1, 1, 3, 9],
    }
    assert table.scan("id = 6", ["_row_id", "_pos", "carrier"]).to_pylist() == [
        {"_row_id": 201, "_pos": 1, "carrier": None}
    ]
