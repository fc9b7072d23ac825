from __future__ import annotations

import pytest
from pydantic import ValidationError

from rootline.schemas.bytes.leaf_codec import LeafContent
from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace, Status
from rootline.schemas.intent import DataFile, Intent, IntentKind, Isolation, RemovedFile, VersionReference
from rootline.schemas.root_header import Operation
from rootline.tree.check.invariants import violations
from rootline.tree.check.root_diff import diff
from rootline.tree.scan.delete_index import may_apply
from tests.support.state_rules import state_violations
from tests.tree.tables import (
    BY_BUCKET,
    DEFINITION,
    UNPARTITIONED,
    Lake,
    append,
    codes,
    data_file,
    equality_delete,
    intent,
    new_lake,
    remove,
    removed,
    seen_vector,
)

A, B, NEW = "data/a.parquet", "data/b.parquet", "data/new.parquet"


def rewrite(lake: Lake, intent_id: str, *names: str, adds: tuple[DataFile, ...], **more: object) -> Intent:
    """By a writer who read the head."""
    files = [removed(name, seen_vector(lake.head, name)) for name in names]
    fields: dict[str, object] = {"read_sequence_number": lake.head.header.snapshot.sequence_number}
    return intent(IntentKind.REWRITE, intent_id, remove_files=files, add_data_files=adds, **(fields | more))


def delete_rows(lake: Lake, name: str, target: str, *positions: int) -> Intent:
    vector = lake.vector(name, target, positions, seen_vector(lake.head, target))
    return intent(IntentKind.ROW_DELTA, name, add_vectors=(vector,))


def delete_value(name: str, value: int, carrier: str | None = "UA", *, spec: int = 0) -> Intent:
    return intent(IntentKind.ROW_DELTA, name, add_equality_deletes=(equality_delete(name, value, carrier, spec=spec),))


def entry_of(lake: Lake, location: str) -> ContentEntry:
    return lake.live()[EntryPlace(ContentType.DATA, location)]


def changed(lake: Lake) -> bool:
    return bool(diff(lake.head.root, lake.head.leaves, lake.head.live.stored))


def flush(lake: Lake, intent_id: str) -> Intent:
    """Of all data files and vectors of the root."""
    data = lake.leaf(lake.root_entries())
    vectors = lake.root_entries(ContentType.POSITION_DELETE)
    deletes = [lake.leaf(vectors, content=LeafContent.DELETE, belongs_to=data.location)] if vectors else []
    return lake.flush(intent_id, data, *deletes)


def test_two_files_become_one_that_is_existing_and_as_old_as_what_was_read() -> None:
    lake = new_lake(append("a"), append("b"))
    read = lake.head.header.snapshot.sequence_number
    assert codes(lake.put(rewrite(lake, "r", A, B, adds=(data_file("new", rows=20),)))) == [None]
    snapshot = lake.head.header.snapshot
    found = entry_of(lake, NEW).version_info
    assert (found.status, found.snapshot_id) == (Status.EXISTING, snapshot.snapshot_id)
    assert (found.sequence_number, found.file_sequence_number) == (read, snapshot.sequence_number)
    assert set(lake.live()) == {EntryPlace(ContentType.DATA, NEW)}


def test_a_rewrite_is_in_no_change_and_its_snapshot_says_replace() -> None:
    lake = new_lake(append("a"), append("b"))
    lake.put(rewrite(lake, "r", A, B, adds=(data_file("new", rows=20),)))
    snapshot = lake.head.header.snapshot
    assert not changed(lake)
    assert lake.shown(Status.ADDED) == lake.shown(Status.DELETED) == []
    assert snapshot.operation is Operation.REPLACE
    assert dict(snapshot.summary) == {
        "rootline.replaced-data-files": "2",
        "rootline.rewritten-data-files": "1",
        "total-data-files": "1",
        "total-delete-files": "0",
        "total-position-deletes": "0",
        "total-records": "20",
    }
    assert state_violations(lake.head) == []
    assert state_violations(lake.reloaded()) == []


def test_row_ids_of_the_new_file_are_fresh_for_readers_of_files_that_lack_them() -> None:
    lake = new_lake(append("a"), append("b"))
    lake.put(rewrite(lake, "r", A, B, adds=(data_file("new", rows=20),)))
    assert entry_of(lake, NEW).first_row_id == 20
    assert lake.head.header.row_ids.next == 40


def test_sources_in_a_leaf_leave_by_its_existing_vector_and_the_empty_leaf_with_them() -> None:
    lake = new_lake(append("a"), append("b"), append("c"))
    lake.put(flush(lake, "f"))
    [leaf] = lake.head.leaves
    lake.put(rewrite(lake, "r", A, adds=(data_file("new"),)))
    [mask] = [row.entry for row in lake.head.live.manifest_vector_rows[leaf]]
    assert (mask.version_info.status, list(lake.head.live.dead[leaf])) == (Status.EXISTING, [0])
    assert not changed(lake)
    lake.put(rewrite(lake, "r2", B, "data/c.parquet", adds=(data_file("more", rows=20),)))
    assert lake.head.leaves == {}
    assert not changed(lake)
    assert state_violations(lake.head) == []


@pytest.mark.parametrize("in_leaves", [False, True])
def test_the_vector_of_a_source_goes_with_it_and_so_do_its_rows(in_leaves: bool) -> None:
    lake = new_lake(append("a"), append("b"))
    lake.put(delete_rows(lake, "v", A, 1, 2))
    if in_leaves:
        lake.put(flush(lake, "f"))
    lake.put(rewrite(lake, "r", A, B, adds=(data_file("new", rows=18),)))
    assert set(lake.live()) == {EntryPlace(ContentType.DATA, NEW)}
    totals = lake.head.header.totals
    assert (totals.rows, totals.vectors, totals.deleted_rows) == (18, 0, 0)
    assert not changed(lake)
    assert state_violations(lake.head) == []


def test_a_file_none_of_whose_rows_is_left_becomes_no_file() -> None:
    lake = new_lake(append("a", data_file("a", rows=2)))
    lake.put(delete_rows(lake, "v", A, 0, 1))
    assert codes(lake.put(rewrite(lake, "r", A, adds=()))) == [None]
    assert lake.live() == {}
    assert not changed(lake)


def test_a_vector_that_came_after_the_read_makes_the_rewrite_stale() -> None:
    lake = new_lake(append("a"))
    late = rewrite(lake, "r", A, adds=(data_file("new"),))
    assert codes(lake.put(delete_rows(lake, "v", A, 3), late)) == [None, "stale-source"]


def test_of_two_rewrites_of_one_file_the_second_is_stale() -> None:
    lake = new_lake(append("a"))
    one = rewrite(lake, "r1", A, adds=(data_file("one"),))
    other = rewrite(lake, "r2", A, adds=(data_file("two"),))
    assert codes(lake.put(one, other)) == [None, "stale-source"]
    assert set(lake.live()) == {EntryPlace(ContentType.DATA, "data/one.parquet")}


def test_a_source_that_was_removed_or_overwritten_meanwhile_makes_the_rewrite_stale() -> None:
    lake = new_lake(append("a"))
    late = rewrite(lake, "r", A, adds=(data_file("new"),))
    assert codes(lake.put(remove("x", removed(A)), late)) == [None, "stale-source"]


def test_a_source_that_was_removed_and_came_again_makes_the_rewrite_stale() -> None:
    lake = new_lake(append("a"))
    late = rewrite(lake, "r", A, adds=(data_file("new"),))
    lake.put(remove("x", removed(A)))
    assert codes(lake.put(append("again", data_file("a")), late)) == [None, "stale-source"]


@pytest.mark.parametrize("kind", [IntentKind.REMOVE, IntentKind.OVERWRITE, IntentKind.ROW_DELTA])
def test_whoever_planned_with_a_source_of_a_rewrite_plans_anew(kind: IntentKind) -> None:
    lake = new_lake(append("a"))
    late = {
        IntentKind.REMOVE: remove("l", removed(A)),
        IntentKind.OVERWRITE: intent(IntentKind.OVERWRITE, "l", remove_files=(removed(A),)),
        IntentKind.ROW_DELTA: delete_rows(lake, "l", A, 1),
    }[kind]
    assert codes(lake.put(rewrite(lake, "r", A, adds=(data_file("new"),)), late)) == [None, "file-not-live"]


def test_an_equality_delete_after_the_read_reaches_the_new_file() -> None:
    lake = new_lake(append("a"))
    lake.put(delete_value("e1", 3))
    late = rewrite(lake, "r", A, adds=(data_file("new", rows=9),))
    assert codes(lake.put(delete_value("e2", 4), late)) == [None, None]
    deletes = {
        entry.location: entry for entry in lake.live().values() if entry.content_type is ContentType.EQUALITY_DELETE
    }
    reaches = {name: may_apply(entry, entry_of(lake, NEW), DEFINITION) for name, entry in deletes.items()}
    assert reaches == {"data/e1.parquet": False, "data/e2.parquet": True}


def test_sources_of_different_ages_become_as_old_as_the_read_whatever_deletes_lie_between_them() -> None:
    lake = new_lake(append("a"))
    lake.put(delete_value("e", 3))
    lake.put(append("b"))
    read = lake.head.header.snapshot.sequence_number
    assert codes(lake.put(rewrite(lake, "r", A, B, adds=(data_file("new", rows=19),)))) == [None]
    assert entry_of(lake, NEW).version_info.sequence_number == read


@pytest.mark.parametrize(
    ("rows", "code"), [(20, None), (19, None), (10, None), (9, "row-count-mismatch"), (21, "row-count-mismatch")]
)
def test_the_new_files_hold_what_deletes_can_have_left(rows: int, code: str | None) -> None:
    lake = new_lake(append("a"))
    lake.put(delete_value("e", 3))
    lake.put(append("b"))
    assert codes(lake.put(rewrite(lake, "r", A, B, adds=(data_file("new", rows=rows),)))) == [code]


def test_without_deletes_every_row_is_counted() -> None:
    lake = new_lake(append("a"))
    assert codes(lake.put(rewrite(lake, "r", A, adds=(data_file("new", rows=9),)))) == ["row-count-mismatch"]


def test_rows_that_a_delete_took_and_that_came_back_with_its_removal_are_missed() -> None:
    lake = new_lake(append("a"))
    lake.put(delete_value("e", 3))
    late = rewrite(lake, "r", A, adds=(data_file("new", rows=9),))
    gone = RemovedFile(location="data/e.parquet", content_type=ContentType.EQUALITY_DELETE)
    assert codes(lake.put(remove("x", gone), late)) == [None, "row-count-mismatch"]


def test_a_later_delete_of_another_spec_than_the_new_files_would_be_undone() -> None:
    lake = new_lake(append("a"))
    repartitioned = data_file("new", partition_spec_id=BY_BUCKET)
    late = rewrite(lake, "r", A, adds=(repartitioned,))
    assert codes(lake.put(delete_value("e", 3), late)) == [None, "stale-source"]
    again = rewrite(lake, "r2", A, adds=(repartitioned,))
    assert codes(lake.put(delete_value("g", 4, None, spec=UNPARTITIONED), again)) == [None, None]


def test_a_restore_after_the_read_makes_a_rewrite_stale() -> None:
    lake = new_lake(append("a"), append("b"))
    late = rewrite(lake, "r", A, adds=(data_file("new"),))
    back = intent(IntentKind.RESTORE, "back", ref=VersionReference(version=1))
    assert codes(lake.put(back, late)) == [None, "stale-source"]


def test_a_restore_to_before_a_rewrite_brings_the_sources_back_as_they_were() -> None:
    lake = new_lake(append("a"))
    before = entry_of(lake, A).version_info.sequence_number
    lake.put(rewrite(lake, "r", A, adds=(data_file("new"),)))
    lake.put(intent(IntentKind.RESTORE, "back", ref=VersionReference(version=1)))
    assert set(lake.live()) == {EntryPlace(ContentType.DATA, A)}
    assert entry_of(lake, A).version_info.sequence_number == before
    lake.put(intent(IntentKind.RESTORE, "forth", ref=VersionReference(version=2)))
    assert entry_of(lake, NEW).version_info.sequence_number == before
    assert state_violations(lake.head) == []


def test_a_flush_or_compaction_of_the_sources_beside_a_rewrite_masks_them() -> None:
    lake = new_lake(append("a"), append("b"))
    planned = flush(lake, "f")
    assert codes(lake.put(rewrite(lake, "r", A, adds=(data_file("new"),)), planned)) == [None, None]
    assert set(lake.live()) == {EntryPlace(ContentType.DATA, name) for name in (B, NEW)}
    assert not changed(lake)


def test_a_rewrite_finds_its_sources_in_the_leaf_that_a_flush_of_the_same_root_moved_them_to() -> None:
    lake = new_lake(append("a"), append("b"))
    lake.put(delete_rows(lake, "v", A, 1))
    late = rewrite(lake, "r", A, adds=(data_file("new", rows=9),))
    assert codes(lake.put(flush(lake, "f"), late)) == [None, None]
    assert set(lake.live()) == {EntryPlace(ContentType.DATA, name) for name in (B, NEW)}
    assert not changed(lake)
    lake.put(flush(lake, "f2"))
    assert state_violations(lake.head) == []


@pytest.mark.parametrize("first", ["flush", "rewrite"])
def test_what_a_flush_beside_a_rewrite_moved_can_be_removed_in_the_same_batch(first: str) -> None:
    lake = new_lake(append("a"), append("b"), append("c"))
    lake.put(delete_rows(lake, "v1", B, 1))
    moved = [entry for entry in lake.root_entries() if entry.location != A]
    vectors = lake.leaf(lake.root_entries(ContentType.POSITION_DELETE), content=LeafContent.DELETE)
    both = [lake.flush("f", lake.leaf(moved), vectors), rewrite(lake, "r", A, adds=(data_file("new"),))]
    both = both if first == "flush" else both[::-1]
    later = (delete_rows(lake, "v2", B, 1, 2), remove("x", removed("data/c.parquet")))
    assert codes(lake.put(*both, *later)) == [None] * 4
    assert lake.deleted_rows() == {NEW: set(), B: {1, 2}}
    assert state_violations(lake.head) == []


def test_what_a_compaction_beside_a_rewrite_moved_can_be_removed_in_the_same_batch() -> None:
    lake = new_lake(append("a"), append("b"), append("c"))
    lake.put(flush(lake, "f"))
    [leaf] = lake.head.leaves
    moved = [entry for place, entry in sorted(lake.live().items()) if place.location != A]
    compaction = lake.compaction("k", lake.leaf(moved), replaces=[leaf])
    batch = (compaction, rewrite(lake, "r", A, adds=(data_file("new"),)), remove("x", removed(B)))
    assert codes(lake.put(*batch)) == [None] * 3
    assert {place.location for place in lake.live()} == {NEW, "data/c.parquet"}
    assert state_violations(lake.head) == []


def test_a_new_file_that_the_same_batch_removes_is_shown_as_removed_by_a_root_of_its_own() -> None:
    lake = new_lake(append("a"))
    both = [rewrite(lake, "r", A, adds=(data_file("new"),)), remove("x", removed(NEW))]
    assert codes(lake.put(*both)) == [None, None]
    assert [state.header.snapshot.operation for state in lake.states[-2:]] == ["replace", "delete"]
    [shown] = lake.shown(Status.DELETED)
    assert shown.location == NEW
    assert (lake.live(), lake.head.header.totals.rows) == ({}, 0)
    assert lake.head.header.snapshot.summary["deleted-records"] == "10"
    assert state_violations(lake.head) == []
    lake.put(append("c"))
    assert set(lake.live()) == {EntryPlace(ContentType.DATA, "data/c.parquet")}


def test_a_restore_in_the_batch_of_a_rewrite_shows_what_it_undoes() -> None:
    lake = new_lake(append("a"), append("b"))
    back = intent(IntentKind.RESTORE, "back", ref=VersionReference(version=1))
    assert codes(lake.put(rewrite(lake, "r", A, adds=(data_file("new"),)), back)) == [None, None]
    assert set(lake.live()) == {EntryPlace(ContentType.DATA, A)}
    assert state_violations(lake.head) == []


def test_a_row_delta_in_the_batch_of_a_rewrite_deletes_rows_of_the_new_file() -> None:
    lake = new_lake(append("a"))
    delta = delete_rows(lake, "v", NEW, 2)
    assert codes(lake.put(rewrite(lake, "r", A, adds=(data_file("new"),)), delta)) == [None, None]
    assert lake.deleted_rows() == {NEW: {2}}


def test_nobody_has_read_a_sequence_number_that_is_not_committed_yet() -> None:
    lake = new_lake(append("a"))
    number = lake.head.header.snapshot.sequence_number
    ahead = rewrite(lake, "r", A, adds=(data_file("new"),), read_sequence_number=number + 1)
    assert codes(lake.put(flush(lake, "f"), ahead)) == [None, "version-unknown"], "the flush is in the same root"
    ahead = rewrite(lake, "r2", A, adds=(data_file("new"),), read_sequence_number=number + 4)
    assert codes(lake.put(append("b"), ahead)) == [None, "version-unknown"]


def test_a_source_that_is_newer_than_the_read_cannot_have_been_read() -> None:
    lake = new_lake(append("a"), append("b"))
    wrong = rewrite(lake, "r", A, B, adds=(data_file("new", rows=20),), read_sequence_number=1)
    assert codes(lake.put(wrong)) == ["stale-source"]


def test_a_rewrite_does_not_conflict_with_a_serializable_writer_who_read_the_same_rows() -> None:
    lake = new_lake(append("a"), append("b"))
    read = lake.head.header.snapshot.sequence_number
    lake.put(rewrite(lake, "r", A, adds=(data_file("new"),)))
    reader = {"isolation": Isolation.SERIALIZABLE, "filter": "id = 3"}
    assert codes(lake.put(append("c", read_sequence_number=read, **reader))) == [None]
    assert codes(lake.put(append("d", read_sequence_number=read - 1, **reader))) == ["isolation-conflict"]


def test_a_rewrite_that_is_published_again_is_a_duplicate() -> None:
    lake = new_lake(append("a"))
    named = rewrite(lake, "r", A, adds=(data_file("new"),), writer_id="w", writer_sequence=1)
    first, second = lake.put(named, named)
    assert (first.code, second.code) == (None, None)
    assert second.kind.value == "duplicate"


def test_equality_deletes_are_not_replaced() -> None:
    lake = new_lake(append("a"))
    lake.put(delete_value("e", 3))
    gone = RemovedFile(location="data/e.parquet", content_type=ContentType.EQUALITY_DELETE)
    number = lake.head.header.snapshot.sequence_number
    wrong = intent(IntentKind.REWRITE, "r", remove_files=(gone,), read_sequence_number=number)
    assert codes(lake.put(wrong)) == ["intent-malformed"]


def test_a_rewrite_says_what_it_read() -> None:
    with pytest.raises(ValidationError, match="read_sequence_number"):
        intent(IntentKind.REWRITE, "r", remove_files=(removed(A),))


def test_a_rewritten_file_that_loses_rows_breaks_an_invariant() -> None:
    lake = new_lake(append("a"), append("b"))
    old = lake.head
    lake.put(rewrite(lake, "r", A, B, adds=(data_file("new", rows=20),)))
    other = new_lake(append("a", data_file("a", rows=11)), append("b"))
    assert violations(old, lake.head) == []
    assert any("rewrites made 20 rows of 21" in sentence for sentence in violations(other.head, lake.head))
