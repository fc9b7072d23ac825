"""Tags: names for versions, set, moved and deleted by intents."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import pytest

from rootline.schemas.identifiers import Version
from rootline.schemas.intent import Intent, IntentKind, VersionReference
from rootline.schemas.root_header import Operation, RootHeader
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.tree.check.invariants import violations
from rootline.tree.check.root_diff import diff
from rootline.tree.intents.versions import TAGS_MAX
from rootline.tree.parts.tags import tag_violations
from rootline.tree.state.table_state import TableState
from tests.tree.tables import Lake, append, intent, new_lake, remove, removed

COMMITTED = (VerdictKind.COMMITTED, None)


def tag(name: str, version: int | None, seen: int | None = None, number: str = "") -> Intent:
    ref = VersionReference(version=version, tag=name, seen_version=seen)
    return intent(IntentKind.TAG, f"tag-{name}-{version}-{number}", ref=ref)


def put(lake: Lake, *intents: Intent) -> list[tuple[VerdictKind, str | None]]:
    return [_outcome(verdict) for verdict in lake.put(*intents)]


def _outcome(verdict: Verdict) -> tuple[VerdictKind, str | None]:
    return verdict.kind, verdict.code


def test_a_tag_is_set_moved_and_deleted() -> None:
    lake = new_lake(append("a"), append("b"))
    assert put(lake, tag("release", 1)) == [COMMITTED]
    assert lake.head.header.tags == {"release": 1}
    assert put(lake, tag("release", 2, seen=1)) == [COMMITTED]
    assert lake.head.header.tags == {"release": 2}
    assert put(lake, tag("release", None, seen=2)) == [COMMITTED]
    assert lake.head.header.tags == {}


def test_a_root_of_tags_changes_nothing_and_says_which_tags_it_changed() -> None:
    lake = new_lake(append("a"))
    before = lake.live().keys()
    put(lake, tag("b", 1), tag("a", 0))
    snapshot = lake.head.header.snapshot
    assert snapshot.operation is Operation.REPLACE
    assert snapshot.summary["rootline.changed-tags"] == "a,b"
    assert not diff(lake.head.root, {})
    assert lake.live().keys() == before
    put(lake, append("b"))
    assert "rootline.changed-tags" not in lake.head.header.snapshot.summary


def test_tags_survive_every_other_commit() -> None:
    lake = new_lake(append("a"), append("b"))
    put(lake, tag("release", 1))
    lake.put(lake.flush("f", lake.leaf(lake.root_entries())))
    lake.put(remove("r", removed("data/a.parquet")))
    lake.put(append("b"))  # rejected
    assert lake.head.header.tags == {"release": 1}
    assert lake.reloaded().header.tags == {"release": 1}


def test_a_tag_that_is_not_where_the_writer_saw_it_is_a_conflict() -> None:
    lake = new_lake(append("a"), append("b"))
    put(lake, tag("release", 1))
    conflict = [(VerdictKind.REJECTED, "tag-conflict")]
    assert put(lake, tag("release", 2)) == conflict
    assert put(lake, tag("release", 2, seen=0)) == conflict
    assert put(lake, tag("release", None, seen=2)) == conflict
    assert put(lake, tag("other", 2, seen=1)) == conflict
    assert lake.head.header.tags == {"release": 1}


def test_a_tag_that_is_where_the_intent_wants_it_is_no_conflict() -> None:
    lake = new_lake(append("a"))
    put(lake, tag("release", 1))
    assert put(lake, tag("release", 1, number="again")) == [COMMITTED]
    assert put(lake, tag("gone", None, seen=1)) == [COMMITTED]
    assert lake.head.header.tags == {"release": 1}


def test_a_later_intent_of_a_batch_sees_what_the_earlier_ones_did_to_a_tag() -> None:
    lake = new_lake(append("a"))
    outcomes = put(lake, tag("t", 0), tag("t", 1), tag("t", 1, seen=0), tag("t", None, seen=1), tag("t", 0, number="2"))
    assert outcomes == [COMMITTED, (VerdictKind.REJECTED, "tag-conflict"), COMMITTED, COMMITTED, COMMITTED]
    assert lake.head.header.tags == {"t": 0}


@pytest.mark.parametrize("version", [2, 99])
def test_only_a_version_that_the_table_has_can_be_tagged(version: int) -> None:
    lake = new_lake(append("a"))
    assert put(lake, tag("t", version)) == [(VerdictKind.REJECTED, "version-unknown")]


def test_an_expired_version_can_be_tagged_only_while_another_tag_keeps_it() -> None:
    lake = new_lake(append("a"), append("b"), append("c"))
    put(lake, tag("kept", 1))
    header = dataclasses.replace(lake.head.header, versions=replace(lake.head.header.versions, oldest=Version(3)))
    lake.state = dataclasses.replace(lake.head, root=dataclasses.replace(lake.head.root, header=header))
    unknown = (VerdictKind.REJECTED, "version-unknown")
    assert put(lake, tag("t", 2), tag("t", 1), tag("kept", None, seen=1), tag("u", 1), tag("t", None, seen=1)) == [
        unknown,
        COMMITTED,
        COMMITTED,
        COMMITTED,
        COMMITTED,
    ]
    assert put(lake, tag("u", None, seen=1), tag("u", 1, number="2")) == [COMMITTED, unknown]


@pytest.mark.parametrize("name", ["", " ", "a b", "a/b", "a,b", "ä", "x" * 65, "a\n"])
def test_a_name_that_cannot_be_a_tags_is_refused(name: str) -> None:
    assert put(new_lake(append("a")), tag(name, 1)) == [(VerdictKind.REJECTED, "tag-invalid")]


def test_a_table_has_a_limited_number_of_tags() -> None:
    lake = new_lake(append("a"))
    assert set(put(lake, *(tag(f"t{number}", 1) for number in range(TAGS_MAX)))) == {COMMITTED}
    assert put(lake, tag("more", 1)) == [(VerdictKind.REJECTED, "tag-invalid")]
    assert put(lake, tag("t0", None, seen=1), tag("more", 1, number="2")) == [COMMITTED, COMMITTED]


def test_a_repeated_intent_of_a_writer_is_a_duplicate() -> None:
    lake = new_lake(append("a"))
    first = tag("t", 1).model_copy(update={"writer_id": "w", "writer_sequence": 0})
    put(lake, first)
    put(lake, tag("t", None, seen=1))
    assert put(lake, first)[0][0] is VerdictKind.DUPLICATE
    assert lake.head.header.tags == {}


@pytest.mark.parametrize(
    "ref",
    [
        None,
        VersionReference(version=1),
        VersionReference(tag="t"),
        VersionReference(),
    ],
)
def test_an_intent_that_does_not_say_what_becomes_of_which_tag_is_malformed(ref: VersionReference | None) -> None:
    with pytest.raises(ValueError, match="kind tag must"):
        intent(IntentKind.TAG, "t", ref=ref)


def test_other_kinds_cannot_carry_a_reference() -> None:
    with pytest.raises(ValueError, match="cannot carry ref"):
        append("a", ref=VersionReference(version=1))


def _with(header: RootHeader, **summary: str) -> RootHeader:
    snapshot = dataclasses.replace(header.snapshot, summary={**header.snapshot.summary, **summary})
    return dataclasses.replace(header, snapshot=snapshot)


def test_a_root_that_changes_tags_unseen_is_never_written_and_is_found_when_stored() -> None:
    lake = new_lake(append("a"))
    put(lake, tag("t", 1))
    old = lake.head
    lake.put(append("b"))
    good = lake.head
    for tags, word in (({}, "the changed tags"), ({"t": 0}, "the changed tags"), ({"t": 1, "u": 9}, "ahead")):
        header = dataclasses.replace(good.header, tags=tags)
        bad = TableState(dataclasses.replace(good.root, header=header), good.definition, good.leaves, good.live)
        assert any(word in sentence for sentence in violations(old, bad))
        assert any(word in sentence for sentence in tag_violations(old.header, header))
    stated = _with(good.header, **{"rootline.changed-tags": "t"})
    assert list(tag_violations(old.header, stated)) != []
    assert list(tag_violations(old.header, good.header)) == []


def test_a_tag_on_a_table_that_is_not_there_is_rejected() -> None:
    lake = Lake()
    assert [verdict.code for verdict in lake.put(tag("t", 0))] == ["table-unknown"]
