"""A compaction of leaves moves entries from leaf to leaf, over whatever happened since it was planned."""

from __future__ import annotations

import dataclasses
import uuid

import pytest

from rootline.schemas.bytes.leaf_codec import LeafContent
from rootline.schemas.content_entry import ContentEntry, ContentType, Status
from rootline.schemas.intent import AddedManifest, IntentKind
from rootline.tree.check.root_diff import diff
from rootline.tree.state.live_index import ordinals_of_vector
from tests.support.state_rules import state_violations
from tests.tree.tables import Lake, append, codes, data_file, equality_delete, intent, new_lake, remove, removed
from tests.tree.tables import seen_vector as seen

A, B, C, D = (f"data/{name}.parquet" for name in "abcd")


@pytest.fixture
def lake() -> Lake:
    """Two leaves: one of A and B, one of C and D."""
    lake = new_lake(append("a"), append("b"))
    lake.put(lake.flush("f1", lake.leaf(lake.root_entries())))
    lake.put(append("c"), append("d"))
    lake.put(lake.flush("f2", lake.leaf(lake.root_entries())))
    return lake


def leaves(lake: Lake, content_type: ContentType = ContentType.DATA_MANIFEST) -> list[str]:
    rows = [row.entry for row in lake.head.live.leaf_rows.values() if row.entry.content_type is content_type]
    return [row.location for row in rows]


def masks(lake: Lake) -> dict[str, list[tuple[Status, list[int]]]]:
    return {
        location: [(row.entry.version_info.status, list(ordinals_of_vector(row.entry))) for row in rows]
        for location, rows in lake.head.live.manifest_vector_rows.items()
    }


def live_entries(lake: Lake, *locations: str) -> list[ContentEntry]:
    """Of leaves, in their order."""
    return [
        entry
        for location in locations
        for ordinal, entry in enumerate(lake.head.leaves[location].entries())
        if not lake.head.live.is_dead(location, ordinal)
    ]


def joined(lake: Lake, *locations: str, number: int = 77) -> AddedManifest:
    """A leaf of what is live in those at `locations`."""
    return lake.leaf(live_entries(lake, *locations), leaf_uuid=uuid.UUID(int=number))


def with_vector(lake: Lake, target: str, *positions: int, name: str = "v") -> None:
    vector = lake.vector(name, target, positions, seen(lake.head, target))
    assert codes(lake.put(intent(IntentKind.ROW_DELTA, name, add_vectors=(vector,)))) == [None]


def with_delete_leaf(lake: Lake, owner: str, number: int = 50) -> str:
    """Flush the root's vectors to a leaf that belongs to `owner`; its location."""
    vectors = lake.root_entries(ContentType.POSITION_DELETE)
    leaf = lake.leaf(vectors, content=LeafContent.DELETE, belongs_to=owner, leaf_uuid=uuid.UUID(int=number))
    assert codes(lake.put(lake.flush(f"f{number}", leaf))) == [None]
    return leaf.location


def owner_of(lake: Lake, delete_leaf: str) -> str | None:
    return lake.head.live.leaf_rows[delete_leaf].entry.referenced_file


def sound(lake: Lake) -> bool:
    assert state_violations(lake.head) == []
    assert state_violations(lake.reloaded()) == []
    return True


def test_two_leaves_become_one_and_nothing_that_is_live_changes(lake: Lake) -> None:
    before, old = lake.live(), leaves(lake)
    new = joined(lake, *old)
    assert codes(lake.put(lake.compaction("m", new, replaces=old))) == [None]
    assert leaves(lake) == [new.location]
    after = lake.live()
    assert after.keys() == before.keys()
    for place, entry in after.items():
        assert dataclasses.replace(entry, content_stats={}) == dataclasses.replace(before[place], content_stats={})
        assert dict(entry.content_stats) == dict(before[place].content_stats)
    assert lake.head.header.snapshot.operation == "replace"
    assert not diff(lake.head.root, lake.head.leaves)
    assert sound(lake)


def test_manifest_vectors_are_folded_into_the_new_leaf(lake: Lake) -> None:
    lake.put(remove("r1", removed(A)))
    lake.put(remove("r2", removed(C)))
    old = leaves(lake)
    new = joined(lake, *old)
    lake.put(lake.compaction("m", new, replaces=old))
    assert (new.record_count, masks(lake)) == (2, {})
    assert {place.location for place in lake.live()} == {B, D}
    assert sound(lake)


def test_what_was_removed_meanwhile_stays_removed(lake: Lake) -> None:
    old = leaves(lake)
    new = joined(lake, *old)
    lake.put(remove("r", removed(B)))
    assert codes(lake.put(lake.compaction("m", new, replaces=old, made_from=5))) == [None]
    assert {place.location for place in lake.live()} == {A, C, D}
    assert masks(lake) == {new.location: [(Status.EXISTING, [1])]}
    assert leaves(lake) == [new.location]
    assert sound(lake)


def test_a_leaf_of_which_the_same_batch_removed_an_entry_stays_to_show_it(lake: Lake) -> None:
    old = leaves(lake)
    new = joined(lake, *old)
    lake.put(remove("r1", removed(B)), lake.compaction("m", new, replaces=old), remove("r2", removed(C)))
    assert masks(lake) == {
        old[0]: [(Status.EXISTING, [0]), (Status.ADDED, [1])],
        new.location: [(Status.EXISTING, [1]), (Status.ADDED, [2])],
    }
    assert {entry.location for entry in diff(lake.head.root, lake.head.leaves).removed} == {B, C}
    assert sound(lake)
    lake.put(append("e"))
    lake.put(lake.flush("f", lake.leaf(lake.root_entries(), leaf_uuid=uuid.UUID(int=5))))
    assert old[0] not in leaves(lake)
    assert {place.location for place in lake.live()} == {A, D, "data/e.parquet"}
    assert sound(lake)


def test_a_file_that_was_removed_and_added_again_is_not_the_one_that_moves(lake: Lake) -> None:
    old = leaves(lake)
    new = joined(lake, *old)
    lake.put(remove("r", removed(B)))
    lake.put(append("b2", data_file("b", rows=4)))
    lake.put(lake.flush("f", lake.leaf(lake.root_entries(), leaf_uuid=uuid.UUID(int=5))))
    lake.put(lake.compaction("m", new, replaces=[*old, leaves(lake)[-1]]))
    assert lake.head.header.totals.rows == 34
    assert masks(lake) == {new.location: [(Status.EXISTING, [1])]}
    assert sound(lake)


def test_two_compactions_of_the_same_leaves_double_nothing(lake: Lake) -> None:
    old = leaves(lake)
    first, second = joined(lake, *old), joined(lake, *old, number=78)
    answers = lake.put(lake.compaction("m1", first, replaces=old), lake.compaction("m2", second, replaces=old))
    assert codes(answers) == [None, "compaction-stale"]
    assert leaves(lake) == [first.location]
    late = lake.leaf(live_entries(lake, first.location), leaf_uuid=uuid.UUID(int=79))
    assert codes(lake.put(lake.compaction("m3", late, replaces=old))) == ["compaction-stale"]
    assert sound(lake)


def test_a_compaction_that_overlaps_another_takes_what_that_left(lake: Lake) -> None:
    old = leaves(lake)
    first, second = joined(lake, old[0]), joined(lake, *old, number=78)
    lake.put(lake.compaction("m1", first, replaces=old[:1]))
    assert codes(lake.put(lake.compaction("m2", second, replaces=old))) == [None]
    assert masks(lake) == {second.location: [(Status.EXISTING, [0, 1])]}
    assert set(leaves(lake)) == {first.location, second.location}
    assert sound(lake)


def test_a_leaf_that_gives_up_a_part_of_its_entries_keeps_the_rest(lake: Lake) -> None:
    old = leaves(lake)
    entries = [entry for entry in live_entries(lake, *old) if entry.location in (A, C)]
    new = lake.leaf(entries, leaf_uuid=uuid.UUID(int=77))
    lake.put(lake.compaction("m", new, replaces=old))
    assert masks(lake) == {old[0]: [(Status.EXISTING, [0])], old[1]: [(Status.EXISTING, [0])]}
    assert not diff(lake.head.root, lake.head.leaves)
    assert len(lake.live()) == 4
    lake.put(remove("r", removed(B)))
    assert masks(lake)[old[0]] == [(Status.EXISTING, [0]), (Status.ADDED, [1])]
    assert sound(lake)


def test_root_rows_and_entries_of_leaves_move_into_one_leaf(lake: Lake) -> None:
    lake.put(append("e"))
    old = leaves(lake)
    new = lake.leaf([*live_entries(lake, *old), *lake.root_entries()], leaf_uuid=uuid.UUID(int=77))
    lake.put(lake.compaction("m", new, replaces=old))
    assert lake.head.live.rows == {}
    assert leaves(lake) == [new.location]
    assert sound(lake)


def test_an_entry_whose_leaf_the_intent_does_not_name_stays_where_it_is(lake: Lake) -> None:
    old = leaves(lake)
    new = joined(lake, *old)
    assert codes(lake.put(lake.compaction("m", new, replaces=old[:1]))) == [None]
    assert masks(lake) == {new.location: [(Status.EXISTING, [2, 3])]}
    assert set(leaves(lake)) == {old[1], new.location}
    assert sound(lake)


def test_vectors_move_along_with_their_files(lake: Lake) -> None:
    old = leaves(lake)
    with_vector(lake, A, 1)
    first = with_delete_leaf(lake, old[0])
    with_vector(lake, C, 2, name="w")
    second = with_delete_leaf(lake, old[1], number=51)
    new = joined(lake, *old)
    vectors = lake.leaf(
        live_entries(lake, first, second),
        content=LeafContent.DELETE,
        leaf_uuid=uuid.UUID(int=80),
        belongs_to=new.location,
    )
    lake.put(lake.compaction("m", vectors, new, replaces=[*old, first, second]))
    assert leaves(lake, ContentType.DELETE_MANIFEST) == [vectors.location]
    assert owner_of(lake, vectors.location) == new.location
    assert lake.deleted_rows() == {A: {1}, B: set(), C: {2}, D: set()}
    assert sound(lake)


def test_a_delete_leaf_follows_its_data_files_where_the_intent_says_so(lake: Lake) -> None:
    old = leaves(lake)
    with_vector(lake, A, 1)
    deletes = with_delete_leaf(lake, old[0])
    new = joined(lake, *old)
    lake.put(lake.compaction("m", new, replaces=old, reaffiliate={deletes: new.location}))
    assert owner_of(lake, deletes) == new.location
    assert sound(lake)


def test_a_delete_leaf_belongs_to_none_when_its_data_files_went_apart(lake: Lake) -> None:
    old = leaves(lake)
    with_vector(lake, A, 1)
    with_vector(lake, B, 1, name="w")
    deletes = with_delete_leaf(lake, old[0])
    entries = live_entries(lake, *old)
    one = lake.leaf(entries[:1], leaf_uuid=uuid.UUID(int=77))
    other = lake.leaf(entries[1:], leaf_uuid=uuid.UUID(int=78))
    lake.put(lake.compaction("m", one, other, replaces=old, reaffiliate={deletes: one.location}))
    assert owner_of(lake, deletes) is None
    assert lake.deleted_rows() == {A: {1}, B: {1}, C: set(), D: set()}
    assert sound(lake)


def test_a_delete_leaf_that_came_after_the_plan_loses_what_it_belonged_to(lake: Lake) -> None:
    old = leaves(lake)
    new = joined(lake, *old)
    with_vector(lake, A, 1)
    vectors = lake.root_entries(ContentType.POSITION_DELETE)
    late = lake.leaf(vectors, content=LeafContent.DELETE, belongs_to=old[0], leaf_uuid=uuid.UUID(int=50))
    lake.put(lake.flush("f", late), lake.compaction("m", new, replaces=old))
    assert owner_of(lake, late.location) is None
    assert leaves(lake) == [new.location]
    assert sound(lake)


def test_a_flush_to_a_leaf_that_gave_its_file_away_takes_no_vector_of_it(lake: Lake) -> None:
    old = leaves(lake)
    new = joined(lake, *old)
    with_vector(lake, A, 1)
    vectors = lake.root_entries(ContentType.POSITION_DELETE)
    late = lake.leaf(vectors, content=LeafContent.DELETE, belongs_to=old[0], leaf_uuid=uuid.UUID(int=50))
    answers = lake.put(lake.compaction("m", new, replaces=old), lake.flush("f", late))
    assert codes(answers) == [None, "flush-stale"]
    assert lake.deleted_rows()[A] == {1}
    assert sound(lake)


def test_an_unaffiliated_delete_leaf_can_be_given_an_owner_and_only_a_true_one(lake: Lake) -> None:
    old = leaves(lake)
    with_vector(lake, A, 1)
    vectors = lake.root_entries(ContentType.POSITION_DELETE)
    loose = lake.leaf(vectors, content=LeafContent.DELETE, leaf_uuid=uuid.UUID(int=50))
    lake.put(lake.flush("f", loose))
    lake.put(lake.compaction("wrong", replaces=(), reaffiliate={loose.location: old[1]}))
    assert owner_of(lake, loose.location) is None
    lake.put(lake.compaction("right", replaces=(), reaffiliate={loose.location: old[0]}))
    assert owner_of(lake, loose.location) == old[0]
    assert lake.head.header.snapshot.operation == "replace"
    assert sound(lake)


def test_a_leaf_with_an_equality_delete_belongs_to_no_data_leaf(lake: Lake) -> None:
    lake.put(intent(IntentKind.ROW_DELTA, "d", add_equality_deletes=(equality_delete("e", 3, "UA"),)))
    deletes = lake.leaf(lake.root_entries(ContentType.EQUALITY_DELETE), content=LeafContent.DELETE)
    lake.put(lake.flush("f", deletes))
    lake.put(lake.compaction("m", replaces=(), reaffiliate={deletes.location: leaves(lake)[0]}))
    assert owner_of(lake, deletes.location) is None
    assert codes(lake.put(lake.compaction("n", replaces=(), reaffiliate={"metadata/leaves/no": None}))) == [
        "compaction-stale"
    ]


def test_a_removed_file_takes_its_vector_along_when_both_are_in_leaves(lake: Lake) -> None:
    old = leaves(lake)
    with_vector(lake, A, 1)
    deletes = with_delete_leaf(lake, old[0])
    lake.put(remove("r", removed(A, seen(lake.head, A))))
    assert masks(lake) == {old[0]: [(Status.ADDED, [0])], deletes: [(Status.ADDED, [0])]}
    new = joined(lake, *old)
    lake.put(lake.compaction("m", new, replaces=old))
    assert set(lake.head.leaves) == {new.location}
    assert masks(lake) == {}
    assert sound(lake)


@pytest.mark.parametrize("change", [{"record_count": 11}, {"first_row_id": 99}, {"file_size_in_bytes": 7}])
def test_an_entry_that_is_not_what_it_was_in_its_leaf_is_rejected(lake: Lake, change: dict[str, int]) -> None:
    old = leaves(lake)
    entries = live_entries(lake, *old)
    entries[2] = dataclasses.replace(entries[2], **change)  # type: ignore[arg-type]
    new = lake.leaf(entries, leaf_uuid=uuid.UUID(int=77))
    assert codes(lake.put(lake.compaction("m", new, replaces=old))) == ["leaf-invalid"]


def test_entries_that_two_new_leaves_take_are_rejected(lake: Lake) -> None:
    old = leaves(lake)
    one, two = joined(lake, *old), joined(lake, *old, number=78)
    assert codes(lake.put(lake.compaction("m", one, two, replaces=old))) == ["leaf-invalid"]


def test_a_compaction_of_a_version_that_is_not_there_yet_is_rejected(lake: Lake) -> None:
    old = leaves(lake)
    assert codes(lake.put(lake.compaction("m", joined(lake, *old), replaces=old, made_from=99))) == ["version-unknown"]
