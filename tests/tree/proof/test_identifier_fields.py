"""Identifier fields as the table specification has them; any other is refused at create."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tree.tables import Lake, changed_definition, create

STRUCT = [{"id": 12, "name": "x", "type": "long", "required": True}]
LIST = {"type": "list", "element-id": 14, "element": "long", "element-required": True}
MAP = {"type": "map", "key-id": 15, "key": "long", "value-id": 16, "value": "long", "value-required": True}


def _field(field_id: int, kind: Any, *, required: bool = True) -> dict[str, Any]:
    return {"id": field_id, "name": f"c{field_id}", "type": kind, "required": required}


FIELDS = [
    _field(1, "long"),
    _field(2, "string", required=False),
    _field(3, "double"),
    _field(4, "float"),
    _field(11, {"type": "struct", "fields": STRUCT}),
    _field(21, {"type": "struct", "fields": [_field(22, "long")]}, required=False),
    _field(13, LIST),
    _field(17, MAP),
]


def _code(identifier: int) -> str | None:
    schema = {"type": "struct", "schema-id": 0, "fields": FIELDS, "identifier-field-ids": [identifier]}
    text = changed_definition(schemas=[schema], last_column_id=30, partition_specs=[{"spec-id": 0, "fields": []}],
                              expressions=[], default_spec_id=0)  # fmt: skip
    [verdict] = Lake().put(create(text=text))
    return verdict.code


@pytest.mark.parametrize("identifier", [1, 12])
def test_a_required_primitive_field_may_identify_rows_in_structs_too(identifier: int) -> None:
    assert _code(identifier) is None


@pytest.mark.parametrize("identifier", [2, 3, 4, 11, 13, 14, 15, 16, 22, 99])
def test_optional_floating_nested_and_unknown_fields_may_not_identify_rows(identifier: int) -> None:
    assert _code(identifier) == "definition-invalid"
