"""The worked example of "Why and how do we address having a global field ID space": expressions."""

from __future__ import annotations

import json
import uuid

import pytest

from rootline.schemas.bytes.transform_values import expression_value
from rootline.schemas.content_entry import ContentStats, FieldStatistics
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import Intent, IntentKind
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.filter.pruning import PruningFilter, may_match
from rootline.tree.intents.definition import definition_of

TS, STR, A, B = 9, 11, 2, 3
DAY_OF_TS, LOWER_STR, BUCKET_A_B, UNKNOWN = 101, 102, 104, 105
EXAMPLE = {
    "format-version": 4,
    "table-uuid": str(uuid.UUID(int=4)),
    "last-column-id": 105,
    "schemas": [
        {
            "type": "struct",
            "schema-id": 0,
            "identifier-field-ids": [],
            "fields": [
                {"id": TS, "name": "ts", "type": "timestamp", "required": False},
                {"id": STR, "name": "str", "type": "string", "required": False},
                {"id": A, "name": "a", "type": "int", "required": False},
                {"id": B, "name": "b", "type": "int", "required": False},
            ],
        }
    ],
    "current-schema-id": 0,
    "expressions": [
        {
            "expr-id": DAY_OF_TS,
            "expr": {"source-id": TS, "transform": "day", "name": "ts_day"},
            "partition-field-id": 1000,
        },
        {"expr-id": LOWER_STR, "expr": {"source-id": STR, "transform": "lower", "name": "lower_str"}},
        {
            "expr-id": BUCKET_A_B,
            "expr": {"source-ids": [A, B], "transform": "bucket[16]", "name": "bucket_a_b"},
            "partition-field-id": 1001,
        },
        {"expr-id": UNKNOWN, "expr": {"source-ids": [A, B], "transform": "zorder", "name": "z_a_b"}},
    ],
    "partition-specs": [{"spec-id": 0, "fields": [{"expr-id": DAY_OF_TS}, {"expr-id": BUCKET_A_B}]}],
    "default-spec-id": 0,
    "sort-orders": [{"order-id": 0, "fields": []}],
    "default-sort-order-id": 0,
    "properties": {},
}


def created(example: dict[str, object]) -> TableDefinition:
    """The definition as the coordinator takes it from a `create`."""
    text = json.dumps(example)
    return definition_of(Intent(intent_id="c", table="demo.t", kind=IntentKind.CREATE, definition=text))


@pytest.fixture
def definition() -> TableDefinition:
    return created(EXAMPLE)


def may(definition: TableDefinition, where: str, stats: ContentStats) -> bool:
    return may_match(PruningFilter.of(where, definition), stats, 10, 0)


def bucket_of(definition: TableDefinition, a: int | None, b: int | None) -> object:
    expression = definition.expressions_by_id[BUCKET_A_B]
    types = [kind for kind in definition.source_types(expression) if kind is not None]
    return expression_value(expression.transform, expression.parsed, types, [a, b])


def test_columns_and_expressions_share_one_space_of_ids(definition: TableDefinition) -> None:
    assert json.loads(definition.to_json()) == EXAMPLE
    assert definition.partition_specs[0].expr_ids == (DAY_OF_TS, BUCKET_A_B)
    tracked = {field.tracked_id: str(field.type) for field in definition.tracked_fields}
    assert tracked == {
        A: "int",
        B: "int",
        TS: "timestamp",
        STR: "string",
        DAY_OF_TS: "date",
        LOWER_STR: "string",
        BUCKET_A_B: "int",
    }


def test_an_expression_cannot_have_the_id_of_a_column() -> None:
    clash = json.loads(json.dumps(EXAMPLE))
    clash["expressions"][1]["expr-id"] = STR
    with pytest.raises(Invalid, match="used by both a column and an expression"):
        created(clash)


def test_a_bucket_of_two_columns_is_one_value_of_both_and_null_if_one_of_them_is(definition: TableDefinition) -> None:
    buckets = {(a, b): bucket_of(definition, a, b) for a in range(20) for b in range(20)}
    assert all(isinstance(bucket, int) and 0 <= bucket < 16 for bucket in buckets.values())
    assert len(set(buckets.values())) == 16
    assert bucket_of(definition, None, 3) is bucket_of(definition, 2, None) is None


def test_a_filter_on_both_columns_prunes_by_their_bucket_and_on_one_of_them_does_not(
    definition: TableDefinition,
) -> None:
    files: list[ContentStats] = [{BUCKET_A_B: FieldStatistics(bucket)} for bucket in range(16)]
    kept = [number for number, stats in enumerate(files) if may(definition, "a = 7 and b = 11", stats)]
    assert kept == [bucket_of(definition, 7, 11)]
    several = [number for number, stats in enumerate(files) if may(definition, "b in (1, 2) and a = 7", stats)]
    assert set(several) == {bucket_of(definition, 7, 1), bucket_of(definition, 7, 2)}
    assert all(may(definition, "a = 7", stats) for stats in files)
    assert all(may(definition, "a = 7 or b = 11", stats) for stats in files)
    assert not any(may(definition, "a is null", stats) for stats in files)
    assert may(definition, "a is null and b = 3", {BUCKET_A_B: FieldStatistics()})


def test_a_filter_on_a_text_prunes_by_its_lower_case(definition: TableDefinition) -> None:
    stats = {LOWER_STR: FieldStatistics("apple", "cherry", True, 10, 0)}
    assert may(definition, "str = 'Banana'", stats)
    assert not may(definition, "str = 'Zebra'", stats)
    assert not may(definition, "str in ('Zebra', 'MANGO')", stats)
    assert not may(definition, "str is null", stats)
    assert may(definition, "str > 'Zebra'", stats)
    assert may(definition, "str = 'ÄPFEL'", stats)


def test_an_expression_that_nobody_knows_is_kept_and_never_prunes(definition: TableDefinition) -> None:
    assert may(definition, "a = 7 and b = 11", {UNKNOWN: FieldStatistics(1, 1)})
    assert definition.result_type(definition.expressions_by_id[UNKNOWN]) is None


@pytest.mark.parametrize("expr_id", [LOWER_STR, UNKNOWN])
def test_what_is_no_partition_transform_cannot_partition(expr_id: int) -> None:
    spec = [{"spec-id": 0, "fields": [{"expr-id": expr_id}]}]
    with pytest.raises(Invalid, match="cannot partition"):
        created(EXAMPLE | {"partition-specs": spec})


def test_the_coordinator_refuses_a_bucket_that_names_a_column_twice() -> None:
    twice = json.loads(json.dumps(EXAMPLE))
    twice["expressions"][2]["expr"]["source-ids"] = [A, A]
    with pytest.raises(Invalid, match="source id"):
        created(twice)
