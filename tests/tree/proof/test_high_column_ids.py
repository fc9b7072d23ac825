"""Column ids up to 2,147,483,447; above 10,000,000 a column has no statistics."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from rootline.client.create_drop import build_definition
from rootline.schemas.errors import Invalid
from rootline.schemas.field_ids import MAX_COLUMN_ID, MAX_TRACKED_ID
from rootline.tree.proof.definition_rules import check_definition
from tests.storage.stored_deletes import equality_delete
from tests.storage.stored_tables import StoredTable
from tests.tree.tables import DEFINITION, Lake, changed_definition, create

HIGH = MAX_TRACKED_ID + 1
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(HIGH, "far", StringType(), required=False),
    NestedField(MAX_COLUMN_ID, "last", LongType(), required=False),
)
ROWS = pa.table({"id": range(6), "far": ["a", "b", None] * 2, "last": range(10, 16)})


def _verdict_of(**members: Any) -> tuple[str | None, str]:
    [schema] = json.loads(DEFINITION.to_json())["schemas"]
    schema["fields"].append({"id": HIGH, "name": "far", "type": "string", "required": False})
    [verdict] = Lake().put(create(text=changed_definition(schemas=[schema], last_column_id=HIGH + 1, **members)))
    return verdict.code, verdict.message or ""


def test_the_greatest_column_id_leaves_room_for_the_reserved_ones() -> None:
    assert MAX_COLUMN_ID == 2_147_483_447
    check_definition(build_definition(SCHEMA, table_uuid=uuid.UUID(int=3)))
    for column_id in (0, -1, MAX_COLUMN_ID + 1, 2**31):
        schema = Schema(NestedField(column_id, "x", LongType(), required=False))
        with pytest.raises(Invalid, match=r"outside 1\.\.2147483447"):
            check_definition(build_definition(schema, table_uuid=uuid.UUID(int=3)))


def test_a_column_with_a_high_id_is_written_read_filtered_and_deleted_from() -> None:
    table = StoredTable(build_definition(SCHEMA, partition_by=["bucket(2, id)"], table_uuid=uuid.UUID(int=3)))
    table.entries = list(table.write(ROWS))
    assert all(HIGH not in entry.content_stats and 1 in entry.content_stats for entry in table.entries)
    table.commit()
    assert sorted(table.scan("far = 'a'").column("id").to_pylist()) == [0, 3]
    assert sorted(table.scan("last > 13").column("id").to_pylist()) == [4, 5]


def test_rows_are_deleted_by_equality_of_a_column_with_a_high_id() -> None:
    table = StoredTable(build_definition(SCHEMA, table_uuid=uuid.UUID(int=3)))
    table.entries = list(table.write(ROWS))
    table.entries.append(equality_delete(table, pa.table({"far": ["a"]}), [HIGH], 2, with_statistics=False))
    table.commit()
    assert sorted(table.scan().column("id").to_pylist()) == [1, 2, 4, 5]


def test_expressions_over_low_columns_take_ids_from_what_is_left_below() -> None:
    definition = build_definition(SCHEMA, partition_by=["bucket(2, id)"], table_uuid=uuid.UUID(int=3))
    assert [one.expr_id for one in definition.expressions] == [2]
    assert definition.last_column_id == MAX_COLUMN_ID
    check_definition(definition)


@pytest.mark.parametrize(
    "members",
    [
        {"partition_specs": [{"spec-id": 0, "fields": [{"expr-id": HIGH}]}]},
        {"expressions": [{"expr-id": 9, "expr": {"source-id": HIGH, "transform": "bucket[4]", "name": "b"}}]},
        {
            "sort_orders": [
                {
                    "order-id": 1,
                    "fields": [
                        {"source-id": HIGH, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}
                    ],
                }
            ]
        },
    ],
)
def test_what_needs_statistics_refuses_a_column_with_a_high_id_by_a_code_of_its_own(members: dict[str, Any]) -> None:
    code, message = _verdict_of(**members)
    assert code == "column-untracked"
    assert f"column id {HIGH}" in message


def test_an_expression_itself_has_a_low_id() -> None:
    expressions = [{"expr-id": HIGH + 1, "expr": {"source-id": 1, "transform": "bucket[4]", "name": "b"}}]
    code, message = _verdict_of(expressions=expressions)
    assert (code, "'b'" in message) == ("definition-invalid", True)
