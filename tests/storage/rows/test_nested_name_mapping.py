"""Name mappings of nested fields, and defaults of members that a file's structs lack."""

from __future__ import annotations

import json

import pyarrow as pa
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType

from rootline.schemas.table_definition import NAME_MAPPING_PROPERTY
from rootline.storage.rows.row_projection import RowProjection, find_by_name, finder_for, initial_default

PAIR = StructType(NestedField(3, "x", LongType(), required=False))
MAPPING = [
    {"names": ["a.b"], "field-id": 1},
    {"names": ["a"], "fields": [{"names": ["b"]}]},
    {"names": ["old_pair"], "field-id": 2, "fields": [{"names": ["old_x", "older_x"], "field-id": 3}]},
    {
        "names": ["many"],
        "field-id": 4,
        "fields": [{"names": ["element"], "field-id": 5, "fields": [{"names": ["old_y"], "field-id": 6}]}],
    },
    {
        "names": ["named"],
        "field-id": 7,
        "fields": [
            {"names": ["key"], "field-id": 8},
            {"names": ["value"], "field-id": 9, "fields": [{"names": ["old_z"], "field-id": 10}]},
        ],
    },
]


def _projected(rows: list[dict[str, object]], schema: pa.Schema, *wanted: NestedField, mapped: bool) -> list[object]:
    batch = pa.RecordBatch.from_pylist(rows, schema)
    find = finder_for(schema, {NAME_MAPPING_PROPERTY: json.dumps(MAPPING)}) if mapped else find_by_name
    projection = RowProjection(find, initial_default, "file-unreadable", "data/a.parquet")
    found: list[object] = projection.columns(batch, wanted).to_pylist()
    return found


def test_a_name_with_a_dot_is_a_literal_name_and_no_path() -> None:
    schema = pa.schema([("a", pa.struct([("b", pa.int64())])), ("a.b", pa.int64())])
    wanted = NestedField(1, "c", LongType(), required=False)
    assert _projected([{"a": {"b": 1}, "a.b": 2}], schema, wanted, mapped=True) == [{"c": 2}]


def test_members_of_structs_elements_and_values_are_found_by_their_mappings() -> None:
    schema = pa.schema(
        [
            ("old_pair", pa.struct([("older_x", pa.int64())])),
            ("many", pa.list_(pa.struct([("old_y", pa.int64())]))),
            ("named", pa.map_(pa.string(), pa.struct([("old_z", pa.int64())]))),
        ]
    )
    inner_y = StructType(NestedField(6, "y", LongType(), required=False))
    inner_z = StructType(NestedField(10, "z", LongType(), required=False))
    found = _projected(
        [{"old_pair": {"older_x": 1}, "many": [{"old_y": 2}], "named": [("k", {"old_z": 3})]}],
        schema,
        NestedField(2, "pair", PAIR, required=False),
        NestedField(4, "many", ListType(5, inner_y, element_required=False), required=False),
        NestedField(7, "named", MapType(8, StringType(), 9, inner_z, value_required=False), required=False),
        mapped=True,
    )
    assert found == [{"pair": {"x": 1}, "many": [{"y": 2}], "named": [("k", {"z": 3})]}]


def test_a_member_that_a_stored_struct_lacks_has_the_members_own_initial_default() -> None:
    pair = StructType(NestedField(3, "x", LongType()), NestedField(4, "y", LongType(), initial_default=7))
    schema = pa.schema([("pair", pa.struct([("x", pa.int64())]))])
    wanted = NestedField(2, "pair", pair, required=False)
    found = _projected([{"pair": {"x": 1}}, {"pair": None}], schema, wanted, mapped=False)
    assert found == [{"pair": {"x": 1, "y": 7}}, {"pair": None}]
