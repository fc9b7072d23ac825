"""What changes make of a view: versions, their ids, the log, and what is cut."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rootline.schemas.errors import Invalid
from rootline.schemas.view_changes import (
    HISTORY_PROPERTY,
    LOG_ENTRIES_MAX,
    VersionDraft,
    new_view,
    replaced_view,
    rolled_back_view,
    view_with_properties,
)
from rootline.schemas.view_metadata import VIEW_BYTES_MAX, SqlRepresentation, ViewMetadata
from tests.golden_files import golden

UUID: Final = uuid.UUID("f0a1b2c3-0000-4000-8000-000000000001")
NAME: Final = "demo.v"


def schema(*columns: str, of: str = "int") -> dict[str, Any]:
    """A schema's JSON, without an id."""
    fields = [{"id": at, "name": name, "required": False, "type": of} for at, name in enumerate(columns)]
    return {"type": "struct", "fields": fields}


def draft(sql: str, *columns: str, dialect: str = "spark", **summary: str) -> VersionDraft:
    text = SqlRepresentation(type="sql", sql=sql, dialect=dialect)
    return VersionDraft((text,), schema(*columns) if columns else None, summary)


def view(sql: str = "SELECT 1", *columns: str, **properties: str) -> ViewMetadata:
    named = {key.replace("_", "."): value for key, value in properties.items()}
    return new_view(UUID, "s3://lake/demo/v", draft(sql, *columns), named, 1_000, name=NAME)


def ids(found: ViewMetadata) -> list[int]:
    return [version.version_id for version in found.versions]


def log(found: ViewMetadata) -> list[tuple[int, int]]:
    return [(entry.timestamp_ms, entry.version_id) for entry in found.version_log]


def test_a_new_view_has_version_one_and_its_bytes_stay_as_they_are() -> None:
    text = SqlRepresentation(
        type="sql",
        sql="SELECT c1 AS a, c2 FROM base_tab",
        dialect="spark",
        default_catalog="lake",
        default_namespace=("a", "b"),
        field_aliases=("a", "c2"),
        field_docs=("first", None),
    )
    made = new_view(
        UUID,
        "s3://lake/demo/v",
        VersionDraft((text,), schema("a", "c2"), {"engine-version": "spark-4.1"}),
        {"comment": "two columns"},
        1_573_518_431_292,
        name=NAME,
    )
    assert (made.current_version_id, ids(made), log(made)) == (1, [1], [(1_573_518_431_292, 1)])
    assert made.current_version.summary == {"operation": "create", "engine-version": "spark-4.1"}
    assert made.current_version.parent_version_id == -1
    assert made.current_version.sql_texts[0].field_docs == ("first", None)
    assert (made.current_schema_id, made.current_version.named_schema_id) == (1, 1)
    assert ViewMetadata.from_json(golden("views/view-created.json", made.to_json())) == made


def test_a_replacement_is_the_next_version_on_top_of_the_current_one() -> None:
    replaced = replaced_view(view("SELECT 1", "a"), draft("SELECT 2", "b"), 2_000, name=NAME)
    assert (replaced.current_version_id, ids(replaced)) == (2, [1, 2])
    assert log(replaced) == [(1_000, 1), (2_000, 2)]
    current = replaced.current_version
    assert (current.parent_version_id, current.timestamp_ms, current.summary["operation"]) == (1, 2_000, "replace")
    assert (replaced.current_schema_id, current.named_schema_id) == (2, 2)
    assert replaced.view_uuid == UUID
    golden("views/view-replaced.json", replaced.to_json())


def test_a_version_without_a_schema_has_none_of_the_version_before() -> None:
    first = view("SELECT 1", "a")
    assert first.current_schema_id == 1
    second = replaced_view(first, draft("SELECT 2"), 2_000, name=NAME)
    assert (second.current_schema_id, second.current_version.named_schema_id) == (None, None)
    assert rolled_back_view(second, 1, 3_000, name=NAME).current_schema_id == 1


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ([(1, "a"), (1, "b")], "'a' and 'b' have id 1"),
        ([(1, "a"), (2, "a")], "multiple fields for name a"),
        ([("1", "a")], "id '1': give a whole number"),
    ],
)
def test_a_schema_with_an_id_or_a_name_twice_is_refused(fields: list[tuple[Any, str]], reason: str) -> None:
    body = [{"id": each, "name": name, "required": False, "type": "int"} for each, name in fields]
    given = VersionDraft(draft("SELECT 1").representations, {"type": "struct", "fields": body})
    for make in (
        lambda: new_view(UUID, "s3://lake/demo/v", given, {}, 1_000, name=NAME),
        lambda: replaced_view(view(), given, 1_000, name=NAME),
    ):
        with pytest.raises(Invalid, match=reason) as refused:
            make()
        assert refused.value.code == "view-invalid"


def test_the_first_schema_has_the_id_that_it_is_sent_with_and_the_next_ones_count_on() -> None:
    sent = VersionDraft(draft("SELECT 1").representations, schema("a") | {"schema-id": 0})
    made = new_view(UUID, "s3://lake/demo/v", sent, {}, 1_000, name=NAME)
    assert (made.current_schema_id, made.current_version.named_schema_id) == (0, 0)
    other = VersionDraft(draft("SELECT 2").representations, schema("b") | {"schema-id": 7})
    assert replaced_view(made, other, 2_000, name=NAME).current_schema_id == 1
    for unusable in ("0", -1, None, True):
        unsent = VersionDraft(draft("SELECT 1").representations, schema("a") | {"schema-id": unusable})
        assert new_view(UUID, "s3://lake/demo/v", unsent, {}, 1_000, name=NAME).current_schema_id == 1


def test_a_schema_that_is_there_is_used_again() -> None:
    replaced = replaced_view(view("SELECT 1", "a"), draft("SELECT 2", "a"), 2_000, name=NAME)
    assert (len(replaced.schemas or ()), replaced.current_schema_id) == (1, 1)
    assert replaced.current_version.named_schema_id == 1


def test_a_replacement_that_is_identical_to_the_current_version_changes_nothing() -> None:
    before = view("SELECT 1", "a")
    assert replaced_view(before, draft("SELECT 1", "a"), 2_000, name=NAME) is before


def test_a_replacement_that_is_identical_to_an_earlier_version_makes_that_one_current() -> None:
    second = replaced_view(view("SELECT 1", "a"), draft("SELECT 2", "a"), 2_000, name=NAME)
    third = replaced_view(second, draft("SELECT 1", "a"), 3_000, name=NAME)
    assert (third.current_version_id, ids(third)) == (1, [1, 2])
    assert log(third) == [(1_000, 1), (2_000, 2), (3_000, 1)]


@pytest.mark.parametrize(
    "other",
    [
        draft("SELECT 1", "b"),
        draft("SELECT 1"),
        draft("SELECT 1 ", "a"),
        draft("SELECT 1", "a", dialect="trino"),
        draft("SELECT 1", "a", note="another"),
    ],
    ids=["schema", "no-schema", "sql", "dialect", "summary"],
)
def test_a_replacement_that_differs_in_anything_is_a_version_of_its_own(other: VersionDraft) -> None:
    assert ids(replaced_view(view("SELECT 1", "a"), other, 2_000, name=NAME)) == [1, 2]


def test_a_view_rolled_back_shows_it_in_its_log_and_loses_no_version() -> None:
    second = replaced_view(view("SELECT 1", "a"), draft("SELECT 2", "b"), 2_000, name=NAME)
    back = rolled_back_view(second, 1, 3_000, name=NAME)
    assert (back.current_version_id, back.current_schema_id, ids(back)) == (1, 1, [1, 2])
    assert log(back) == [(1_000, 1), (2_000, 2), (3_000, 1)]
    assert rolled_back_view(back, 1, 4_000, name=NAME) is back
    third = replaced_view(back, draft("SELECT 3", "a"), 4_000, name=NAME)
    assert (third.current_version_id, third.current_version.parent_version_id) == (3, 1)


def test_a_version_that_a_view_does_not_have_cannot_become_current() -> None:
    with pytest.raises(Invalid, match="no version 7; it has 1") as caught:
        rolled_back_view(view(), 7, 2_000, name=NAME)
    assert caught.value.code == "view-version-unknown"


def test_a_view_keeps_ten_versions_or_as_many_as_it_says() -> None:
    for properties, wanted in (({}, 10), ({HISTORY_PROPERTY: "3"}, 3)):
        found = view_with_properties(view(), properties, (), name=NAME)
        for number in range(2, 30):
            found = replaced_view(found, draft(f"SELECT {number}"), number * 1_000, name=NAME)
        assert ids(found) == list(range(30 - wanted, 30))
        assert [entry.version_id for entry in found.version_log] == ids(found)


def test_the_current_version_is_never_cut() -> None:
    found = view()
    for number in range(2, 6):
        found = replaced_view(found, draft(f"SELECT {number}"), number * 1_000, name=NAME)
    found = rolled_back_view(found, 1, 9_000, name=NAME)
    cut = view_with_properties(found, {HISTORY_PROPERTY: "2"}, (), name=NAME)
    assert (cut.current_version_id, ids(cut)) == (1, [1, 5])
    assert log(cut) == [(5_000, 5), (9_000, 1)]


def test_an_id_is_never_given_to_another_version() -> None:
    found = rolled_back_view(replaced_view(view(), draft("SELECT 2"), 2_000, name=NAME), 1, 3_000, name=NAME)
    cut = view_with_properties(found, {HISTORY_PROPERTY: "1"}, (), name=NAME)
    assert replaced_view(cut, draft("SELECT 3"), 4_000, name=NAME).current_version_id == 3


def test_a_log_goes_on_in_time_whatever_the_clock_says() -> None:
    found = replaced_view(view(), draft("SELECT 2"), 10, name=NAME)
    assert log(found) == [(1_000, 1), (1_000, 2)]


def test_rolling_back_again_and_again_does_not_grow_the_log_without_end() -> None:
    found = replaced_view(view(), draft("SELECT 2"), 2_000, name=NAME)
    filler = tuple(found.version_log) * (LOG_ENTRIES_MAX // 2)
    full = found.model_copy(update={"version_log": filler})
    assert len(rolled_back_view(full, 1, 3_000, name=NAME).version_log) == LOG_ENTRIES_MAX


def test_properties_are_set_and_removed_without_a_version() -> None:
    found = view_with_properties(view(comment="one"), {"owner": "me"}, ["comment", "absent"], name=NAME)
    assert found.properties == {"owner": "me"}
    assert (ids(found), log(found)) == ([1], [(1_000, 1)])
    assert view_with_properties(found, {"owner": "me"}, ["absent"], name=NAME) is found


@pytest.mark.parametrize("number", ["0", "-1", "many", "", "1.5", "9" * 10, "\u0663"])
def test_a_number_of_versions_that_is_none_is_refused(number: str) -> None:
    with pytest.raises(Invalid, match=re.escape(HISTORY_PROPERTY)) as caught:
        view_with_properties(view(), {HISTORY_PROPERTY: number}, (), name=NAME)
    assert caught.value.code == "view-invalid"
    with pytest.raises(Invalid):
        new_view(UUID, "s3://lake/demo/v", draft("SELECT 1"), {HISTORY_PROPERTY: number}, 1, name=NAME)


def test_two_texts_in_one_dialect_are_refused_in_a_new_version() -> None:
    texts = tuple(SqlRepresentation(type="sql", sql="SELECT 1", dialect=dialect) for dialect in ("spark", "SPARK"))
    for make in (
        lambda: new_view(UUID, "s3://lake/demo/v", VersionDraft(texts), {}, 1, name=NAME),
        lambda: replaced_view(view(), VersionDraft(texts), 2_000, name=NAME),
    ):
        with pytest.raises(Invalid) as caught:
            make()
        assert caught.value.code == "view-dialect-twice"


def test_a_version_that_makes_a_view_too_large_is_refused() -> None:
    found = view()
    for number in range(8):
        found = replaced_view(found, draft(f"{number}" * (VIEW_BYTES_MAX // 10)), 2_000, name=NAME)
    with pytest.raises(Invalid) as caught:
        replaced_view(found, draft("x" * (VIEW_BYTES_MAX // 4)), 3_000, name=NAME)
    assert caught.value.code == "view-too-large"
    few = view_with_properties(found, {HISTORY_PROPERTY: "2"}, (), name=NAME)
    assert replaced_view(few, draft("x" * (VIEW_BYTES_MAX // 4)), 3_000, name=NAME).current_version_id == 10


@pytest.mark.parametrize(
    "wrong",
    [
        VersionDraft(()),
        draft("SELECT 1", note="\ud800"),
        VersionDraft(draft("SELECT 1").representations, {"type": "struct", "fields": [{"id": 1}]}),
        VersionDraft(
            (SqlRepresentation(type="sql", sql="SELECT 1", dialect="spark", field_aliases=("a", "b")),), schema("a")
        ),
    ],
    ids=["nothing", "half a character", "schema", "aliases"],
)
def test_a_version_that_cannot_be_is_refused(wrong: VersionDraft) -> None:
    with pytest.raises(Invalid) as caught:
        replaced_view(view(), wrong, 2_000, name=NAME)
    assert (caught.value.code, caught.value.message.startswith(NAME)) == ("view-invalid", True)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(["replace", "back", "keep"]), st.integers(1, 6)), max_size=30))
def test_whatever_the_changes_a_view_reads_back_and_its_ids_rise(changes: list[tuple[str, int]]) -> None:
    found, highest = view("SELECT 0", "a"), 1
    for at, (kind, number) in enumerate(changes):
        before = found
        if kind == "replace":
            found = replaced_view(found, draft(f"SELECT {number}", *"ab"[: number % 3]), 2_000 + at, name=NAME)
        elif kind == "keep":
            found = view_with_properties(found, {HISTORY_PROPERTY: str(number)}, (), name=NAME)
        else:
            found = rolled_back_view(found, ids(found)[number % len(found.versions)], 2_000 + at, name=NAME)
        assert ViewMetadata.from_json(found.to_json()) == found
        assert json.loads(found.to_json())["view-uuid"] == str(UUID)
        fresh = set(ids(found)) - set(ids(before))
        assert not fresh or min(fresh) > highest
        highest = max([highest, *fresh])
        assert found.current_version_id == found.version_log[-1].version_id
        assert len(found.versions) <= max(2, int((found.properties or {}).get(HISTORY_PROPERTY, "10")))
