"""Views on the chain of a name: made, changed and dropped by intents, before and after tables."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import Any

import pytest

from rootline.schemas.bytes.root.root_codec import decode_root
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import LogId, LogPosition
from rootline.schemas.intent import Intent, IntentKind, VersionReference
from rootline.schemas.parts.name import NameState
from rootline.schemas.root_header import Totals
from rootline.schemas.verdict import Verdict
from rootline.schemas.view_metadata import VIEW_BYTES_MAX, ViewMetadata
from rootline.tree.check.invariants import violations
from rootline.tree.commit.verdicts import answer
from rootline.tree.draft.batch import Record
from rootline.tree.state.addressable import check_is_table
from tests.golden_files import FOLDER, golden
from tests.support.state_rules import state_violations
from tests.tree.intents.test_drop import SECOND, another, drop
from tests.tree.tables import TABLE, TABLE_UUID, Lake, append, create, intent, removed

VIEW_UUID = uuid.UUID("4f3c3a52-0000-4000-8000-00000000000a")
OTHER_UUID = uuid.UUID("4f3c3a52-0000-4000-8000-00000000000b")


def version(sql: str = "SELECT 1", **more: object) -> dict[str, Any]:
    return {"representations": [{"type": "sql", "sql": sql, "dialect": "spark"}], **more}


def create_view(intent_id: str = "v", sql: str = "SELECT 1", view_uuid: uuid.UUID = VIEW_UUID, **more: Any) -> Intent:
    body = {"view-uuid": str(view_uuid), "location": "s3://lake/demo/flights", "version": version(sql)}
    return intent(
        IntentKind.CREATE_VIEW,
        intent_id,
        **{"definition": json.dumps(body), "table_uuid": view_uuid, **more},
    )


def replace_view(
    intent_id: str = "r", view_uuid: uuid.UUID = VIEW_UUID, stamp: dict[str, Any] | None = None, **change: Any
) -> Intent:
    body = {key.replace("_", "-"): value for key, value in change.items()}
    return intent(
        IntentKind.REPLACE_VIEW, intent_id, definition=json.dumps(body), table_uuid=view_uuid, **(stamp or {})
    )


def drop_view(intent_id: str = "d", view_uuid: uuid.UUID = VIEW_UUID, **more: Any) -> Intent:
    return intent(IntentKind.DROP_VIEW, intent_id, table_uuid=view_uuid, **more)


def said(verdicts: list[Verdict]) -> list[str]:
    return [verdict.code or verdict.kind.value for verdict in verdicts]


def put(lake: Lake, *intents: Intent) -> list[str]:
    return said(lake.put(*intents))


def view_of(lake: Lake) -> ViewMetadata:
    assert lake.head.header.name.view is not None
    return ViewMetadata.from_json(lake.head.header.name.view)


def view_lake(*intents: Intent) -> Lake:
    lake = Lake()
    for item in (create_view(writer_id="w", writer_sequence=0), *intents):
        assert put(lake, item) == ["committed"]
    return lake


def test_a_view_is_a_root_of_its_own_content_without_entries() -> None:
    lake = view_lake()
    header = lake.head.header
    assert (header.name.state, header.table_uuid, header.totals, header.version) == (
        NameState.VIEW,
        VIEW_UUID,
        Totals(),
        0,
    )
    assert header.snapshot.summary["rootline.view"] == "1"
    assert view_of(lake).current_version.sql_texts[0].sql == "SELECT 1"
    assert view_of(lake).version_log[0].timestamp_ms == 1_000_000  # the log's append time
    assert state_violations(lake.head) == []
    assert decode_root(golden("root-view.avro", lake.bodies[0]), name="view").header == header
    before = decode_root(
        (FOLDER / "root-view-unmarked.avro").read_bytes(), name="view"
    ).header  # of before decision 0106
    assert replace(before, log=replace(before.log, marks=header.log.marks)) == header


def test_each_change_of_a_view_is_the_next_root_of_its_name() -> None:
    lake = view_lake(
        replace_view("two", version=version("SELECT 2")),
        replace_view("back", current_version_id=1),
        replace_view("properties", set_properties={"comment": "x"}),
        replace_view("none", remove_properties=["comment"]),
    )
    assert lake.head.header.version == 4
    summaries = [state.header.snapshot.summary.get("rootline.view") for state in lake.states]
    assert summaries == ["1", "2", "1", "1", "1"]
    assert [entry.version_id for entry in view_of(lake).version_log] == [1, 2, 1]
    assert view_of(lake).properties == {}
    assert state_violations(lake.head) == []


def test_a_version_and_properties_may_change_at_once() -> None:
    lake = view_lake(
        replace_view("two", version=version("SELECT 2"), set_properties={"version.history.num-entries": "1"}),
        replace_view("three", version=version("SELECT 3"), remove_properties=["version.history.num-entries"]),
        replace_view("back", current_version_id=2, set_properties={"comment": "x"}, replaces_version_id=3),
    )
    assert lake.head.header.version == 3
    assert view_of(lake).properties == {"comment": "x"}
    assert [each.version_id for each in view_of(lake).versions] == [2, 3]
    assert view_of(lake).current_version_id == 2


def test_several_changes_of_one_batch_are_one_root() -> None:
    lake = Lake()
    assert put(lake, create_view(), replace_view("two", version=version("SELECT 2"))) == ["committed"] * 2
    assert (lake.head.header.version, view_of(lake).current_version_id) == (0, 2)


def test_a_replacement_that_changes_nothing_is_committed_and_says_nothing() -> None:
    lake = view_lake(replace_view("same", version=version()))
    assert view_of(lake).current_version_id == 1
    assert "rootline.view" not in lake.head.header.snapshot.summary


def test_a_change_made_for_another_version_is_refused() -> None:
    lake = view_lake(replace_view("two", version=version("SELECT 2"), replaces_version_id=1))
    assert put(lake, replace_view("late", version=version("SELECT 3"), replaces_version_id=1)) == ["view-changed"]
    assert view_of(lake).current_version_id == 2


@pytest.mark.parametrize(
    "late",
    [
        append("late", table_uuid=VIEW_UUID),
        append("without"),
        intent(IntentKind.REMOVE, "late", remove_files=[removed("data/a.parquet")]),
        intent(IntentKind.TAG, "late", ref=VersionReference(tag="t", version=0)),
        intent(IntentKind.RESTORE, "late", ref=VersionReference(version=0)),
        intent(IntentKind.ALTER, "late", definition="[]"),
        drop("late", table_uuid=VIEW_UUID),
        intent(IntentKind.PURGE, "late", table_uuid=VIEW_UUID),
    ],
    ids=lambda item: f"{item.kind}-{item.intent_id}",
)
def test_what_is_for_tables_is_refused_by_a_view(late: Intent) -> None:
    lake = view_lake()
    assert put(lake, late) == ["name-is-view"]
    assert lake.head.header.name.state is NameState.VIEW


def test_a_view_is_refused_by_a_table_and_a_table_by_a_view() -> None:
    lake = Lake()
    assert put(lake, create(), create_view()) == ["committed", "table-exists"]
    named = TABLE_UUID
    assert put(lake, replace_view("r", named, version=version()), drop_view("d", named)) == ["name-is-table"] * 2
    other = Lake()
    assert put(other, create_view(), create(), create_view("again", view_uuid=OTHER_UUID)) == [
        "committed",
        "view-exists",
        "view-exists",
    ]


def test_where_nothing_is_a_view_is_unknown() -> None:
    lake = Lake()
    assert put(lake, replace_view("r", version=version()), drop_view()) == ["view-unknown"] * 2
    assert lake.state is None


def test_offsets_ledger_and_outcomes_go_on_from_table_to_view_to_table() -> None:
    lake = Lake()
    lake.put(create(writer_id="w", writer_sequence=0), append("a", writer_id="w", writer_sequence=1))
    assert put(lake, drop()) == ["committed"]
    assert put(lake, create_view(writer_id="w", writer_sequence=2)) == ["committed"]
    assert lake.head.header.name.drops[-1].table_uuid == TABLE_UUID
    assert lake.head.header.name.state is NameState.VIEW
    assert put(lake, drop_view(), create("again", table_uuid=TABLE_UUID)) == ["committed", "table-dropped"]
    assert lake.head.header.is_tombstone
    assert lake.head.header.name.view is None
    assert [item.table_uuid for item in lake.head.header.name.drops] == [TABLE_UUID, VIEW_UUID]
    assert put(lake, another()) == ["committed"]
    assert put(lake, append("b", table_uuid=SECOND)) == ["committed"]
    assert put(lake, append("c", table_uuid=VIEW_UUID)) == ["table-uuid-mismatch"]
    assert lake.head.header.log.offsets[0].next_offset == lake.offset
    assert state_violations(lake.head) == []


def test_making_and_dropping_a_view_in_one_batch_are_two_roots() -> None:
    lake = Lake()
    assert put(lake, create_view(), drop_view(), create_view("again", view_uuid=OTHER_UUID)) == ["committed"] * 3
    assert [state.header.name.state for state in lake.states] == [NameState.VIEW, NameState.TOMBSTONE, NameState.VIEW]
    assert lake.head.header.table_uuid == OTHER_UUID


def test_a_view_that_was_dropped_does_not_come_back_and_its_uuid_is_no_other_views() -> None:
    lake = view_lake(drop_view())
    ref = VersionReference(version=1)
    assert put(lake, intent(IntentKind.RESTORE, "x", ref=ref, table_uuid=VIEW_UUID)) == ["table-dropped"]
    assert put(lake, create_view("again", "SELECT 2")) == ["table-dropped"]
    assert put(lake, replace_view("late", version=version())) == ["table-dropped"]
    assert put(lake, drop_view("late")) == ["table-dropped"]


def test_an_intent_that_comes_again_is_a_duplicate() -> None:
    first = create_view(writer_id="w", writer_sequence=0)
    second = replace_view("two", version=version("SELECT 2"), stamp={"writer_id": "w", "writer_sequence": 1})
    back = replace_view("one", current_version_id=1, stamp={"writer_id": "w", "writer_sequence": 2})
    lake = Lake()
    assert put(lake, first) == ["committed"]
    assert put(lake, second) == ["committed"]
    assert put(lake, back) == ["committed"]
    again = [
        Record(LogPosition(LogId("embedded/22222222-2222-4222-8222-222222222222"), 0, at), item, 500, 5)
        for at, item in enumerate((first, second, back))
    ]
    assert said(lake.put_records(again)) == ["duplicate"] * 3
    assert [entry.version_id for entry in view_of(lake).version_log] == [1, 2, 1]
    verdict = answer(lake.head, again[0])
    assert verdict is not None
    assert verdict.kind.value == "duplicate"


def test_a_replayed_change_never_hits_the_view_that_came_after() -> None:
    lake = view_lake(drop_view(), create_view("again", view_uuid=OTHER_UUID))
    assert (
        put(lake, replace_view("late", version=version("SELECT 2")), drop_view("late")) == ["table-uuid-mismatch"] * 2
    )
    assert view_of(lake).current_version.sql_texts[0].sql == "SELECT 1"


NESTED: dict[str, Any] = {"type": "struct", "fields": []}
for depth in range(60):
    NESTED = {"type": "struct", "fields": [{"id": depth, "name": "x", "required": False, "type": NESTED}]}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "view-invalid"),
        ("SELECT 1", "view-invalid"),
        ("[]", "view-invalid"),
        ("{}", "view-invalid"),
        ("[" * 5_000, "view-invalid"),
        ('{"version": 5}', "view-invalid"),
        ('{"version": {"representations": []}}', "view-invalid"),
        ('{"version": {"representations": [{"type": "sql", "sql": 5, "dialect": "spark"}]}}', "view-invalid"),
        (json.dumps({"current-version-id": 1, "version": version("SELECT 2")}), "view-invalid"),
        ('{"current-version-id": "1"}', "view-invalid"),
        ('{"current-version-id": 7}', "view-version-unknown"),
        ('{"set-properties": {"a": 1}}', "view-invalid"),
        ('{"set-properties": {"version.history.num-entries": "none"}}', "view-invalid"),
        ('{"set-properties": {}, "unknown": 1}', "view-invalid"),
        ('{"replaces-version-id": 1}', "view-invalid"),
        (json.dumps({"version": version(schema=NESTED)}), "view-invalid"),
        (json.dumps({"version": version(schema={"type": "struct", "fields": 5})}), "view-invalid"),
        (json.dumps({"version": version(summary={"a": "\ud800"})}), "view-invalid"),
        (json.dumps({"version": version("x" * VIEW_BYTES_MAX)}), "view-too-large"),
        (
            json.dumps({"version": {"representations": [{"type": "sql", "sql": "x", "dialect": at} for at in "aA"]}}),
            "view-dialect-twice",
        ),
    ],
    ids=range(20),
)
def test_a_change_that_cannot_be_is_refused_and_nothing_changes(text: str, code: str) -> None:
    lake = view_lake()
    before = lake.head.header.name.view
    assert put(lake, intent(IntentKind.REPLACE_VIEW, "bad", definition=text or "?", table_uuid=VIEW_UUID)) == [code]
    assert lake.head.header.name.view == before


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"definition": "{}"}, "view-invalid"),
        ({"definition": "no"}, "view-invalid"),
        ({"table_uuid": TABLE_UUID}, "table-uuid-mismatch"),
        ({"summary": {"rootline.view": "5"}}, "intent-malformed"),
    ],
    ids=range(4),
)
def test_a_view_that_cannot_be_is_not_made(more: dict[str, Any], code: str) -> None:
    for lake in (Lake(), view_lake(drop_view())):
        assert put(lake, create_view("bad", view_uuid=OTHER_UUID, **more)) == [code]
        assert lake.state is None or lake.head.header.is_tombstone


def test_a_table_reader_is_told_that_a_name_is_a_view() -> None:
    lake = view_lake()
    with pytest.raises(Invalid, match=rf"{TABLE} is a view, not a table: `rootline view show") as caught:
        check_is_table(lake.head.header)
    assert caught.value.code == "name-is-view"


def test_a_root_that_says_other_things_of_its_view_than_its_summary_is_a_violation() -> None:
    lake = view_lake(replace_view("two", version=version("SELECT 2")))
    old, new = lake.states
    quiet = replace(new.header, name=replace(new.header.name, view=old.header.name.view))
    wrong = replace(new, root=replace(new.root, header=quiet))
    assert any("its summary states" in sentence for sentence in violations(old, wrong))


@pytest.mark.parametrize("number", ["1e400", "-1e400"])
def test_a_number_that_is_too_large_is_refused_and_the_name_goes_on(number: str) -> None:
    """Python reads it as infinity, which JSON cannot say: such a view could be written, and never read again."""

    def with_number(made: Intent) -> Intent:
        text = (made.definition or "").replace('"dialect"', f'"x": {number}, "dialect"')
        return made.model_copy(update={"definition": text})

    assert put(Lake(), with_number(create_view())) == ["view-invalid"]
    lake = view_lake()
    bad = with_number(replace_view("bad", version=version("SELECT 2")))
    assert put(lake, bad, replace_view(version=version("SELECT 3"))) == ["view-invalid", "committed"]
