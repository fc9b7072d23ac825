"""Two vectors on a leaf: what was dead before, and what this snapshot removes."""

from __future__ import annotations

import uuid

import pytest

from rootline.schemas.bytes.leaf_codec import LeafContent
from rootline.schemas.content_entry import ContentType, EntryPlace, Status
from rootline.schemas.intent import IntentKind
from rootline.tree.check.root_diff import diff
from rootline.tree.state.live_index import ordinals_of_vector
from tests.support.state_rules import state_violations
from tests.support.vector_changes import vector_changes
from tests.tree.tables import Lake, append, codes, data_file, intent, new_lake, remove, removed, seen_vector

A, B, C = (f"data/{name}.parquet" for name in "abc")
DATA, DELETES = "data", "deletes"


@pytest.fixture
def lake() -> Lake:
    """A data leaf of A, B and C, and a delete leaf with a vector of A and of B."""
    lake = new_lake(append("a"), append("b"), append("c"))
    change(lake, A, 1)
    change(lake, B, 2)
    data = lake.leaf(lake.root_entries())
    vectors = lake.root_entries(ContentType.POSITION_DELETE)
    lake.put(lake.flush("f", data, lake.leaf(vectors, content=LeafContent.DELETE, belongs_to=data.location)))
    return lake


def change(lake: Lake, target: str, *positions: int) -> None:
    name = f"v{len(lake.states)}"
    vector = lake.vector(name, target, positions, seen_vector(lake.head, target))
    assert codes(lake.put(intent(IntentKind.ROW_DELTA, name, add_vectors=(vector,)))) == [None]


def masks(lake: Lake) -> dict[str, dict[Status, list[int]]]:
    """What the vectors of the data leaf and of the delete leaf hold."""
    named = {ContentType.DATA_MANIFEST: DATA, ContentType.DELETE_MANIFEST: DELETES}
    return {
        named[lake.head.live.leaf_rows[location].entry.content_type]: {
            row.entry.version_info.status: list(ordinals_of_vector(row.entry)) for row in rows
        }
        for location, rows in lake.head.live.manifest_vector_rows.items()
    }


def sound(lake: Lake) -> bool:
    assert state_violations(lake.head) == []
    assert state_violations(lake.reloaded()) == []
    return True


def test_a_vector_in_a_delete_leaf_is_replaced_by_masking_it_and_a_row_of_the_root(lake: Lake) -> None:
    before = lake.head.vector_of(A)
    change(lake, A, 1, 5)
    assert masks(lake) == {DELETES: {Status.ADDED: [0]}}
    assert lake.deleted_rows() == {A: {1, 5}, B: {2}, C: set()}
    [shown] = vector_changes(diff(lake.head.root, lake.head.leaves))
    assert (shown.data_location, shown.after) == (A, lake.head.vector_of(A))
    assert before is not None
    assert shown.before is not None
    assert shown.before.place == before.place
    assert sound(lake)


def test_vectors_of_one_leaf_that_change_in_turn_are_an_existing_and_an_added_one(lake: Lake) -> None:
    change(lake, A, 1, 5)
    change(lake, B, 2, 6)
    assert masks(lake) == {DELETES: {Status.EXISTING: [0], Status.ADDED: [1]}}
    assert [item.data_location for item in vector_changes(diff(lake.head.root, lake.head.leaves))] == [B]
    lake.put(append("d"))
    assert masks(lake) == {DELETES: {Status.EXISTING: [0, 1]}}
    assert not vector_changes(diff(lake.head.root, lake.head.leaves))
    assert sound(lake)


def test_a_removed_file_takes_its_vector_out_of_the_delete_leaf(lake: Lake) -> None:
    lake.put(remove("r1", removed(A, seen_vector(lake.head, A))))
    assert masks(lake) == {DATA: {Status.ADDED: [0]}, DELETES: {Status.ADDED: [0]}}
    lake.put(remove("r2", removed(C)), remove("r3", removed(B, seen_vector(lake.head, B))))
    assert masks(lake) == {
        DATA: {Status.EXISTING: [0], Status.ADDED: [1, 2]},
        DELETES: {Status.EXISTING: [0], Status.ADDED: [1]},
    }
    assert lake.live() == {}
    assert len(lake.head.leaves) == 2
    assert sound(lake)


def test_a_removed_file_in_a_leaf_takes_its_vector_out_of_the_root(lake: Lake) -> None:
    change(lake, C, 3)
    lake.put(remove("r", removed(C, seen_vector(lake.head, C))))
    assert masks(lake) == {DATA: {Status.ADDED: [2]}}
    assert lake.root_entries(ContentType.POSITION_DELETE) == []
    assert {entry.content_type for entry in lake.shown(Status.DELETED)} == {ContentType.POSITION_DELETE}
    assert sound(lake)


def test_a_removed_row_of_the_root_takes_its_vector_out_of_a_delete_leaf() -> None:
    lake = new_lake(append("a"))
    change(lake, A, 1)
    vectors = lake.root_entries(ContentType.POSITION_DELETE)
    lake.put(lake.flush("f", lake.leaf(vectors, content=LeafContent.DELETE)))
    lake.put(remove("r", removed(A, seen_vector(lake.head, A))))
    assert masks(lake) == {DELETES: {Status.ADDED: [0]}}
    assert lake.live() == {}
    assert sound(lake)


def test_leaves_that_die_as_a_whole_show_it_once_and_leave_with_the_next_maintenance(lake: Lake) -> None:
    lake.put(*(remove(f"r{name}", removed(name, seen_vector(lake.head, name))) for name in (A, B, C)))
    assert {entry.location for entry in diff(lake.head.root, lake.head.leaves).removed_files} == {A, B, C}
    lake.put(append("d"))
    assert masks(lake) == {DATA: {Status.EXISTING: [0, 1, 2]}, DELETES: {Status.EXISTING: [0, 1]}}
    assert not diff(lake.head.root, lake.head.leaves).removed
    new = lake.leaf(lake.root_entries(), leaf_uuid=uuid.UUID(int=9))
    lake.put(lake.flush("g", new))
    assert set(lake.head.leaves) == {new.location}
    assert lake.head.live.manifest_vector_rows == {}
    assert sound(lake)


def test_a_file_that_comes_back_is_a_row_of_the_root_beside_its_dead_entry(lake: Lake) -> None:
    lake.put(remove("r", removed(C)))
    lake.put(append("again", data_file("c", rows=4)))
    found = lake.head.find(EntryPlace(ContentType.DATA, C))
    assert found is not None
    assert found.leaf is None
    lake.put(remove("r2", removed(C)))
    assert masks(lake) == {DATA: {Status.EXISTING: [2]}}
    assert sound(lake)


def test_two_vectors_replaced_in_one_batch_make_one_added_vector(lake: Lake) -> None:
    first = lake.vector("x", A, (1, 5), seen_vector(lake.head, A))
    second = lake.vector("y", B, (2, 5), seen_vector(lake.head, B))
    answers = lake.put(
        intent(IntentKind.ROW_DELTA, "x", add_vectors=(first,)),
        intent(IntentKind.ROW_DELTA, "y", add_vectors=(second,)),
    )
    assert codes(answers) == [None, None]
    assert masks(lake)[DELETES] == {Status.ADDED: [0, 1]}
    assert sound(lake)
