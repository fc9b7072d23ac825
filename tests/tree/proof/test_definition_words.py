"""Name mappings, transforms and sort orders that cannot be read are refused when the table is created."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.tree.tables import DEFINITION, Lake, changed_definition, create

BODY = json.loads(DEFINITION.to_json())
MAPPING = "schema.name-mapping.default"
SORTED = {"source-id": 1, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}


def _verdict_of(**members: object) -> tuple[str | None, str]:
    lake = Lake()
    [verdict] = lake.put(create(text=changed_definition(**members)))
    return verdict.code, verdict.message or ""


@pytest.mark.parametrize(
    "mapping",
    [
        [],
        [{"names": [], "field-id": 1}, {"names": ["other"]}],
        [{"names": ["a", "a.b"], "field-id": 1, "fields": [{"names": ["element"], "field-id": 2, "fields": None}]}],
        [{"names": ["a"], "fields": [{"names": ["x"]}]}, {"names": ["b"], "fields": [{"names": ["x"]}]}],
    ],
)
def test_a_name_mapping_of_the_specification_is_accepted(mapping: object) -> None:
    assert _verdict_of(properties={MAPPING: json.dumps(mapping)}) == (None, "")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must be JSON"),
        ("[", "must be JSON"),
        ("{}", "list of mappings must be"),
        ("null", "list of mappings must be"),
        ('[{"field-id": 1}]', "lacks names"),
        ('[{"names": "a"}]', "lacks names"),
        ('[{"names": [1]}]', "lacks names"),
        ('["a"]', "an object must be"),
        ('[{"names": ["a"], "field-id": "1"}]', "field id must be"),
        ('[{"names": ["a"], "field-id": true}]', "field id must be"),
        ('[{"names": ["a"], "fields": 7}]', "are not a list"),
        ('[{"names": ["a"], "fields": [{"field-id": 1}]}]', "lacks names"),
        ('[{"names": ["a"], "field-id": 1}, {"names": ["b"], "field-id": 1}]', "field-id 1 is given twice"),
        ('[{"names": ["a"], "field-id": 1}, {"names": ["a"], "field-id": 2}]', "name 'a' is given twice"),
    ],
)
def test_a_name_mapping_that_cannot_be_read_is_refused(text: str, reason: str) -> None:
    code, message = _verdict_of(properties={MAPPING: text})
    assert code == "property-invalid"
    assert f"property {MAPPING}" in message
    assert reason in message


@pytest.mark.parametrize(
    "transform", ["bucket[x]", "bucket", "bucket[0]", "bucket[-4]", "truncate[]", "truncate[0]", "truncate[1", 5, None]
)
@pytest.mark.parametrize("is_used", [True, False])
def test_a_transform_that_cannot_be_read_is_refused_by_the_name_of_its_expression(
    transform: object, is_used: bool
) -> None:
    expressions = [{"expr-id": 9, "expr": {"source-id": 1, "transform": transform, "name": "odd"}}]
    specs = [{"spec-id": 0, "fields": [{"expr-id": 9}] if is_used else []}]
    code, message = _verdict_of(expressions=expressions, partition_specs=specs, last_column_id=9)
    assert code == "definition-invalid"
    assert "'odd'" in message
    assert repr(transform) in message


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        ({"order-id": 1, "fields": [SORTED | {"direction": "down"}]}, "direction 'down' is neither asc nor desc"),
        ({"order-id": 1, "fields": [SORTED | {"direction": "ASC"}]}, "direction 'ASC'"),
        ({"order-id": 1, "fields": [SORTED | {"direction": None}]}, "direction None"),
        ({"order-id": 1, "fields": [SORTED | {"null-order": "last"}]}, "null-order 'last' is neither"),
        ({"order-id": 1, "fields": [SORTED | {"null-order": 1}]}, "null-order 1"),
        ({"order-id": 1, "fields": [SORTED | {"transform": "bucket[x]"}]}, "'bucket[x]'"),
        ({"order-id": 1, "fields": [SORTED | {"transform": "truncate[0]"}]}, "'truncate[0]'"),
        ({"order-id": 1, "fields": [SORTED | {"transform": "sorcery"}]}, "'sorcery'"),
        ({"order-id": 1, "fields": [SORTED | {"transform": 7}]}, "transform 7"),
        ({"order-id": 1, "fields": [SORTED | {"transform": "month"}]}, "month does not apply to long"),
        ({"order-id": 1, "fields": []}, "has no fields"),
        ({"order-id": 0, "fields": [SORTED]}, "order 0 means unsorted"),
    ],
)
def test_a_sort_order_that_cannot_be_read_is_refused_by_its_id(order: dict[str, Any], reason: str) -> None:
    code, message = _verdict_of(sort_orders=[order])
    assert code == "definition-invalid"
    assert f"sort order {order['order-id']}" in message
    assert reason in message


def test_sort_orders_of_the_specification_are_accepted() -> None:
    fields = [SORTED, SORTED | {"transform": "bucket[4]", "direction": "desc", "null-order": "nulls-last"}]
    orders = [{"order-id": 0, "fields": []}, {"order-id": 1, "fields": fields}]
    assert _verdict_of(sort_orders=orders, default_sort_order_id=1) == (None, "")


def _typed(kind: object) -> list[object]:
    [schema] = json.loads(DEFINITION.to_json())["schemas"]
    schema["fields"].append({"id": 9, "name": "x", "type": kind, "required": False, "doc": "what it is"})
    return [schema]


def test_a_decimal_has_38_digits_at_most() -> None:
    assert _verdict_of(schemas=_typed("decimal(38, 2)"), last_column_id=9)[0] is None
    assert _verdict_of(schemas=_typed("decimal(39, 2)"), last_column_id=9)[0] == "definition-invalid"


def test_the_doc_string_of_a_field_is_kept() -> None:
    lake = Lake()
    lake.put(create(text=changed_definition(schemas=_typed("long"), last_column_id=9)))
    [stored] = lake.objects.values()
    assert b'"doc":"what it is"' in stored
