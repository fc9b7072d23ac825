"""Partition specs and sort orders that are added to a definition, rule by rule of the specification."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType, TimestampType

from rootline.schemas.errors import Invalid
from rootline.schemas.field_ids import MAX_TRACKED_ID
from rootline.schemas.table_definition import (
    Expression,
    PartitionSpec,
    SortField,
    SortOrder,
    TableDefinition,
)
from rootline.tree.evolution.changes import (
    AddSchema,
    AddSpec,
    DefinitionChange,
    DefinitionChanges,
    PartitionField,
    RemoveSchemas,
    RemoveSpecs,
    SetDefaultSortOrder,
    SetDefaultSpec,
    SetProperties,
    order_changes,
    schema_changes,
    spec_changes,
)
from rootline.tree.evolution.next_definition import evolved, first_definition
from rootline.tree.evolution.specs_and_orders import partition_field_ids
from tests.tree.tables import DEFINITION

COLUMNS = (
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "city", StringType(), required=False),
    NestedField(3, "ts", TimestampType(), required=False),
    NestedField(4, "at", StructType(NestedField(5, "x", LongType(), required=False)), required=False),
)
BEFORE = replace(
    DEFINITION,
    schemas=(Schema(*COLUMNS, schema_id=0),),
    expressions=(Expression(6, (1,), "bucket[4]", "id_bucket"),),
    partition_specs=(PartitionSpec(0, (6, 2)),),
    default_spec_id=0,
    sort_orders=(SortOrder(0),),
    default_sort_order_id=0,
    last_column_id=6,
)
BUCKET = PartitionField((1,), "bucket[4]", "id_bucket")
CITY = PartitionField((2,), "identity", "city")
DAY = PartitionField((3,), "day", "ts_day")


def after(*changes: DefinitionChange, before: TableDefinition = BEFORE) -> TableDefinition:
    wire = DefinitionChanges.from_json(DefinitionChanges(None, changes).to_json())
    return evolved(before, wire)


def refused(code: str, said: str, *changes: DefinitionChange, before: TableDefinition = BEFORE) -> None:
    with pytest.raises(Invalid, match=said) as raised:
        after(*changes, before=before)
    assert raised.value.code == code


def test_a_spec_is_added_and_its_new_fields_get_the_next_ids() -> None:
    found = after(*spec_changes([DAY, CITY, PartitionField((5,), "identity", "at.x")]))
    assert found.partition_specs == (
        *BEFORE.partition_specs,
        PartitionSpec(1, (7, 2, 5), (), ("ts_day", "city", "at.x")),
    )
    assert found.expressions == (*BEFORE.expressions, Expression(7, (3,), "day", "ts_day"))
    assert (found.default_spec_id, found.last_column_id) == (1, 7)
    assert partition_field_ids(found) == {(0, 0): 1000, (0, 1): 1001, (1, 0): 1002, (1, 1): 1001, (1, 2): 1003}
    assert TableDefinition.from_json(found.to_json()) == found


def test_equal_specs_and_partition_fields_are_found_again() -> None:
    once = after(*spec_changes([DAY]))
    back = after(*spec_changes([BUCKET, CITY]), before=once)
    assert (back.default_spec_id, back.partition_specs) == (0, once.partition_specs)
    assert after(*spec_changes([replace(BUCKET, transform="bucket[04]"), CITY]), before=back) is back
    assert after(*spec_changes([DAY]), before=back) == once
    other = after(*spec_changes([CITY, DAY]), before=back)
    assert other.spec_by_id(2).expr_ids == (2, 7), "the field has the id that it had"
    assert other.expressions == once.expressions
    assert after(SetDefaultSpec(0)) is BEFORE


def test_the_same_fields_under_another_name_are_another_spec_with_the_same_ids() -> None:
    named = after(*spec_changes([replace(BUCKET, name="shard"), CITY]))
    assert named.spec_by_id(1) == PartitionSpec(1, (6, 2), (), ("shard", "city"))
    assert named.expressions == BEFORE.expressions
    ids = partition_field_ids(named)
    assert (ids[1, 0], ids[1, 1]) == (ids[0, 0], ids[0, 1])


def test_two_expressions_never_share_a_name() -> None:
    found = after(*spec_changes([PartitionField((1,), "bucket[8]", "id_bucket")]))
    assert [one.name for one in found.expressions] == ["id_bucket", "id_bucket_7"]
    assert found.spec_by_id(1).names == ("id_bucket",)


def test_a_table_may_become_unpartitioned() -> None:
    found = after(*spec_changes([]))
    assert found.spec_by_id(found.default_spec_id) == PartitionSpec(1)
    assert after(*spec_changes([]), before=found) is found


def test_columns_and_fields_of_them_come_in_one_list_in_either_order() -> None:
    gate = Schema(*COLUMNS, NestedField(7, "gate", StringType(), required=False), schema_id=9)
    fields = [PartitionField((7,), "identity", "gate"), DAY]
    one, other = (
        after(*schema_changes(gate), *spec_changes(fields)),
        after(*spec_changes(fields), *schema_changes(gate)),
    )
    assert one == other
    assert one.spec_by_id(1).expr_ids == (7, 8)
    refused("evolution-illegal", "which the current schema lacks", AddSchema(gate), *spec_changes(fields))


@pytest.mark.parametrize(
    ("code", "said", "field"),
    [
        ("definition-invalid", "name the ids of primitive columns", PartitionField((9,), "day", "d")),
        ("definition-invalid", "name the ids of primitive columns", PartitionField((4,), "bucket[2]", "d")),
        ("definition-invalid", "neither a column", PartitionField((9,), "identity", "d")),
        ("definition-invalid", "neither a column", PartitionField((4,), "identity", "at")),
        ("definition-invalid", "does not apply", PartitionField((2,), "day", "d")),
        ("definition-invalid", "cannot be read", PartitionField((1,), "bucket[0]", "d")),
        ("definition-invalid", "cannot be read", PartitionField((2,), "truncate[x]", "d")),
        ("definition-invalid", "cannot partition", PartitionField((2,), "zorder", "d")),
        ("definition-invalid", "cannot partition", PartitionField((2,), "lower", "d")),
        ("definition-invalid", "name of another column", PartitionField((1,), "bucket[8]", "ts")),
        ("definition-invalid", "name of another column", PartitionField((2,), "identity", "ts")),
        ("evolution-illegal", "field-id 1000", PartitionField((1,), "bucket[8]", "b", 1000)),
    ],
)
def test_a_field_that_cannot_partition_says_why(code: str, said: str, field: PartitionField) -> None:
    refused(code, said, *spec_changes([field]))


@pytest.mark.parametrize(
    ("said", "fields"),
    [("occurs twice", [DAY, replace(DAY, name="d")]), ("occurs twice", [DAY, replace(BUCKET, name="ts_day")])],
)
def test_a_spec_has_each_field_and_each_name_once(said: str, fields: list[PartitionField]) -> None:
    refused("definition-invalid", said, *spec_changes(fields))


def test_a_writer_may_say_the_field_ids_that_the_table_has_and_those_that_come() -> None:
    plain = after(*spec_changes([BUCKET, DAY]))
    assert after(*spec_changes([replace(BUCKET, field_id=1000), replace(DAY, field_id=1002)])) == plain


def test_partition_fields_of_an_adopted_table_go_on_after_its_own() -> None:
    adopted = replace(
        BEFORE,
        expressions=(Expression(6, (1,), "bucket[4]", "id_bucket", 1007),),
        partition_specs=(PartitionSpec(3, (6, 2), (1007, 1003), ("id_bucket", "town")),),
        default_spec_id=3,
    )
    found = after(*spec_changes([BUCKET, DAY]), before=adopted)
    assert found.spec_by_id(4).expr_ids == (6, 7)
    assert partition_field_ids(found) == {(3, 0): 1007, (3, 1): 1003, (4, 0): 1007, (4, 1): 1008}
    back = after(*spec_changes([BUCKET, replace(CITY, name="town")]), before=found)
    assert back.default_spec_id == 3


def test_a_column_that_the_default_spec_or_order_is_of_cannot_be_dropped_and_others_can() -> None:
    def without(*names: str) -> list[DefinitionChange]:
        return list(schema_changes(Schema(*(column for column in COLUMNS if column.name not in names), schema_id=0)))

    refused("evolution-illegal", "partitioned by it", *without("city"))
    moved = after(*spec_changes([DAY]))
    gone = after(*without("city", "id"), before=moved)
    assert gone.spec_by_id(0).expr_ids == (6, 2), "files of the old spec keep it"
    assert {1, 2, 6} <= gone.tracked_by_id.keys()
    refused("evolution-illegal", "partitioned by it", SetDefaultSpec(0), before=gone)
    refused("evolution-illegal", "which the current schema lacks", AddSpec((CITY,)), before=gone)
    refused("evolution-illegal", "which the current schema lacks", *order_changes([SortField(2)]), before=gone)
    ordered = after(*order_changes([SortField(2)]), before=moved)
    refused("evolution-illegal", "sorted by it", *without("city"), before=ordered)
    both = after(*without("city"), *order_changes([]), before=ordered)
    refused("evolution-illegal", "sorted by it", SetDefaultSortOrder(1), before=both)


def test_a_column_without_statistics_partitions_nothing_and_expressions_get_ids_that_are_left() -> None:
    high = replace(
        BEFORE,
        schemas=(Schema(*COLUMNS, NestedField(20_000_000, "far", StringType(), required=False), schema_id=0),),
        last_column_id=20_000_000,
    )
    found = after(*spec_changes([DAY]), before=high)
    assert (found.expressions[-1].expr_id, found.last_column_id) == (7, 20_000_000)
    more = after(*spec_changes([replace(DAY, transform="hour", name="h")]), before=found)
    assert more.expressions[-1].expr_id == 8 <= MAX_TRACKED_ID
    refused(
        "column-untracked", "20000000", *spec_changes([PartitionField((20_000_000,), "identity", "f")]), before=high
    )


def test_orders_are_added_and_found_again_and_0_is_unsorted() -> None:
    fields = [SortField(2), SortField(3, "day", "desc", "nulls-last")]
    found = after(*order_changes(fields))
    assert found.sort_orders == (SortOrder(0), SortOrder(1, tuple(fields)))
    other = after(*order_changes([SortField(1)]), before=found)
    assert other.default_sort_order_id == 2
    back = after(*order_changes(fields), before=other)
    assert (back.default_sort_order_id, len(back.sort_orders)) == (1, 3)
    none = after(*order_changes([]), before=back)
    assert (none.default_sort_order_id, none.sort_orders) == (0, back.sort_orders)
    assert after(*order_changes([]), before=replace(BEFORE, sort_orders=())).sort_orders == (SortOrder(0),)


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ("is not a primitive column", SortField(4)),
        ("is not a primitive column", SortField(9)),
        ("direction", SortField(1, "identity", "up")),
        ("null-order", SortField(1, "identity", "asc", "nulls-never")),
        ("does not apply", SortField(2, "day")),
        ("cannot be used for sorting", SortField(2, "zorder")),
    ],
)
def test_what_cannot_be_sorted_by_says_why(said: str, field: SortField) -> None:
    refused("definition-invalid", said, *order_changes([field]))


def test_schemas_and_specs_stay_because_no_root_tells_that_nothing_needs_them() -> None:
    refused("evolution-illegal", "partition spec 0 cannot be removed", RemoveSpecs((0,)))
    refused("evolution-illegal", "schema 0 cannot be removed", RemoveSchemas((0,)))
    assert after(RemoveSpecs((7,)), RemoveSchemas((7, 8))) is BEFORE


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"action": "add-spec"}, "'spec' is missing"),
        ({"action": "add-spec", "spec": []}, "must be an object"),
        ({"action": "add-spec", "spec": {"fields": [7]}}, "list of objects"),
        ({"action": "add-spec", "spec": {"fields": [{"transform": "day", "name": "d"}]}}, "'source-id' is missing"),
        ({"action": "add-spec", "spec": {"fields": [{"source-id": 3, "transform": "day"}]}}, "'name' is missing"),
        (
            {"action": "add-spec", "spec": {"fields": [{"source-id": True, "transform": "d", "name": "d"}]}},
            "is not an id",
        ),
        (
            {"action": "add-spec", "spec": {"fields": [{"source-id": 3, "transform": 4, "name": "d"}]}},
            "is not a string",
        ),
        ({"action": "set-default-spec", "spec-id": -1}, "no partition spec was added"),
        ({"action": "set-default-spec", "spec-id": 9}, "default-spec-id 9 is not the id of a spec"),
        ({"action": "set-default-sort-order", "sort-order-id": -1}, "no sort order was added"),
        ({"action": "set-default-sort-order", "sort-order-id": 9}, "is not the id of a sort order"),
        ({"action": "add-sort-order", "sort-order": {"fields": [{"source-id": 1, "transform": "x"}]}}, "'direction'"),
        ({"action": "remove-schemas", "schema-ids": 3}, "list of ids"),
        ({"action": "add-spec", "spec": {"fields": [{"source-id": 1}] * 1001}}, "'transform' is missing"),
    ],
)
def test_changes_that_cannot_be_read_or_meant_say_why(change: dict[str, Any], said: str) -> None:
    with pytest.raises(Invalid, match=said) as raised:
        evolved(BEFORE, DefinitionChanges.from_json(json.dumps({"changes": [change]})))
    assert raised.value.code == "definition-invalid"


def test_a_list_that_would_add_thousands_of_fields_is_refused() -> None:
    many = tuple(PartitionField((1,), f"bucket[{number}]", f"b{number}") for number in range(1, 600))
    refused("definition-invalid", "can be added at once", AddSpec(many), AddSpec(many))


def test_last_ids_never_fall_over_a_chain_of_changes() -> None:
    found, last = BEFORE, BEFORE.last_column_id
    for number in range(1, 30):
        fields = [[DAY], [BUCKET, DAY], [PartitionField((1,), f"bucket[{number}]", f"b{number}")], []][number % 4]
        found = after(*spec_changes(fields), *order_changes([SortField(1 + number % 3)]), before=found)
        assert found.last_column_id >= last
        last = found.last_column_id
        assert [spec.spec_id for spec in found.partition_specs] == list(range(len(found.partition_specs)))
        assert [order.order_id for order in found.sort_orders] == list(range(len(found.sort_orders)))


def first(*changes: DefinitionChange) -> TableDefinition:
    wire = DefinitionChanges.from_json(DefinitionChanges(None, changes).to_json())
    return first_definition(DEFINITION.table_uuid, wire)


def test_changes_of_nothing_are_a_first_definition_whose_ids_begin_at_0() -> None:
    schema = Schema(*COLUMNS, schema_id=7)
    order = SortField(1, "identity", "desc", "nulls-last")
    made = first(*schema_changes(schema), *spec_changes((DAY, CITY)), *order_changes((order,)))
    assert [each.schema_id for each in made.schemas] == [0]
    assert made.partition_specs == (PartitionSpec(0, (6, 2), (), ("ts_day", "city")),)
    assert (made.default_spec_id, made.default_sort_order_id, made.last_column_id) == (0, 1, 6)
    assert sorted(partition_field_ids(made).values()) == [1000, 1001]


def test_a_first_definition_may_have_several_schemas_and_its_expressions_avoid_their_ids() -> None:
    wider = Schema(*COLUMNS, NestedField(6, "late", LongType(), required=True), schema_id=0)
    made = first(*schema_changes(Schema(*COLUMNS)), *spec_changes((DAY,)), *schema_changes(wider))
    assert (made.current_schema_id, made.last_column_id) == (1, 7)
    assert made.expressions[0].expr_id == 7


def test_a_first_definition_without_a_spec_is_unpartitioned_and_one_without_a_schema_is_refused() -> None:
    assert first(*schema_changes(Schema(*COLUMNS))).partition_specs == (PartitionSpec(0),)
    with pytest.raises(Invalid, match="current-schema-id 0 is not the id of a schema"):
        first(SetProperties({"a": "b"}))
