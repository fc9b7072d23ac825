"""Table metadata of Iceberg V1 to V3 becomes a definition of ours, ids and names as they are."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import Any

import pytest

from rootline.catalog.adopted_definition import ADOPTED_FROM, adopted_definition
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.table_definition import Expression, PartitionSpec, SortField, SortOrder, TableDefinition
from rootline.tree.proof.definition_rules import check_definition

WHERE = "s3://bucket/wh/t/metadata/7.metadata.json"
UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"


def column(field_id: int, name: str, kind: Any = "long", **more: Any) -> dict[str, Any]:
    return {"id": field_id, "name": name, "required": False, "type": kind, **more}


def schema(*columns: dict[str, Any], schema_id: int = 0, **more: Any) -> dict[str, Any]:
    return {"type": "struct", "schema-id": schema_id, "fields": list(columns), **more}


def member(source_id: int, transform: str, name: str, field_id: int) -> dict[str, Any]:
    return {"source-id": source_id, "transform": transform, "name": name, "field-id": field_id}


def metadata(**more: Any) -> dict[str, Any]:
    """Of a V2 table with two columns, one that was dropped since, and two specs."""
    return {
        "format-version": 2,
        "table-uuid": UUID,
        "last-column-id": 9,
        "schemas": [
            schema(column(1, "id", "int"), column(2, "at", "timestamptz"), column(3, "gone", "string")),
            schema(column(1, "number"), column(2, "at", "timestamptz"), schema_id=1, **{"identifier-field-ids": []}),
        ],
        "current-schema-id": 1,
        "partition-specs": [
            {"spec-id": 0, "fields": [member(2, "month", "at_month", 1000), member(1, "identity", "id", 1001)]},
            {"spec-id": 1, "fields": [member(2, "day", "at_day", 1002), member(2, "month", "m", 1000)]},
        ],
        "default-spec-id": 1,
        "sort-orders": [
            {"order-id": 0, "fields": []},
            {"order-id": 4, "fields": [
                {"source-id": 2, "transform": "day", "direction": "desc", "null-order": "nulls-last"}
            ]},
        ],
        "default-sort-order-id": 4,
        "properties": {"owner": "me", "rootline.version": "3", "schema.name-mapping.default": "[]"},
    } | more  # fmt: skip


def definition_of(body: dict[str, Any]) -> TableDefinition:
    return adopted_definition(body, WHERE).definition


def refused(body: dict[str, Any]) -> Invalid:
    with pytest.raises(Invalid) as caught:
        adopted_definition(body, WHERE)
    assert caught.value.message.startswith(WHERE)
    return caught.value


def test_schemas_ids_and_the_tables_uuid_stay_what_they_are() -> None:
    found = definition_of(metadata())
    assert found.table_uuid == uuid.UUID(UUID)
    assert [one.schema_id for one in found.schemas] == [0, 1]
    assert [(field.field_id, field.name, str(field.field_type)) for field in found.schema.fields] == [
        (1, "number", "long"),
        (2, "at", "timestamptz"),
    ]
    assert found.tracked_by_id[3].name == "gone"


def test_a_source_and_its_transform_are_one_expression_whatever_spec_has_them() -> None:
    found = definition_of(metadata())
    assert found.expressions == (
        Expression(10, (2,), "month", "at_month", 1000),
        Expression(11, (2,), "day", "at_day", 1002),
    )
    assert found.partition_specs == (
        PartitionSpec(0, (10, 1), (1000, 1001), ("at_month", "id")),
        PartitionSpec(1, (11, 10), (1002, 1000), ("at_day", "m")),
    )
    assert found.default_spec_id == 1
    assert found.last_column_id == 11  # above every id that a column ever had, dropped ones too


def test_what_the_members_of_a_spec_were_called_is_read_back_from_the_definitions_json() -> None:
    found = definition_of(metadata())
    assert TableDefinition.from_json(found.to_json()) == found
    members = json.loads(found.to_json())["partition-specs"][1]["fields"]
    assert members[0] == {"expr-id": 11, "name": "at_day", "partition-field-id": 1002}


def test_sort_orders_and_properties_come_along_and_say_where_from() -> None:
    found = definition_of(metadata())
    assert found.sort_orders == (SortOrder(0), SortOrder(4, (SortField(2, "day", "desc", "nulls-last"),)))
    assert found.default_sort_order_id == 4
    assert found.properties == {"owner": "me", "schema.name-mapping.default": "[]", ADOPTED_FROM: WHERE}


def test_version_1_has_one_schema_and_one_spec_without_ids() -> None:
    body = {
        "format-version": 1,
        "last-column-id": 2,
        "schema": {"type": "struct", "fields": [column(1, "id"), column(2, "day", "date", required=True)]},
        "partition-spec": [
            {"source-id": 2, "transform": "identity", "name": "day"},
            {"source-id": 1, "transform": "bucket[4]", "name": "id_bucket"},
        ],
    }
    found = definition_of(body)
    assert found.table_uuid == definition_of(body).table_uuid  # it has none of its own: the location makes one
    assert found.schema.schema_id == 0
    assert found.partition_specs == (PartitionSpec(0, (2, 3), (1000, 1001), ("day", "id_bucket")),)
    assert found.sort_orders == (SortOrder(0),)


def test_a_dropped_field_of_version_1_stays_as_void() -> None:
    fields = [member(1, "void", "a", 1000), member(2, "void", "b", 1001), member(2, "void", "c", 1002)]
    found = definition_of(metadata(**{"partition-specs": [{"spec-id": 0, "fields": fields}], "default-spec-id": 0}))
    assert found.partition_specs[0].expr_ids == (10, 11, 12)
    assert [(one.source_ids, one.partition_field_id) for one in found.expressions] == [
        ((1,), 1000),
        ((2,), 1001),
        ((2,), 1002),
    ]


def test_defaults_of_version_3_are_kept() -> None:
    body = metadata(**{"format-version": 3, "next-row-id": 5})
    body["schemas"][1]["fields"].append(column(7, "rate", "int", **{"initial-default": 3, "write-default": 4}))
    pair = {"type": "struct", "fields": [column(9, "x", "int")]}
    body["schemas"][1]["fields"].append(column(8, "pair", pair, **{"initial-default": {"9": 3}, "write-default": {}}))
    schema = definition_of(body).schema
    found = schema.find_field("rate")
    assert (found.initial_default, found.write_default) == (3, 4)
    assert schema.find_field("pair").model_dump()["initial-default"] == {"9": 3}


def test_a_sort_order_of_a_column_that_no_schema_has_is_left_out_with_a_warning() -> None:
    order = {
        "order-id": 4,
        "fields": [{"source-id": 8, "transform": "day", "direction": "asc", "null-order": "nulls-first"}],
    }
    found = adopted_definition(metadata(**{"sort-orders": [order]}), WHERE)
    assert found.definition.sort_orders == ()
    assert found.definition.default_sort_order_id == 0
    assert "sort order 4" in found.warnings[0]


def test_a_sort_order_by_a_transform_that_is_not_known_is_left_out_with_a_warning() -> None:
    field = {"source-id": 2, "transform": "zorder", "direction": "asc", "null-order": "nulls-first"}
    found = adopted_definition(metadata(**{"sort-orders": [{"order-id": 4, "fields": [field]}]}), WHERE)
    assert (found.definition.sort_orders, found.definition.default_sort_order_id) == ((), 0)
    assert found.warnings == ("sort order 4 is omitted: transform zorder is unknown",)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"format-version": 4}, "format version is 4, and only 1, 2 and 3 are supported"),
        ({"encryption-keys": [{"key-id": "a"}]}, "encrypted"),
        ({"schemas": [schema(column(1, "v", "variant"))], "current-schema-id": 0}, "column 'v'"),
        ({"schemas": [schema(column(1, "g", "geometry"), column(2, "at", "date"))], "current-schema-id": 0}, "'g'"),
        (
            {"current-schema-id": 0, "schemas": [
                schema(column(1, "rate", "decimal(4, 2)", **{"initial-default": "x"}), column(2, "at", "date"))
            ]},
            "schema 0: field 'rate' has initial-default 'x', which is not of type decimal",
        ),
        ({"properties": {"schema.name-mapping.default": "{"}}, "name-mapping.default is .* must be JSON"),
        ({"partition-specs": [{"spec-id": 1, "fields": [member(2, "zorder", "z", 1000)]}]}, "zorder"),
        ({"partition-specs": [{"spec-id": 1, "fields": [member(8, "day", "d", 1000)]}]}, r"\[8\]"),
        (
            {"partition-specs": [{"spec-id": 1, "fields": [member(2, "day", "d", 1000), member(2, "day", "e", 1001)]}]},
            "twice",
        ),
        (
            {"partition-specs": [{"spec-id": 1, "fields": [
                {"source-ids": [1, 2], "transform": "bucket[2]", "name": "b", "field-id": 1000}
            ]}]},
            "2 columns",
        ),
    ],
)  # fmt: skip
def test_what_a_table_of_ours_cannot_have_is_refused_by_name(more: dict[str, Any], reason: str) -> None:
    error = refused(metadata(**more))
    assert error.code == "adoption-unsupported"
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(error.message)


def test_schemas_that_no_intent_could_carry_are_left_out_the_oldest_first() -> None:
    wide = [column(key, f"column_{key}_{'x' * 60}") for key in range(10, 1010)]
    gone = schema(column(2, "at", "timestamptz"), column(3, "gone", "string"), *wide, schema_id=0)
    later = [schema(column(2, "at", "timestamptz"), *wide, schema_id=key) for key in range(1, 9)]
    order = [{"source-id": 3, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}]
    more = {"schemas": [gone, *later], "current-schema-id": 4, "last-column-id": 1010, "default-spec-id": 0}
    specs = {"partition-specs": [{"spec-id": 0, "fields": [member(2, "day", "d", 1000)]}]}
    orders = {"sort-orders": [{"order-id": 0, "fields": []}, {"order-id": 4, "fields": order}]}
    found = adopted_definition(metadata(**more, **specs, **orders), WHERE)
    kept = [one.schema_id for one in found.definition.schemas]
    assert kept[:2] == [0, 4]  # an order is by a column that no other schema has; the current one always stays
    assert 0 < len(kept) < 9
    assert kept[2:] == list(range(kept[2], 9))
    assert len(found.definition.to_json()) <= 800_000
    assert "older schemas are omitted" in found.warnings[0]


@pytest.mark.parametrize(
    "more", [{"last-column-id": "x"}, {"schemas": 3}, {"partition-specs": [{"fields": []}]}, {"table-uuid": "x"}]
)
def test_what_is_no_table_metadata_is_unreadable(more: dict[str, Any]) -> None:
    assert refused(metadata(**more)).code == "metadata-unreadable"


def test_the_members_of_a_spec_all_have_a_name_and_a_field_id_of_their_own_or_none_has() -> None:
    found = definition_of(metadata())
    body = json.loads(found.to_json())
    del body["partition-specs"][0]["fields"][1]["name"]
    with pytest.raises(Corrupt, match="some of its members have a name"):
        TableDefinition.from_json(json.dumps(body).encode())
    for more in ({"field_ids": (1000, 1000)}, {"names": ("a", "a")}, {"field_ids": (1000, 2**31)}):
        spec = replace(found.partition_specs[0], **more)
        with pytest.raises(Invalid, match="partition spec 0"):
            check_definition(replace(found, partition_specs=(spec, found.partition_specs[1])))
