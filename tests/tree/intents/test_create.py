from __future__ import annotations

import hashlib
import json
import uuid

import pytest

from rootline.schemas.table_definition import TableDefinition
from tests.tree.tables import DEFINITION, Lake, append, changed_definition, codes, create, new_lake

BODY = json.loads(DEFINITION.to_json())


def field(field_id: int, name: str, kind: object) -> dict[str, object]:
    return {"id": field_id, "name": name, "type": kind, "required": False}


def schema(*fields: dict[str, object]) -> list[dict[str, object]]:
    return [{"type": "struct", "schema-id": 0, "fields": list(fields), "identifier-field-ids": []}]


def test_create_makes_root_0_and_stores_the_definition_first() -> None:
    lake = Lake()
    [verdict] = lake.put(create())
    assert (verdict.code, verdict.version, verdict.sequence_number) == (None, 0, 1)
    reference = lake.head.header.definition
    stored = lake.objects[reference.location]
    assert hashlib.sha256(stored).digest() == reference.digest
    assert TableDefinition.from_json(stored).to_json() == DEFINITION.to_json()
    assert lake.head.root.row_count == 0


def test_what_follows_a_create_in_its_batch_is_applied_to_the_new_table() -> None:
    lake = Lake()
    assert codes(lake.put(append("early"), create(), append("a"))) == ["table-unknown", None, None]
    assert lake.head.header.version == 0
    assert lake.head.header.totals.data_files == 1


def test_a_table_that_exists_is_not_created_again() -> None:
    lake = Lake()
    assert codes(lake.put(create("c1"), create("c2"))) == [None, "table-exists"]
    assert codes(lake.put(create("c3"))) == ["table-exists"]


def test_a_create_sent_again_by_its_writer_is_a_duplicate() -> None:
    lake = Lake()
    first = create("c", writer_id="w", writer_sequence=0)
    lake.put(first)
    [verdict] = lake.put(first)
    assert (verdict.kind, verdict.version) == ("duplicate", 0)


def test_a_create_that_fails_makes_no_root() -> None:
    lake = Lake()
    assert codes(lake.put(create(text="{}"))) == ["definition-invalid"]
    assert lake.state is None


def test_the_same_create_stores_the_same_object_and_another_definition_another() -> None:
    lakes = [Lake(), Lake(), Lake()]
    lakes[0].put(create("c"))
    lakes[1].put(create("c"))
    lakes[2].put(create("c", changed_definition(properties={"owner": "me"})))
    locations = [lake.head.header.definition.location for lake in lakes]
    assert locations[0] == locations[1] != locations[2]


def test_an_intent_of_another_table_uuid_is_rejected() -> None:
    assert codes(Lake().put(create(table_uuid=uuid.UUID(int=9)))) == ["table-uuid-mismatch"]


@pytest.mark.parametrize(
    "members",
    [
        {"schemas": schema(field(1, "place", "geometry"))},
        {"schemas": schema(field(1, "place", "geography"))},
        {"schemas": schema(field(1, "any", "variant"))},
        {"schemas": schema(field(1, "nothing", "unknown"))},
        {"schemas": schema(field(1, "odd", "int128"))},
        {"schemas": schema(field(1, "id", "long"), field(1, "again", "long"))},
        {"schemas": schema(field(1, "id", "long"), field(2, "id", "long"))},
        {"schemas": schema(field(0, "id", "long"))},
        {"schemas": schema(field(2_147_483_448, "id", "long"))},
        {
            "schemas": schema(
                field(
                    1,
                    "deep",
                    {"type": "list", "element-id": 2, "element": "geometry", "element-required": False},
                )
            )
        },
        {"schemas": []},
        {"schemas": 7},
        {"current_schema_id": 4},
        {"default_spec_id": 9},
        {"last_column_id": 1},
        {"expressions": [{"expr-id": 2, "expr": {"source-id": 1, "transform": "bucket[4]", "name": "b"}}]},
        {"expressions": [{"expr-id": 4, "expr": {"source-id": 77, "transform": "bucket[4]", "name": "b"}}]},
        {"expressions": [{"expr-id": 4, "expr": {"source-id": 1, "transform": "sorcery", "name": "b"}}]},
        {"expressions": [{"expr-id": 4, "expr": {"source-id": 2, "transform": "month", "name": "b"}}]},
        {"partition_specs": [{"spec-id": 0, "fields": [{"expr-id": 99}]}]},
        {"partition_specs": [{"spec-id": 0, "fields": [{"expr-id": 2}, {"expr-id": 2}]}]},
        {"partition_specs": [{"spec-id": 0, "fields": []}, {"spec-id": 0, "fields": []}]},
        {"default_sort_order_id": 5},
        {"properties": {"a": 1}},
        {"properties": ["a"]},
        {"format_version": 2},
        {"table_uuid": "no"},
    ],
)
def test_a_definition_that_cannot_be_stored_is_rejected(members: dict[str, object]) -> None:
    lake = Lake()
    assert codes(lake.put(create(text=changed_definition(**members)))) == ["definition-invalid"]
    assert lake.objects == {}


@pytest.mark.parametrize("text", ["", "null", "[]", "{", '"x"', "[" * 5000, '{"a":' * 5000, "\ud800"])
def test_what_is_no_definition_at_all_is_rejected(text: str) -> None:
    try:
        hostile = create(text=text)
    except ValueError:
        return  # the wire model refuses it already
    assert codes(Lake().put(hostile)) == ["definition-invalid"]


def test_an_unknown_transform_may_stay_where_no_spec_uses_it() -> None:
    expressions = [*BODY["expressions"], {"expr-id": 9, "expr": {"source-id": 1, "transform": "sorcery", "name": "s"}}]
    assert codes(Lake().put(create(text=changed_definition(expressions=expressions, last_column_id=9)))) == [None]


def test_the_roots_entries_start_empty_and_read_back() -> None:
    lake = new_lake()
    assert list(lake.reloaded().root.rows) == []
