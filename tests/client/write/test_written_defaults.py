"""What a writer puts into columns that it was not given."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType

from rootline.client.write.data_file_writer import checked_rows
from rootline.client.write.definition_builder import build_definition
from rootline.schemas.errors import Invalid

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "kind", StringType(), required=True, initial_default="old", write_default="new"),
    NestedField(3, "note", StringType(), required=False, initial_default="old"),
    NestedField(
        4, "pair", StructType(NestedField(5, "x", LongType()), NestedField(6, "y", IntegerType(), write_default=7))
    ),
)
DEFINITION = build_definition(SCHEMA, table_uuid=uuid.UUID(int=3))


def test_a_column_that_is_not_given_is_written_with_its_write_default_and_never_with_the_initial_one() -> None:
    rows = checked_rows(pa.table({"id": [1, 2]}), DEFINITION)
    assert rows.to_pydict() == {"id": [1, 2], "kind": ["new"] * 2, "note": [None] * 2, "pair": [None] * 2}


def test_a_member_of_a_struct_that_is_not_given_has_the_members_own_default() -> None:
    rows = checked_rows(pa.table({"id": [1], "pair": pa.array([{"x": 3}])}), DEFINITION)
    assert rows.column("pair").to_pylist() == [{"x": 3, "y": 7}]


def test_a_required_column_without_a_write_default_must_be_given() -> None:
    with pytest.raises(Invalid, match="column id is required, but missing"):
        checked_rows(pa.table({"kind": ["x"]}), DEFINITION)
