"""Replacing a table: what leaves, what stays, and which intents were meant for what it held before."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace as with_fields

import pytest
from pydantic import ValidationError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyroaring import BitMap

from rootline.schemas.bytes.leaf_codec import LeafContent
from rootline.schemas.bytes.root.header_codec import PROFILE_KEY, encode_header, profile_of
from rootline.schemas.bytes.root.root_codec import decode_root
from rootline.schemas.content_entry import ContentType
from rootline.schemas.field_ids import PROFILE_OF_EXPIRY
from rootline.schemas.intent import Intent, IntentKind, Isolation, VersionReference
from rootline.schemas.root_header import Operation, Totals
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.tree.evolution.changes import (
    DefinitionChange,
    DefinitionChanges,
    SetCurrentSchema,
    schema_changes,
    spec_changes,
)
from tests.support.state_rules import state_violations
from tests.tree.tables import (
    DEFINITION,
    TABLE_UUID,
    UNPARTITIONED,
    Lake,
    append,
    create,
    data_file,
    equality_delete,
    intent,
    new_entry,
    removed,
)

WIDE, NAME = 5, 6
OTHER_SCHEMA = Schema(
    NestedField(WIDE, "wide", LongType(), required=True),
    NestedField(NAME, "name", StringType(), required=False),
    schema_id=0,
)


def changes(lake: Lake, *wanted: DefinitionChange) -> str:
    given = wanted or (SetCurrentSchema(lake.head.definition.current_schema_id),)
    return DefinitionChanges(lake.head.header.definition.digest, given).to_json()


def replaced(lake: Lake, intent_id: str = "replace", *wanted: DefinitionChange, **more: object) -> Intent:
    named = {"table_uuid": TABLE_UUID, "definition": changes(lake, *wanted)}
    return intent(IntentKind.REPLACE, intent_id, **{**named, **more})


def said(verdicts: list[Verdict]) -> list[str]:
    return [verdict.code or verdict.kind.value for verdict in verdicts]


def lake_with(*intents: Intent) -> Lake:
    lake = Lake()
    lake.put(create())
    for item in intents:
        assert said(lake.put(item)) == ["committed"]
    return lake


def live(lake: Lake) -> set[str]:
    return {found.entry.location for found in lake.head.live.entries()}


def test_a_replace_empties_the_table_keeps_its_uuid_and_adds_a_schema_that_is_equal() -> None:
    lake = lake_with(append("a"), append("b"))
    before = lake.head.header
    assert said(lake.put(replaced(lake))) == ["committed"]
    header, definition = lake.head.header, lake.head.definition
    assert live(lake) == set()
    assert (header.table_uuid, header.totals) == (before.table_uuid, Totals())
    assert [schema.schema_id for schema in definition.schemas] == [0, 1]
    assert definition.schemas[1].fields == definition.schemas[0].fields
    assert (definition.current_schema_id, definition.oldest_schema_id) == (1, 1)
    assert header.restores.replaced_at == header.snapshot.sequence_number == 4
    assert header.snapshot.operation is Operation.DELETE
    assert header.snapshot.summary["rootline.replaced-table"] == "1"
    assert header.snapshot.summary["deleted-records"] == "20"
    assert header.row_ids.next == before.row_ids.next
    assert header.versions.oldest == before.versions.oldest
    assert state_violations(lake.head) == []


def test_a_root_of_a_table_that_was_replaced_says_so_in_profile_2_and_so_do_those_after_it() -> None:
    lake = lake_with(append("a"))
    assert profile_of(lake.head.header) != PROFILE_OF_EXPIRY
    lake.put(replaced(lake))
    lake.put(append("b", schema_id=1))
    assert encode_header(lake.head.header)[PROFILE_KEY] == PROFILE_OF_EXPIRY.encode()
    assert decode_root(lake.bodies[-1], name="root").header.restores.replaced_at == 3
    stored = TableDefinition.from_json(lake.objects[lake.head.header.definition.location])
    assert stored == lake.head.definition
    assert b"oldest-schema-id" not in DEFINITION.to_json()


def test_files_that_come_with_a_replace_are_all_that_is_there_afterwards() -> None:
    lake = lake_with(append("a"))
    first = lake.head.header.row_ids.next
    assert said(lake.put(replaced(lake, add_data_files=[data_file("new")]))) == ["committed"]
    assert live(lake) == {"data/new.parquet"}
    assert lake.head.header.snapshot.operation is Operation.OVERWRITE
    [row] = lake.head.live.rows.values()
    assert row.entry.first_row_id == first


def test_a_replace_may_bring_other_columns_required_ones_too_and_another_partitioning() -> None:
    lake = lake_with(append("a"))
    wanted = (*schema_changes(OTHER_SCHEMA), *spec_changes(()))
    assert said(lake.put(replaced(lake, "replace", *wanted))) == ["committed"]
    after = lake.head.definition
    assert [field.name for field in after.schema.fields] == ["wide", "name"]
    assert after.default_spec_id == UNPARTITIONED
    assert after.last_column_id == NAME


def test_a_column_that_the_default_spec_is_made_of_cannot_go_without_another_default() -> None:
    lake = lake_with(append("a"))
    assert said(lake.put(replaced(lake, "replace", *schema_changes(OTHER_SCHEMA)))) == ["evolution-illegal"]
    assert live(lake) == {"data/a.parquet"}


def test_rows_for_what_the_table_held_before_are_rejected_whichever_kind_brings_them() -> None:
    lake = lake_with(append("a"))
    lake.put(replaced(lake))
    late = [
        append("p", schema_id=0),
        intent(IntentKind.OVERWRITE, "o", add_data_files=[data_file("o")], schema_id=0),
        intent(IntentKind.OVERWRITE, "r", remove_files=[removed("data/a.parquet")], schema_id=0),
        intent(IntentKind.REMOVE, "m", remove_files=[removed("data/a.parquet")], schema_id=0),
        intent(IntentKind.ROW_DELTA, "d", add_equality_deletes=[equality_delete("d", 3, "UA")], schema_id=0),
        intent(IntentKind.APPEND, "l", add_manifests=[lake.written_leaf(new_entry(data_file("l")))], schema_id=0),
    ]
    assert said(lake.put(*late)) == ["table-replaced"] * len(late)
    assert live(lake) == set()


def test_rows_without_a_schema_id_are_rejected_once_the_table_was_replaced_and_not_before() -> None:
    lake = lake_with(append("a"))
    lake.put(replaced(lake))
    blind = [
        append("p"),
        intent(IntentKind.ROW_DELTA, "d", add_equality_deletes=[equality_delete("d", 3, "UA")]),
        intent(IntentKind.OVERWRITE, "o", add_data_files=[data_file("o")]),
    ]
    assert said(lake.put(*blind)) == ["schema-id-missing"] * 3
    assert said(lake.put(append("q", schema_id=1))) == ["committed"]
    assert said(lake.put(intent(IntentKind.REMOVE, "m", remove_files=[removed("data/q.parquet")]))) == ["committed"]


def test_what_comes_in_one_batch_with_a_replace_is_decided_in_order() -> None:
    lake = lake_with(append("a"))
    batch = (append("before"), replaced(lake), append("late", schema_id=0), append("after", schema_id=1))
    assert said(lake.put(*batch)) == ["committed", "committed", "table-replaced", "committed"]
    assert live(lake) == {"data/after.parquet"}
    assert state_violations(lake.head) == []


def test_a_writer_that_sends_again_hears_duplicate_and_one_without_a_writer_does_not_double_rows() -> None:
    known = append("w", writer_id="w", writer_sequence=1, schema_id=0)
    lake = lake_with(append("a"), known)
    lake.put(replaced(lake, writer_id="w", writer_sequence=2))
    again = lake.put(known, append("a"), append("a", schema_id=0), append("z", writer_id="w", writer_sequence=2))
    assert said(again) == ["duplicate", "schema-id-missing", "table-replaced", "duplicate"]
    assert live(lake) == set()


def test_a_replace_that_comes_again_without_a_writer_does_not_empty_the_table_again() -> None:
    lake = lake_with(append("a"))
    first = replaced(lake)
    lake.put(first)
    lake.put(append("b", schema_id=1))
    assert said(lake.put(first)) == ["definition-changed"]
    assert live(lake) == {"data/b.parquet"}


def test_a_replace_names_the_definition_that_it_was_made_for_and_the_table() -> None:
    lake = lake_with(append("a"))
    blind = json.dumps({"changes": [{"action": "set-current-schema", "schema-id": 0}]})
    assert said(lake.put(replaced(lake, definition=blind))) == ["definition-invalid"]
    assert said(lake.put(replaced(lake, table_uuid=uuid.UUID(int=9)))) == ["table-uuid-mismatch"]
    for lacking in ({"table_uuid": None}, {"definition": None}):
        with pytest.raises(ValidationError, match=r"must name table_uuid|must carry definition"):
            replaced(lake, **lacking)
    assert live(lake) == {"data/a.parquet"}


def test_leaves_leave_without_being_written_again_and_the_change_can_be_read() -> None:
    lake = lake_with(append("a"), append("b"), append("c"))
    entries = [found.entry for found in lake.head.live.entries()]
    leaf = lake.leaf(entries[:2])
    assert said(lake.put(lake.flush("f", leaf))) == ["committed"]
    lake.put(intent(IntentKind.REMOVE, "m", remove_files=[removed(entries[0].location)]))
    stored = len(lake.objects)
    lake.put(replaced(lake))
    assert live(lake) == set()
    assert len(lake.objects) == stored + 1  # the definition
    assert lake.head.live.dead[leaf.location] == BitMap([0, 1])
    assert lake.head.header.snapshot.summary["deleted-data-files"] == "2"
    assert state_violations(lake.head) == []


def test_vectors_and_equality_deletes_leave_with_the_rows() -> None:
    lake = lake_with(append("a"), append("b"))
    lake.put(intent(IntentKind.ROW_DELTA, "v", add_vectors=[lake.vector("v", "data/a.parquet", [1, 2])]))
    lake.put(intent(IntentKind.ROW_DELTA, "e", add_equality_deletes=[equality_delete("e", 3, "UA")]))
    assert lake.head.header.totals.vectors == lake.head.header.totals.equality_deletes == 1
    merged = intent(IntentKind.ROW_DELTA, "v2", add_vectors=[lake.vector("v2", "data/b.parquet", [4])])
    lake.put(merged, replaced(lake, add_data_files=[data_file("new")]))
    assert live(lake) == {"data/new.parquet"}
    totals = lake.head.header.totals
    assert (totals.rows, totals.vectors, totals.equality_deletes, totals.deleted_rows) == (10, 0, 0, 0)
    assert state_violations(lake.head) == []


def test_maintenance_that_was_planned_before_a_replace_brings_nothing_back() -> None:
    lake = lake_with(append("a"), append("b"))
    entries = [found.entry for found in lake.head.live.entries()]
    flush = lake.flush("f", lake.leaf(entries))
    lake.put(replaced(lake))
    lake.put(flush)
    assert live(lake) == set()
    assert lake.head.header.totals == with_fields(Totals(), data_manifests=lake.head.header.totals.data_manifests)


def test_a_flush_that_comes_after_a_replace_drops_the_leaves_that_are_dead() -> None:
    lake = lake_with(append("a"), append("b"))
    entries = [found.entry for found in lake.head.live.entries()]
    lake.put(lake.flush("f", lake.leaf(entries)))
    lake.put(replaced(lake))
    lake.put(append("c", schema_id=1))
    lake.put(lake.flush("g", lake.leaf([found.entry for found in lake.head.live.entries()])))
    assert lake.head.header.totals.data_manifests == 1
    assert live(lake) == {"data/c.parquet"}


def test_who_reads_before_a_replace_and_writes_after_it_is_told_of_the_conflict() -> None:
    lake = lake_with(append("a"))
    read = lake.head.header.snapshot.sequence_number
    lake.put(replaced(lake))
    isolated = {"isolation": Isolation.SERIALIZABLE, "filter": "id > 1000", "read_sequence_number": read}
    late = intent(IntentKind.OVERWRITE, "o", add_data_files=[data_file("o")], schema_id=1, **isolated)
    assert said(lake.put(late)) == ["isolation-conflict"]
    now = {**isolated, "read_sequence_number": read + 1}
    early = intent(IntentKind.OVERWRITE, "p", add_data_files=[data_file("p")], schema_id=1, **now)
    assert said(lake.put(early)) == ["committed"]


def test_a_replace_may_be_serializable_itself() -> None:
    lake = lake_with(append("a"))
    read = lake.head.header.snapshot.sequence_number
    lake.put(append("b"))
    isolated = {"isolation": Isolation.SERIALIZABLE, "filter": "true", "read_sequence_number": read}
    assert said(lake.put(replaced(lake, **isolated))) == ["isolation-conflict"]
    assert live(lake) == {"data/a.parquet", "data/b.parquet"}


def test_a_restore_to_before_a_replace_brings_rows_and_columns_back_under_a_schema_that_counts() -> None:
    lake = lake_with(append("a"), append("b"))
    wanted = (*schema_changes(OTHER_SCHEMA), *spec_changes(()))
    lake.put(replaced(lake, "replace", *wanted))
    back = intent(IntentKind.RESTORE, "back", ref=VersionReference(version=2))
    assert said(lake.put(back)) == ["committed"]
    after = lake.head.definition
    assert live(lake) == {"data/a.parquet", "data/b.parquet"}
    assert after.schema.fields == DEFINITION.schema.fields
    assert (after.current_schema_id, after.oldest_schema_id) == (2, 1)
    assert said(lake.put(append("c", schema_id=0), append("d", schema_id=2))) == ["table-replaced", "committed"]
    assert state_violations(lake.head) == []


def test_a_restore_to_between_two_replaces_and_back_is_whole_again() -> None:
    lake = lake_with(append("a"))
    lake.put(replaced(lake, "r1", add_data_files=[data_file("b")]))
    lake.put(replaced(lake, "r2", add_data_files=[data_file("c")]))
    for version, there in ((2, "b"), (1, "a"), (3, "c")):
        lake.put(intent(IntentKind.RESTORE, f"to-{version}", ref=VersionReference(version=version)))
        assert live(lake) == {f"data/{there}.parquet"}
        assert state_violations(lake.head) == []


def test_an_alter_cannot_make_a_schema_of_before_a_replace_current_again() -> None:
    lake = lake_with(append("a"))
    lake.put(replaced(lake))
    back = intent(IntentKind.ALTER, "alter", definition=changes(lake, SetCurrentSchema(0)))
    assert said(lake.put(back)) == ["definition-invalid"]


def test_an_alter_that_was_planned_before_a_replace_is_planned_again() -> None:
    lake = lake_with(append("a"))
    planned = intent(IntentKind.ALTER, "alter", definition=changes(lake, *schema_changes(OTHER_SCHEMA)))
    lake.put(replaced(lake))
    assert said(lake.put(planned)) == ["definition-changed"]


def test_a_dropped_table_is_not_replaced_and_a_new_one_of_the_name_was_not() -> None:
    lake = lake_with(append("a"))
    lake.put(replaced(lake, "r1"))
    lake.put(intent(IntentKind.DROP, "drop", table_uuid=TABLE_UUID))
    assert said(lake.put(replaced(lake, "r2"))) == ["table-dropped"]
    second = uuid.UUID(int=7)
    lake.put(create("again", with_fields(DEFINITION, table_uuid=second).to_json().decode()))
    assert (lake.head.header.restores.replaced_at, lake.head.definition.oldest_schema_id) == (0, 0)
    assert said(lake.put(append("b", table_uuid=second))) == ["committed"]


def test_a_table_is_not_created_as_one_that_was_replaced() -> None:
    lake = Lake()
    text = with_fields(DEFINITION, oldest_schema_id=0).to_json().decode()
    body = json.loads(text) | {"oldest-schema-id": 0}
    assert said(lake.put(create("ok", json.dumps(body)))) == ["committed"]
    body["oldest-schema-id"] = 5
    assert said(Lake().put(create("bad", json.dumps(body)))) == ["definition-invalid"]


def test_a_table_that_is_empty_may_be_replaced_and_so_may_one_that_just_was() -> None:
    lake = lake_with()
    for number in range(1, 4):
        assert said(lake.put(replaced(lake, f"r{number}"))) == ["committed"]
        assert lake.head.header.snapshot.operation is Operation.REPLACE
        assert lake.head.definition.oldest_schema_id == number


def test_a_file_of_before_may_not_slip_in_with_a_replace_of_the_same_batch() -> None:
    lake = lake_with(append("a"))
    twice = replaced(lake, add_data_files=[data_file("a")])
    assert said(lake.put(twice)) == ["file-already-live"]
    assert live(lake) == {"data/a.parquet"}


def test_delete_leaves_leave_too() -> None:
    lake = lake_with(append("a"))
    lake.put(intent(IntentKind.ROW_DELTA, "v", add_vectors=[lake.vector("v", "data/a.parquet", [1])]))
    entries = [found.entry for found in lake.head.live.entries()]
    data = lake.leaf([item for item in entries if item.content_type is ContentType.DATA])
    deletes = lake.leaf(
        [item for item in entries if item.content_type is not ContentType.DATA],
        content=LeafContent.DELETE,
        belongs_to=data.location,
    )
    assert said(lake.put(lake.flush("f", data, deletes))) == ["committed"]
    lake.put(replaced(lake, add_data_files=[data_file("new")]))
    assert live(lake) == {"data/new.parquet"}
    assert state_violations(lake.head) == []


def test_verdicts_of_a_replace_are_told_again_alike() -> None:
    lake = lake_with(append("a"))
    once = replaced(lake, writer_id="w", writer_sequence=0)
    [first] = lake.put(once)
    [second] = lake.put(once)
    assert (first.kind, second.kind) == (VerdictKind.COMMITTED, VerdictKind.DUPLICATE)
    assert second.version == first.version
