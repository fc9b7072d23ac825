"""What a change may add to a table; what a table has from before these rules stays, and the table goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField, StructType

from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.intent import IntentKind
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.evolution.changes import DefinitionChanges, SetProperties, schema_changes
from rootline.tree.evolution.next_definition import evolved
from rootline.tree.proof.definition_rules import check_definition
from tests.tree.tables import DEFINITION, Lake, changed_definition, create, intent

COLUMN = {"id": 9, "name": "more", "required": False, "type": "int"}
TYPES = [
    *("boolean", "int", "long", "float", "double", "date", "time", "timestamp", "timestamptz", "timestamp_ns"),
    *("timestamptz_ns", "string", "binary", "uuid", "fixed[1]", "fixed[16]", "fixed[65536]", "decimal(1, 0)"),
    *("decimal(38, 38)", "decimal(38, 0)"),
]


def _with_column(**members: object) -> dict[str, Any]:
    [schema] = json.loads(DEFINITION.to_json())["schemas"]
    schema["fields"].append(COLUMN | members)
    return {"schemas": [schema], "last_column_id": 9}


def _verdict_of(**members: object) -> tuple[str | None, str]:
    lake = Lake()
    [verdict] = lake.put(create(text=changed_definition(**members)))
    assert verdict.code is None or not lake.objects
    return verdict.code, verdict.message or ""


def _altered(before: TableDefinition, **column: object) -> tuple[str | None, str]:
    """The verdict on a change that adds a column to a table of `before`."""
    lake = Lake()
    lake.put(create(text=before.to_json().decode()))
    assert lake.head.definition == before
    body = json.loads(before.schema.model_dump_json())
    body["fields"].append(COLUMN | column)
    changes = {
        "replaces-definition": lake.head.header.definition.digest.hex(),
        "changes": [{"action": "add-schema", "schema": body}, {"action": "set-current-schema", "schema-id": -1}],
    }
    [verdict] = lake.put(intent(IntentKind.ALTER, "alter", definition=json.dumps(changes)))
    return verdict.code, verdict.message or ""


@pytest.mark.parametrize("of_type", TYPES)
def test_a_definition_with_a_column_of_any_type_is_read_back_before_it_is_accepted(of_type: str) -> None:
    assert _verdict_of(**_with_column(type=of_type)) == (None, "")
    assert _altered(DEFINITION, type=of_type) == (None, "")


@pytest.mark.parametrize("length", ["0", "1000000000", "2147483648"])
def test_a_fixed_column_whose_statistics_no_reader_could_read_is_refused(length: str) -> None:
    for code, message in (
        _verdict_of(**_with_column(type=f"fixed[{length}]")),
        _altered(DEFINITION, type=f"fixed[{length}]"),
    ):
        assert code == "definition-invalid"
        assert "give it a length from 1 to 65536, or make it binary" in message


def test_what_no_rule_names_is_refused_when_it_is_not_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(EntryCodec, "of_avro_schema", staticmethod(lambda _: EntryCodec(())))
        code, message = _verdict_of()
    assert (code, "could not be read back" in message) == ("definition-invalid", True)


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ({"type": "fixed[65537]"}, "a length up to 65536, or make it binary"),
        ({"name": "ID"}, "'id' and 'ID' differ only in case"),
        ({"name": ""}, "empty name"),
        ({"name": "_file"}, "every table has"),
        ({"name": "_Row_Id"}, "every table has"),
        ({"name": "x" * 2_000}, "1000 or fewer"),
        ({"required": "no"}, "required 'no': give true or false"),
        ({"id": "9"}, "id '9': give a whole number"),
        ({"id": 9.0}, "id 9.0: give a whole number"),
        ({"id": True}, "id True"),
        ({"type": "timestamp", "initial-default": 123}, "which is not of type timestamp"),
        ({"type": {"type": "struct", "fields": [COLUMN | {"id": 10}]}, "write-default": {}}, "other engines"),
    ],
)
def test_a_column_that_other_engines_could_not_use_is_refused(column: dict[str, object], reason: str) -> None:
    for code, message in (
        _verdict_of(**(_with_column(**column) | {"last_column_id": 10})),
        _altered(DEFINITION, **column),
    ):
        assert code == "definition-invalid"
        assert reason in message


def test_a_table_may_choose_names_that_differ_only_in_case() -> None:
    properties = {"rootline.names.case-sensitive": "true"}
    assert _verdict_of(**_with_column(name="ID"), properties=properties) == (None, "")
    assert _altered(replace(DEFINITION, properties=properties), name="ID") == (None, "")


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"last_column_id": 10**30}, "last-column-id"),
        ({"last_column_id": "4"}, "last-column-id"),
        ({"current_schema_id": 0.0}, "current-schema-id"),
        ({"format_version": 4.0}, "format-version"),
        ({"format_version": True}, "format-version"),
    ],
)
def test_an_id_that_is_no_whole_number_of_a_column_is_refused(members: dict[str, object], reason: str) -> None:
    code, message = _verdict_of(**members)
    assert (code, reason in message) == ("definition-invalid", True), message


def test_an_identifier_field_is_named_once() -> None:
    [schema] = json.loads(DEFINITION.to_json())["schemas"]
    schema["fields"][0]["required"] = True
    assert _verdict_of(schemas=[schema | {"identifier-field-ids": [1]}])[0] is None
    code, message = _verdict_of(schemas=[schema | {"identifier-field-ids": [1, 1]}])
    assert (code, "give each id once" in message) == ("definition-invalid", True)


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"rootline.export.snapshots": "many"}, "must be a number from 1 to 1000"),
        ({"rootline.export.format": "1"}, "must be 2 or 3"),
        ({"rootline.expire": "maybe"}, "must be true or false"),
        ({"rootline.verify.files": "??"}, "must be none or footer"),
        ({"rootline.flush.data_files": "7"}, "did you mean rootline.flush.data-files?"),
        ({"schema.name-mapping.default": "["}, "must be JSON"),
        ({"rootline.adopted-from": "file:///t/v1.metadata.json"}, "only an adoption sets it"),
    ],
)
def test_a_property_that_cannot_be_used_is_refused_whatever_sets_it(properties: Mapping[str, str], reason: str) -> None:
    lake = Lake()
    [verdict] = lake.put(create(text=changed_definition(properties=properties)))
    assert (verdict.code, reason in (verdict.message or "")) == ("property-invalid", True)
    lake.put(create("again"))
    for kind in (IntentKind.ALTER, IntentKind.REPLACE):
        body = {"changes": [{"action": "set-properties", "updates": properties}]}
        if kind is IntentKind.REPLACE:
            body["replaces-definition"] = lake.head.header.definition.digest.hex()  # type: ignore[assignment]
        [verdict] = lake.put(intent(kind, kind.value, definition=json.dumps(body), table_uuid=DEFINITION.table_uuid))
        assert (verdict.code, reason in (verdict.message or "")) == ("property-invalid", True)


def test_a_table_from_before_these_rules_can_be_altered_all_the_same() -> None:
    struct = StructType(NestedField(6, "x", IntegerType(), required=False))
    held = NestedField(5, "held", struct, required=False, initial_default='{"6":1}', write_default='{"6":1}')
    fields = (
        *DEFINITION.schema.fields,
        held,
        NestedField(7, "ID", IntegerType(), required=False),
        NestedField(8, "_file", IntegerType(), required=False),
    )
    before = replace(
        DEFINITION,
        schemas=(Schema(*fields, schema_id=0),),
        last_column_id=8,
        properties={"rootline.export.snapshots": "many", "rootline.no.such": "x"},
    )
    check_definition(before)
    more = Schema(*fields, NestedField(9, "more", IntegerType(), required=False), schema_id=1)
    after = evolved(before, DefinitionChanges(None, tuple(schema_changes(more))))
    assert after.schema.find_field("held") == held
    after = evolved(after, DefinitionChanges(None, (SetProperties({"owner": "me"}),)))
    assert after.properties["rootline.export.snapshots"] == "many"
