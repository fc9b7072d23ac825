"""Back to an earlier version: what is live afterwards, and what the root shows of it."""

from __future__ import annotations

import dataclasses
import uuid
from dataclasses import replace

import pytest

from rootline.schemas.bytes.leaf_codec import LeafContent
from rootline.schemas.content_entry import ContentType, EntryPlace, Status
from rootline.schemas.identifiers import Version
from rootline.schemas.intent import Intent, IntentKind, VersionReference
from rootline.schemas.root_header import Operation
from rootline.schemas.verdict import VerdictKind
from rootline.tree.check.invariants import violations
from rootline.tree.check.root_diff import diff
from rootline.tree.commit.apply import apply_batch
from rootline.tree.draft import version_difference
from rootline.tree.draft.batch import ABSENT, Applied, FetchedObjects, Stamp
from rootline.tree.intents.restore import DefinitionNeed, RootNeed
from rootline.tree.rules.leaf_rules import LeafNeed
from rootline.tree.state.table_state import TableState
from tests.support.state_rules import state_violations
from tests.tree.intents.test_compact_vectors import moving
from tests.tree.intents.test_tags import tag
from tests.tree.range_changes import check_every_range
from tests.tree.tables import (
    TABLE,
    Lake,
    append,
    codes,
    data_file,
    equality_delete,
    intent,
    kinds,
    new_lake,
    remove,
    removed,
    seen_vector,
)

A, B, C = "data/a.parquet", "data/b.parquet", "data/c.parquet"
Content = dict[EntryPlace, tuple[int | None, int | None, int]]


@pytest.fixture(params=[version_difference.MANY, 1], autouse=True, ids=["into the root", "into leaves"])
def many(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """From how many entries of an old leaf on they come back in a leaf of their own."""
    monkeypatch.setattr(version_difference, "MANY", request.param)
    return int(request.param)


def restore(version: int, name: str = "") -> Intent:
    return intent(IntentKind.RESTORE, f"restore-{version}-{name}", ref=VersionReference(version=version))


def content(state: TableState) -> Content:
    """What is live: where, as old as what, with which row ids, of how many rows."""
    return {
        live.entry.place: (live.entry.version_info.sequence_number, live.entry.first_row_id, live.entry.record_count)
        for live in state.live.entries()
    }


def put_restored(lake: Lake, version: int, *others: Intent) -> TableState:
    """Restore, and hold what follows against the version."""
    verdicts = lake.put(*others, restore(version, str(len(lake.states))))
    assert kinds(verdicts) == [VerdictKind.COMMITTED] * len(verdicts)
    assert content(lake.head) == content(lake.states[version])
    assert state_violations(lake.head) == []
    assert content(lake.reloaded()) == content(lake.head)
    check_every_range(lake)
    return lake.head


def shown(state: TableState) -> tuple[set[str], set[str]]:
    changes = diff(state.root, state.leaves)
    return {entry.location for entry in changes.added}, {entry.location for entry in changes.removed}


def delta(lake: Lake, name: str, target: str, positions: list[int]) -> Intent:
    vector = lake.vector(name, target, positions, seen_vector(lake.head, target))
    return intent(IntentKind.ROW_DELTA, name, add_vectors=(vector,))


def test_files_that_were_added_leave_and_files_that_were_removed_come_back() -> None:
    lake = new_lake(append("a"), append("b"))
    lake.put(append("c"), remove("r", removed(A)))
    state = put_restored(lake, 2)
    assert shown(state) == ({A}, {C})
    assert state.header.snapshot.operation is Operation.OVERWRITE
    assert state.header.snapshot.summary["rootline.restored-versions"] == "2"


def test_a_file_comes_back_as_old_as_it_was_and_is_added_by_this_snapshot() -> None:
    lake = new_lake(append("a"), remove("r", removed(A)))
    before = lake.states[1].find(EntryPlace(ContentType.DATA, A))
    state = put_restored(lake, 1)
    now = state.find(EntryPlace(ContentType.DATA, A))
    assert before is not None
    assert now is not None
    old, new = before.entry.version_info, now.entry.version_info
    assert new.sequence_number == old.sequence_number
    assert (new.status, new.snapshot_id) == (Status.ADDED, state.header.snapshot.snapshot_id)
    assert new.file_sequence_number == state.header.snapshot.sequence_number
    assert now.entry.first_row_id == before.entry.first_row_id


def test_counters_and_what_was_decided_never_go_back() -> None:
    lake = new_lake(append("a", writer_id="w", writer_sequence=0), append("b"))
    lake.put(tag("kept", 2))
    lake.put(append("c", writer_id="w", writer_sequence=1))
    before = lake.head.header
    after = put_restored(lake, 1).header
    assert after.row_ids.next == before.row_ids.next
    assert after.snapshot.sequence_number == before.snapshot.sequence_number + 1
    assert after.log.offsets[0].next_offset == before.log.offsets[0].next_offset + 1
    assert after.ledger.writers["w"].committed[-1].last == 1  # type: ignore[index]
    assert after.tags == {"kept": 2}
    verdict = lake.put(append("c", data_file("again"), writer_id="w", writer_sequence=1))
    assert kinds(verdict) == [VerdictKind.DUPLICATE]
    lake.put(append("d"))
    added = lake.head.find(EntryPlace(ContentType.DATA, "data/d.parquet"))
    assert added is not None
    assert added.entry.first_row_id == before.row_ids.next


def test_a_vector_goes_back_to_what_it_was_and_the_file_stays() -> None:
    lake = new_lake(append("a"))
    lake.put(delta(lake, "v1", A, [1]))
    lake.put(delta(lake, "v2", A, [1, 2]))
    state = put_restored(lake, 2)
    assert shown(state) == ({"data/v1.puffin"}, {"data/v2.puffin"})
    assert lake.deleted_rows() == {A: {1}}
    state = put_restored(lake, 1)
    assert shown(state) == (set(), {"data/v1.puffin"})
    assert lake.deleted_rows() == {A: set()}
    state = put_restored(lake, 3)
    assert shown(state) == ({"data/v2.puffin"}, set())
    assert lake.deleted_rows() == {A: {1, 2}}


def test_a_file_comes_back_with_the_vector_that_it_had() -> None:
    lake = new_lake(append("a"))
    lake.put(delta(lake, "v1", A, [1]))
    lake.put(remove("r", removed(A, seen_vector(lake.head, A))))
    put_restored(lake, 2)
    assert lake.deleted_rows() == {A: {1}}


def numbers_of(state: TableState) -> dict[str, int]:
    return {live.entry.location: live.entry.version_info.sequence_number or 0 for live in state.live.entries()}


def test_equality_deletes_reach_what_they_reached_and_later_ones_are_gone() -> None:
    lake = new_lake(append("a"))
    lake.put(intent(IntentKind.ROW_DELTA, "e1", add_equality_deletes=[equality_delete("e1", 3, "UA")]))
    lake.put(append("b"))  # version 3: e1 reaches a, not b
    lake.put(intent(IntentKind.ROW_DELTA, "e2", add_equality_deletes=[equality_delete("e2", 3, "UA")]))
    lake.put(remove("r", removed(A), removed(B)))
    state = put_restored(lake, 3)
    numbers = numbers_of(state)
    assert set(numbers) == {A, B, "data/e1.parquet"}
    assert numbers[A] < numbers["data/e1.parquet"] < numbers[B]
    lake.put(intent(IntentKind.ROW_DELTA, "e3", add_equality_deletes=[equality_delete("e3", 4, "UA")]))
    assert numbers_of(lake.head)["data/e3.parquet"] > max(numbers.values())


def test_entries_of_a_leaf_that_both_versions_have_leave_by_its_vector_and_come_back_elsewhere(many: int) -> None:
    lake = new_lake(append("a", data_file("a"), data_file("b"), data_file("c")))
    lake.put(lake.flush("f", lake.leaf(lake.root_entries())))
    lake.put(remove("r", removed(A)))
    state = put_restored(lake, 2)
    assert shown(state) == ({A}, set())
    place = EntryPlace(ContentType.DATA, A)
    assert (place in state.live.rows) == (many > 1)
    state = put_restored(lake, 3)
    assert shown(state) == (set(), {A})
    lake.put(append("d"))
    assert content(lake.head).keys() >= content(lake.states[3]).keys()


def test_what_moved_between_root_and_leaves_stays_where_it_is() -> None:
    lake = new_lake(append("a"), append("b"))
    lake.put(delta(lake, "v1", A, [1]))
    files = lake.leaf(lake.root_entries())
    vectors = lake.leaf(lake.root_entries(ContentType.POSITION_DELETE), content=LeafContent.DELETE)
    lake.put(lake.flush("f", files, vectors))
    lake.put(append("c"))
    state = put_restored(lake, 3)
    assert shown(state) == (set(), {C})
    assert state.header.snapshot.operation is Operation.DELETE
    assert state.live.leaf_rows.keys() == {files.location, vectors.location}


def test_entries_of_a_leaf_that_has_left_the_tree_come_back() -> None:
    lake = new_lake(append("a", data_file("a"), data_file("b")))
    leaf = lake.leaf(lake.root_entries())
    lake.put(lake.flush("f", leaf))
    lake.put(remove("r", removed(A), removed(B)))
    lake.put(append("c"))
    lake.put(lake.flush("g", lake.leaf(lake.root_entries())))
    assert leaf.location not in lake.head.leaves
    state = put_restored(lake, 2)
    assert shown(state) == ({A, B}, {C})
    assert [set(needs) for needs in lake.rounds[-2:]] == [{RootNeed(Version(2))}, {LeafNeed(leaf.location)}]


def test_a_restored_entry_can_be_flushed_and_removed_and_restored_again() -> None:
    lake = new_lake(append("a"), remove("r", removed(A)))
    put_restored(lake, 1)
    lake.put(lake.flush("f", lake.leaf(lake.root_entries())))
    assert lake.head.header.totals.data_manifests == 1
    lake.put(remove("r2", removed(A)))
    put_restored(lake, 1)
    put_restored(lake, 2)
    put_restored(lake, 4)


def test_a_flush_that_began_before_a_restore_moves_nothing_that_came_back() -> None:
    lake = new_lake(append("a"))
    leaf = lake.leaf(lake.root_entries())
    lake.put(remove("r", removed(A)))
    put_restored(lake, 1)
    assert codes(lake.put(lake.flush("late", leaf, made_from=1))) == ["flush-stale"]


def test_a_restore_sees_what_the_intents_before_it_in_its_batch_did() -> None:
    lake = new_lake(append("a"), append("b"))
    changes = (append("c"), remove("r", removed(A)), delta(lake, "v", B, [1]))
    state = put_restored(lake, 2, *changes)
    assert numbers_of(state).keys() == {A, B}
    assert lake.deleted_rows() == {A: set(), B: set()}
    leaf = lake.leaf(lake.root_entries())
    state = put_restored(lake, 1, lake.flush("f", leaf), append("d"))
    assert numbers_of(state).keys() == {A}


def test_intents_after_a_restore_in_its_batch_see_the_restored_table() -> None:
    lake = new_lake(append("a"), remove("r", removed(A)))
    verdicts = lake.put(restore(1), append("a", data_file("a")), remove("again", removed(A)), restore(1, "2"))
    assert codes(verdicts) == [None, "file-already-live", None, None]
    assert content(lake.head) == content(lake.states[1])
    assert state_violations(lake.head) == []
    assert lake.head.header.snapshot.summary["rootline.restored-versions"] == "1,1"


def test_the_same_location_with_another_content_is_replaced_by_the_older_one() -> None:
    lake = new_lake(append("a"), remove("r", removed(A)), append("a2", data_file("a", rows=4)))
    state = put_restored(lake, 1)
    assert shown(state) == ({A}, {A})
    assert [entry.record_count for entry in lake.live().values()] == [10]


def test_restoring_the_head_changes_nothing() -> None:
    lake = new_lake(append("a"))
    state = put_restored(lake, 1)
    assert shown(state) == (set(), set())
    assert state.header.snapshot.operation is Operation.REPLACE


def test_the_empty_table_can_be_restored() -> None:
    lake = new_lake(append("a"), append("b"))
    lake.put(lake.flush("f", lake.leaf(lake.root_entries())))
    assert shown(put_restored(lake, 0)) == (set(), {A, B})
    put_restored(lake, 3)


@pytest.mark.parametrize("version", [2, 99])
def test_a_version_that_is_not_there_yet_cannot_be_restored(version: int) -> None:
    lake = new_lake(append("a"))
    assert codes(lake.put(restore(version))) == ["version-unknown"]


def test_an_expired_version_can_be_restored_only_by_its_tag() -> None:
    lake = new_lake(append("a"), append("b"), append("c"))
    lake.put(tag("kept", 1))
    header = dataclasses.replace(lake.head.header, versions=replace(lake.head.header.versions, oldest=Version(3)))
    lake.state = dataclasses.replace(lake.head, root=dataclasses.replace(lake.head.root, header=header))
    assert codes(lake.put(restore(2))) == ["version-unknown"]
    assert codes(lake.put(restore(1))) == [None]
    assert content(lake.head) == content(lake.states[1])


def test_what_cannot_be_read_rejects_the_restore_and_nothing_else() -> None:
    lake = new_lake(append("a"))
    leaf = lake.leaf(lake.root_entries())
    lake.put(lake.flush("f", leaf))
    lake.put(remove("r", removed(A)))
    lake.put(append("b"))
    lake.put(lake.flush("g", lake.leaf(lake.root_entries())))
    version = Version(2)
    root = lake.states[2].root
    need = RootNeed(version)
    absent_root = FetchedObjects({need: ABSENT})
    absent_leaf = FetchedObjects({LeafNeed(leaf.location): ABSENT, need: root})
    other_uuid = dataclasses.replace(root, header=dataclasses.replace(root.header, table_uuid=uuid.UUID(int=1)))
    reference = dataclasses.replace(root.header.definition, digest=bytes(32))
    other_definition = dataclasses.replace(root, header=dataclasses.replace(root.header, definition=reference))
    absent_definition = DefinitionNeed(reference, root.header.table_uuid)
    for fetched, word in (
        (absent_root, "absent"),
        (absent_leaf, "leaf"),
        (FetchedObjects({need: other_uuid}), "another table"),
        (FetchedObjects({need: other_definition, absent_definition: ABSENT}), "its definition"),
    ):
        stamp = Stamp(lake.head.header.commit_id, "c", lake.now_ms + 10)
        found = apply_batch(lake.head, TABLE, lake.records([restore(2), append("x")]), fetched, stamp)
        assert isinstance(found, Applied)
        assert codes(found.verdicts) == ["restore-impossible", None]
        assert word in (found.verdicts[0].message or "")


def test_a_restore_names_a_version_and_nothing_else() -> None:
    for ref in (
        None,
        VersionReference(),
        VersionReference(version=1, tag="t"),
        VersionReference(version=1, seen_version=0),
    ):
        with pytest.raises(ValueError, match="kind restore must"):
            intent(IntentKind.RESTORE, "r", ref=ref)


def test_an_entry_is_added_with_an_older_number_by_a_restore_only() -> None:
    lake = new_lake(append("a"), append("b"), remove("r", removed(A)))
    state = put_restored(lake, 2)
    snapshot = state.header.snapshot
    unsaid = {key: value for key, value in snapshot.summary.items() if "restored" not in key}
    header = dataclasses.replace(state.header, snapshot=dataclasses.replace(snapshot, summary=unsaid))
    bad = dataclasses.replace(state, root=dataclasses.replace(state.root, header=header))
    assert any("sequence number" in sentence for sentence in violations(lake.states[-2], bad))


def test_a_restore_of_too_many_entries_is_refused_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_difference, "ENTRIES_MAX", 1)
    lake = new_lake(append("a", data_file("a"), data_file("b")), append("c"), remove("r", removed(A), removed(B)))
    assert codes(lake.put(restore(1))) == ["restore-impossible"]
    assert codes(lake.put(restore(0))) == [None]


def test_many_entries_of_a_leaf_leave_at_once() -> None:
    files = [data_file(f"f{number}") for number in range(1_200)]
    lake = new_lake(append("a"), append("many", *files))
    lake.put(lake.flush("f", lake.leaf(lake.root_entries())))
    lake.put(remove("r", removed("data/f7.parquet")))
    state = put_restored(lake, 1)
    assert shown(state) == (set(), {file.location for file in files} - {"data/f7.parquet"})
    assert state.header.totals.data_files == 1


def test_a_version_whose_manifest_vectors_rest_in_files_can_be_restored() -> None:
    lake = new_lake(append("a", data_file("a"), data_file("b"), data_file("c")))
    lake.put(lake.flush("f", lake.leaf(lake.root_entries())))
    lake.put(remove("r", removed(A)))
    lake.put(moving(lake, [0]))
    assert content(lake.head) == content(lake.states[3])
    lake.put(remove("r2", removed(B), removed(C)), append("d"))
    state = put_restored(lake, 4)
    assert shown(state) == ({B, C}, {"data/d.parquet"})
