"""The kind `alter`: the definition changes, and nothing that is live does."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, LongType, NestedField, StringType

from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.bytes.root.root_codec import decode_root
from rootline.schemas.content_entry import FieldStatistics
from rootline.schemas.intent import Intent, IntentKind
from rootline.schemas.root_header import Operation
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.verdict import VerdictKind
from rootline.tree.check.invariants import violations
from rootline.tree.check.root_diff import diff
from rootline.tree.evolution.changes import (
    DefinitionChange,
    DefinitionChanges,
    RemoveProperties,
    SetProperties,
    schema_changes,
)
from rootline.tree.evolution.next_definition import evolved
from rootline.tree.parts.definition import definition_violations
from rootline.tree.state.table_state import TableState
from tests.tree.tables import (
    CARRIER,
    DEFINITION,
    DELAY,
    ID,
    Lake,
    append,
    create,
    data_file,
    intent,
    new_lake,
    remove,
    removed,
    stats,
)

MORE = 5


def schema(*more: NestedField, delay: str = "delay") -> Schema:
    old = [
        field if field.field_id != DELAY else NestedField(DELAY, delay, DoubleType())
        for field in DEFINITION.schema.fields
    ]
    return Schema(*old, *more, schema_id=0)


ADDED = schema(NestedField(MORE, "more", LongType(), required=False))


def alter(intent_id: str, *changes: DefinitionChange, replaces: bytes | None = None) -> Intent:
    return intent(IntentKind.ALTER, intent_id, definition=DefinitionChanges(replaces, changes).to_json())


def add_column(lake: Lake, intent_id: str = "alter") -> Intent:
    return alter(intent_id, *schema_changes(ADDED), replaces=lake.head.header.definition.digest)


def under(definition: TableDefinition, name: str, **more: Any) -> Intent:
    """An append of one file whose statistics are encoded under `definition`."""
    codec = EntryCodec.of_definition(definition).statistics
    known = {**stats([1, 2], "UA"), **({MORE: FieldStatistics(7, 9, True)} if MORE in definition.tracked_by_id else {})}
    file = data_file(name, ids=[1, 2], content_stats=codec.encode(known), stats_schema=codec.fingerprint)
    return append(name, file, **more)


def outcomes(lake: Lake, *intents: Intent) -> list[str]:
    return [verdict.code or verdict.kind.value for verdict in lake.put(*intents)]


def statistics(lake: Lake) -> dict[str, dict[int, FieldStatistics]]:
    return {place.location: dict(entry.content_stats) for place, entry in lake.live().items()}


def test_a_column_is_added_and_every_row_keeps_its_statistics() -> None:
    lake = new_lake(*(append(f"f{number}") for number in range(40)))
    before = statistics(lake)
    assert outcomes(lake, add_column(lake)) == ["committed"]
    header = lake.head.header
    assert header.snapshot.operation is Operation.REPLACE
    assert header.snapshot.summary["rootline.definition"] == header.definition.digest.hex()
    assert not diff(lake.head.root, {})
    assert statistics(lake) == before
    assert outcomes(lake, under(lake.head.definition, "new"), append("f40")) == ["committed", "committed"]
    assert statistics(lake)["data/new.parquet"][MORE] == FieldStatistics(7, 9, True)
    assert statistics(lake) == before | {
        name: statistics(lake)[name] for name in ("data/new.parquet", "data/f40.parquet")
    }


def test_a_root_after_an_alter_reads_like_any_other() -> None:
    lake = new_lake(*(append(f"f{number}") for number in range(20)))
    outcomes(lake, add_column(lake))
    outcomes(lake, append("g"), remove("r", removed("data/f3.parquet")))
    for body, state in zip(lake.bodies, lake.states, strict=True):
        read = decode_root(body, name="root")
        assert read.codec == EntryCodec.of_definition(state.definition)
        rebuilt = TableState.of(read, state.definition, {})
        assert rebuilt.live.rows.keys() == state.live.rows.keys()
        assert {place: row.tail for place, row in rebuilt.live.rows.items()} == {
            place: row.tail for place, row in state.live.rows.items()
        }


def test_what_comes_and_goes_in_the_batch_of_an_alter_is_as_if_it_had_come_in_a_batch_of_its_own() -> None:
    one, many = new_lake(append("a"), append("b")), new_lake(append("a"), append("b"))
    steps = [
        append("c"),
        remove("r", removed("data/a.parquet")),
        add_column(one),
        append("d"),
        remove("s", removed("data/b.parquet")),
    ]
    assert outcomes(one, *steps) == ["committed"] * 5
    for step in steps:
        assert outcomes(many, step) == ["committed"]
    assert statistics(one) == statistics(many)
    assert one.head.definition == many.head.definition
    assert {row.tail for row in one.head.root.rows if row.entry.place in one.live()} == {
        row.tail for row in many.head.root.rows if row.entry.place in many.live()
    }


def test_statistics_of_a_writer_that_has_not_heard_of_the_change_are_taken() -> None:
    lake = new_lake(append("a"))
    first = lake.head.definition
    outcomes(lake, add_column(lake))
    second = lake.head.definition
    third_schema = Schema(*ADDED.fields, NestedField(6, "again", StringType(), required=False), schema_id=0)
    outcomes(lake, alter("again", *schema_changes(third_schema), replaces=lake.head.header.definition.digest))
    assert [len(tracked) for tracked in lake.head.definition.past_tracked_fields] == [4, 5]
    assert (
        outcomes(lake, under(first, "one"), under(second, "two"), under(lake.head.definition, "three"))
        == ["committed"] * 3
    )
    found = statistics(lake)
    assert found["data/two.parquet"][MORE] == FieldStatistics(7, 9, True)
    assert found["data/one.parquet"].keys() == found["data/two.parquet"].keys() - {MORE}
    stranger = dataclasses.replace(first, expressions=())
    assert outcomes(lake, under(stranger, "four")) == ["statistics-invalid"]


def test_rows_for_a_schema_with_a_name_that_another_column_has_now_are_rejected() -> None:
    lake = new_lake(append("a"))
    outcomes(lake, add_column(lake))
    first, without = lake.head.definition, Schema(*ADDED.fields[:-1], schema_id=0)
    outcomes(lake, alter("drop", *schema_changes(without), replaces=lake.head.header.definition.digest))
    second = lake.head.definition
    again = ADDED.fields[-1].model_copy(update={"field_id": second.last_column_id + 1})
    changes = schema_changes(Schema(*without.fields, again, schema_id=0))
    outcomes(lake, alter("again", *changes, replaces=lake.head.header.definition.digest))
    late = under(first, "late", schema_id=first.current_schema_id)
    fine = under(second, "fine", schema_id=second.current_schema_id)
    assert outcomes(lake, late, fine) == ["definition-changed", "committed"]
    assert outcomes(lake, remove("r", removed("data/fine.parquet"), schema_id=first.current_schema_id)) == ["committed"]


def test_of_two_changes_made_for_one_definition_the_second_is_rejected() -> None:
    lake = new_lake(append("a"))
    first, second = add_column(lake), add_column(lake, "other")
    assert outcomes(lake, first, second) == ["committed", "definition-changed"]
    assert outcomes(lake, add_column(lake, "third")) == ["committed"], "the same schema again changes nothing"
    assert len(lake.head.definition.schemas) == 2


def test_changes_of_one_batch_follow_each_other() -> None:
    lake = new_lake(append("a"))
    made = add_column(lake)
    base = evolved(lake.head.definition, DefinitionChanges.from_json(made.definition or ""))
    lake_of_one = new_lake(append("a"))
    outcomes(lake_of_one, made)
    more = Schema(*ADDED.fields, NestedField(6, "again", StringType(), required=False), schema_id=0)
    then = alter("then", *schema_changes(more), replaces=lake_of_one.head.header.definition.digest)
    assert lake_of_one.head.definition == base
    assert outcomes(lake, made, then) == ["committed", "committed"]
    assert lake.head.definition.last_column_id == 6


def test_properties_need_no_digest_and_schemas_do() -> None:
    lake = new_lake(append("a"))
    assert outcomes(lake, alter("p", SetProperties({"owner": "ops"}), SetProperties({"tier": "1"}))) == ["committed"]
    assert lake.head.definition.properties == {"owner": "ops", "tier": "1"}
    assert outcomes(lake, alter("q", RemoveProperties(("owner", "never"))), append("b")) == ["committed"] * 2
    assert lake.head.definition.properties == {"tier": "1"}
    assert lake.head.root.codec.layout == lake.states[0].root.codec.layout
    [verdict] = lake.put(alter("s", *schema_changes(ADDED)))
    assert (verdict.code, "replaces-definition" in (verdict.message or "")) == ("definition-invalid", True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no json", "definition changes"),
        ("[]", "definition changes"),
        ('{"changes": []}', "1 to 1000"),
        ('{"changes": [{"action": "drop-everything"}]}', "drop-everything"),
        ('{"changes": [{"action": "add-schema"}]}', "'schema' is missing"),
        ('{"changes": [{"action": "set-current-schema", "schema-id": "1"}]}', "is not an id"),
        ('{"changes": [{"action": "set-properties", "updates": {"a": 1}}]}', "names to strings"),
        ('{"changes": [{"action": "remove-properties", "removals": "a"}]}', "list of names"),
        ('{"changes": [{"action": "set-properties", "updates": {}}], "replaces-definition": "00"}', "SHA-256"),
        ('{"changes": ' + "[" * 500 + "]" * 500 + "}", "nesting"),
    ],
)
def test_changes_that_cannot_be_read_are_rejected_and_change_nothing(text: str, reason: str) -> None:
    lake = new_lake(append("a"))
    before = lake.head.header.definition
    [verdict] = lake.put(intent(IntentKind.ALTER, "x", definition=text))
    assert (verdict.kind, verdict.code) == (VerdictKind.REJECTED, "definition-invalid")
    assert reason in (verdict.message or "")
    assert lake.head.header.definition == before


def test_a_table_that_is_not_there_cannot_be_altered() -> None:
    lake = Lake()
    assert outcomes(lake, alter("x", SetProperties({"a": "b"}))) == ["table-unknown"]
    assert outcomes(lake, create(), alter("y", SetProperties({"a": "b"}))) == ["committed", "committed"]
    assert lake.head.definition.properties == {"a": "b"}


def test_a_wider_type_keeps_bytes_where_it_can_and_values_always() -> None:
    narrow = dataclasses.replace(
        DEFINITION,
        schemas=(
            Schema(
                NestedField(ID, "id", LongType(), required=False),
                NestedField(CARRIER, "carrier", StringType(), required=False),
                NestedField(DELAY, "delay", FloatType(), required=False),
                schema_id=0,
            ),
        ),
    )
    lake = Lake()
    outcomes(lake, create(text=narrow.to_json().decode()))
    codec = EntryCodec.of_definition(narrow).statistics
    known = {**stats([1], "UA"), DELAY: FieldStatistics(1.5, 2.5, True)}
    file = data_file("a", ids=[1], content_stats=codec.encode(known), stats_schema=codec.fingerprint)
    outcomes(lake, append("a", file))
    wide = alter("wide", *schema_changes(DEFINITION.schema), replaces=lake.head.header.definition.digest)
    late = append("b", data_file("b", ids=[1], content_stats=codec.encode(known), stats_schema=codec.fingerprint))
    assert outcomes(lake, wide, late) == ["committed", "committed"]
    assert statistics(lake) == {f"data/{name}.parquet": known for name in "ab"}


def test_a_definition_that_changes_in_silence_is_found() -> None:
    lake = new_lake(append("a"))
    outcomes(lake, alter("p", SetProperties({"owner": "ops"})))
    old, new = lake.states[-2], lake.states[-1]
    assert violations(old, new) == []
    summary = {key: value for key, value in new.header.snapshot.summary.items() if key != "rootline.definition"}
    silent = dataclasses.replace(new.header, snapshot=dataclasses.replace(new.header.snapshot, summary=summary))
    assert list(definition_violations(old.header, silent))
    stated = dataclasses.replace(old.header, snapshot=new.header.snapshot)
    assert list(definition_violations(old.header, stated)), "and one that is stated, and does not change"
