"""The Avro schema of entries: ids, order, shared records."""

from __future__ import annotations

import json
from typing import Any

import fastavro
import fastavro.schema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.types import DecimalType, FixedType, GeometryType, IntegerType, LongType, PrimitiveType, UnknownType

from rootline.schemas import field_ids
from rootline.schemas.bytes.entry_schema import (
    content_entry_schema,
    content_stats_schema,
    decimal_size_in_bytes,
    kind_of,
    schema_bytes,
    stats_fingerprint,
    tracked_of_schema,
    type_of_kind,
)
from rootline.schemas.table_definition import TrackedField
from tests.schemas.entry_values import TRACKED, TYPES


def test_every_field_of_an_entry_has_its_own_id() -> None:
    names = {field["name"]: field["field-id"] for field in content_entry_schema([])["fields"]}
    assert names == {
        "version_info": field_ids.VERSION_INFO,
        "content_type": field_ids.CONTENT_TYPE,
        "location": field_ids.LOCATION,
        "file_format": field_ids.FILE_FORMAT,
        "partition_spec_id": field_ids.PARTITION_SPEC_ID,
        "record_count": field_ids.RECORD_COUNT,
        "file_size_in_bytes": field_ids.FILE_SIZE_IN_BYTES,
        "deletion_vector": field_ids.DELETION_VECTOR,
        "sort_order_id": field_ids.SORT_ORDER_ID,
        "manifest_stats": field_ids.MANIFEST_STATS,
        "referenced_file": field_ids.REFERENCED_FILE,
        "key_metadata": field_ids.KEY_METADATA,
        "split_offsets": field_ids.SPLIT_OFFSETS,
        "equality_ids": field_ids.EQUALITY_IDS,
        "first_row_id": field_ids.FIRST_ROW_ID,
        "content_stats": field_ids.CONTENT_STATS,
    }


def test_a_statistics_record_is_written_once_and_shared() -> None:
    schema = content_stats_schema([TrackedField(1, "a", LongType()), TrackedField(7, "b", LongType())])
    first, second = schema["fields"]
    assert (first["name"], first["field-id"]) == ("_1", 10_200)
    assert (second["name"], second["field-id"], second["type"]) == ("_7", 11_400, ["null", "stats_long"])
    members = first["type"][1]["fields"]
    assert [(member["name"], member["stat-offset"]) for member in members] == [
        ("lower_bound", 1),
        ("upper_bound", 2),
        ("tight_bounds", 3),
        ("value_count", 4),
        ("null_value_count", 5),
        ("nan_value_count", 6),
        ("avg_value_size_in_bytes", 7),
        ("max_value_size_in_bytes", 8),
    ]


def test_types_without_bounds_have_counts_only() -> None:
    for field_type in (UnknownType(), GeometryType()):
        (field,) = content_stats_schema([TrackedField(1, "g", field_type)])["fields"]
        assert [member["stat-offset"] for member in field["type"][1]["fields"]] == [4, 5, 6, 7, 8]


def test_another_column_of_a_known_type_adds_little_to_a_header() -> None:
    one = schema_bytes(content_stats_schema([TrackedField(1, "a", LongType())]))
    two = schema_bytes(content_stats_schema([TrackedField(1, "a", LongType()), TrackedField(2, "b", LongType())]))
    assert len(two) - len(one) < 90


@pytest.mark.parametrize("field_type", TYPES, ids=str)
def test_the_name_of_a_record_tells_the_type(field_type: PrimitiveType) -> None:
    assert type_of_kind(kind_of(field_type)) == field_type


@pytest.mark.parametrize("kind", ["", "decimal_39_2", "decimal_9", "fixed_0", "fixed_-1", "list", "int\n"])
def test_a_word_that_is_no_type_is_refused(kind: str) -> None:
    with pytest.raises(ValueError):
        type_of_kind(kind)


@given(st.integers(1, 38))
def test_decimals_take_the_fewest_bytes_that_hold_them(precision: int) -> None:
    size, largest = decimal_size_in_bytes(precision), 10**precision - 1
    (-largest).to_bytes(size, "big", signed=True)
    with pytest.raises(OverflowError):
        largest.to_bytes(size - 1, "big", signed=True)


def test_any_avro_library_accepts_the_schema() -> None:
    fastavro.parse_schema(json.loads(schema_bytes(content_entry_schema(TRACKED))))


@given(st.lists(st.sampled_from(TYPES), max_size=8), st.sets(st.integers(1, 8)))
def test_the_schema_gives_back_ids_and_types(types: list[PrimitiveType], nan_bounds: set[int]) -> None:
    tracked = [TrackedField(position + 1, f"_{position + 1}", item) for position, item in enumerate(types)]
    present = frozenset(nan_bounds & set(range(1, len(types) + 1)))
    schema: Any = json.loads(schema_bytes(content_entry_schema(tracked, present)))
    assert tracked_of_schema(schema) == (tuple(tracked), present)


def test_the_fingerprint_is_that_of_the_canonical_form_in_avros_byte_order() -> None:
    tracked = [TrackedField(1, "a", IntegerType()), TrackedField(2, "b", DecimalType(9, 2))]
    canonical = fastavro.schema.to_parsing_canonical_form(content_stats_schema(tracked))
    assert rabin(b'"int"') == 0x7275D51A3F395C8F  # the Avro specification's own example
    assert stats_fingerprint(tracked) == rabin(canonical.encode()).to_bytes(8, "little")
    assert stats_fingerprint(tracked).hex() == "5c6b25cefe45f386"  # it is on the wire


def test_the_fingerprint_depends_on_ids_and_types_and_not_on_names() -> None:
    fingerprint = stats_fingerprint([TrackedField(1, "a", IntegerType())])
    assert stats_fingerprint([TrackedField(1, "renamed", IntegerType())]) == fingerprint
    assert stats_fingerprint([TrackedField(2, "a", IntegerType())]) != fingerprint
    assert stats_fingerprint([TrackedField(1, "a", FixedType(4))]) != fingerprint


def rabin(text: bytes) -> int:
    """CRC-64-AVRO, bit by bit as the Avro specification defines it."""
    empty = 0xC15D213AA4D7A795
    state = empty
    for byte in text:
        state ^= byte
        for _ in range(8):
            state = (state >> 1) ^ (empty if state & 1 else 0)
    return state
