"""Decimals that no codec can write: refused as any other definition, and the table goes on."""

from __future__ import annotations

from pyiceberg.types import DecimalType, ListType, NestedField

from rootline.tree.evolution.changes import schema_changes
from tests.tree.intents.test_alter import MORE, alter, outcomes, schema
from tests.tree.tables import Lake, append, changed_definition, create, new_lake

WRONG = "decimal(9, 20)"


def test_a_scale_above_the_precision_is_refused_and_the_table_goes_on() -> None:
    lake = new_lake(append("a"))
    wrong = schema(NestedField(MORE, "price", DecimalType(9, 20), required=False))
    changed = alter("x", *schema_changes(wrong), replaces=lake.head.header.definition.digest)
    assert outcomes(lake, changed, append("b")) == ["definition-invalid", "committed"]


def test_no_table_begins_with_it_at_any_depth() -> None:
    inside = ListType(6, DecimalType(2, 3), element_required=False)
    fields = [[{"id": 1, "name": "price", "required": False, "type": WRONG}]]
    fields += [[NestedField(5, "prices", inside, required=False).model_dump(mode="json", by_alias=True)]]
    for made in fields:
        body = changed_definition(
            schemas=[{"type": "struct", "schema-id": 0, "fields": made}],
            expressions=[],
            partition_specs=[{"spec-id": 0, "fields": []}],
            last_column_id=6,
        )
        [verdict] = Lake().put(create("create", body))
        assert verdict.code == "definition-invalid"
        assert "its scale must be from 0 up to its precision" in (verdict.message or "")


def test_a_default_of_a_decimal_that_cannot_be_is_refused_and_the_table_goes_on() -> None:
    lake = new_lake(append("a"))
    right = alter(
        "x",
        *schema_changes(schema(NestedField(MORE, "price", DecimalType(9, 2), required=False))),
        replaces=lake.head.header.definition.digest,
    )
    text = (right.definition or "").replace('"type":"decimal(9, 2)"', '"initial-default":"1","type":"decimal(99, 2)"')
    assert "99" in text
    wrong = right.model_copy(update={"definition": text})
    assert outcomes(lake, wrong, append("b")) == ["definition-invalid", "committed"]
