"""Vectors move into Puffin files that a worker wrote, and delete the same entries and rows as before."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

import pytest
from pyroaring import BitMap, BitMap64

from rootline.schemas.bytes.root.root_codec import decode_root
from rootline.schemas.content_entry import ContentType, Status
from rootline.schemas.errors import Corrupt
from rootline.schemas.intent import Intent, IntentKind
from rootline.tree.check.net_changes import NetChanges
from rootline.tree.check.root_diff import diff
from rootline.tree.rules.vector_rules import VectorNeed
from rootline.tree.state.table_state import TableState
from tests.support.state_rules import state_violations
from tests.tree.intents.test_rewrite import delete_rows, flush, rewrite
from tests.tree.tables import (
    DEFINITION,
    Lake,
    append,
    codes,
    data_file,
    intent,
    new_lake,
    remove,
    removed,
    seen_vector,
)

A, B, C, D = (f"data/{name}.parquet" for name in "abcd")
PUFFIN = "metadata/vectors/v.puffin"


@pytest.fixture
def lake() -> Lake:
    """A leaf of A to D, of which A is dead."""
    lake = new_lake(*(append(name) for name in "abcd"))
    lake.put(lake.flush("f", lake.leaf(lake.root_entries())))
    lake.put(remove("r", removed(A)))
    return lake


def leaf_of(lake: Lake) -> str:
    [location] = lake.head.leaves
    return location


def moving(lake: Lake, ordinals: Iterable[int], location: str = PUFFIN, **more: object) -> Intent:
    """An intent that moves a vector of these ordinals, which is stored, to a Puffin file."""
    held = BitMap64(ordinals)
    lake.vectors[VectorNeed(location, 4)] = held
    vector: dict[str, object] = {
        "location": location,
        "offset": 4,
        "size_in_bytes": 40,
        "file_size_in_bytes": 100,
        "cardinality": len(held),
        "referenced_file": leaf_of(lake),
    }
    version = lake.head.header.version
    return intent(IntentKind.COMPACT_VECTORS, f"m{version}", add_vectors=[vector | more], made_from_version=version)


def masks(lake: Lake) -> list[tuple[Status, str, int]]:
    """Status, place and cardinality of each manifest vector."""
    return [
        (
            entry.version_info.status,
            "inline" if entry.location == entry.referenced_file else "puffin",
            entry.record_count,
        )
        for entry in (row.entry for row in lake.head.root.rows)
        if entry.content_type is ContentType.MANIFEST_DV
    ]


def sound(lake: Lake) -> bool:
    assert state_violations(lake.head) == []
    assert state_violations(lake.reloaded()) == []
    return True


def test_a_vector_that_moved_is_read_from_there_and_nothing_comes_back(lake: Lake) -> None:
    before = lake.live()
    assert codes(lake.put(moving(lake, [0]))) == [None]
    assert masks(lake) == [(Status.EXISTING, "puffin", 1)]
    assert lake.live() == before
    assert lake.head.header.snapshot.operation == "replace"
    assert not diff(lake.head.root, lake.head.leaves, {(PUFFIN, 4): BitMap([0])})
    assert sound(lake)


def test_the_next_removal_stands_beside_it_and_the_root_after_folds_both(lake: Lake) -> None:
    lake.put(moving(lake, [0]))
    lake.put(remove("r2", removed(B)))
    assert masks(lake) == [(Status.EXISTING, "puffin", 1), (Status.ADDED, "inline", 1)]
    assert {place.location for place in lake.live()} == {C, D}
    assert sound(lake)
    lake.put(append("e"))
    assert masks(lake) == [(Status.EXISTING, "inline", 2)]
    assert lake.head.live.stored == {}
    assert sound(lake)


def test_a_vector_and_a_removal_in_one_root(lake: Lake) -> None:
    lake.put(remove("r1", removed(B)), moving(lake, [0]), remove("r2", removed(C)))
    assert masks(lake) == [(Status.EXISTING, "puffin", 1), (Status.ADDED, "inline", 2)]
    assert {place.location for place in lake.live()} == {D}
    assert sound(lake)


def test_both_vectors_of_a_leaf_move_as_one(lake: Lake) -> None:
    lake.put(remove("r2", removed(B)))
    lake.put(moving(lake, [0, 1]))
    assert masks(lake) == [(Status.EXISTING, "puffin", 2)]
    assert sound(lake)


@pytest.mark.parametrize("ordinals", [[1], [0, 1]])
def test_a_vector_of_what_is_not_dead_now_stays_where_it_is(lake: Lake, ordinals: list[int]) -> None:
    assert codes(lake.put(moving(lake, ordinals))) == ["compaction-stale"]
    assert masks(lake) == [(Status.EXISTING, "inline", 1)]


def test_a_vector_made_before_the_last_removal_is_stale(lake: Lake) -> None:
    late = moving(lake, [0])
    lake.put(remove("r2", removed(B)))
    assert codes(lake.put(late)) == ["compaction-stale"]
    assert {place.location for place in lake.live()} == {C, D}


def test_a_leaf_that_is_written_anew_in_the_same_root_takes_its_vector_along(lake: Lake) -> None:
    old = leaf_of(lake)
    live = [entry for entry in lake.head.leaves[old].entries() if entry.location != A]
    new = lake.leaf(live, leaf_uuid=uuid.UUID(int=77))
    lake.put(moving(lake, [0]), lake.compaction("m", new, replaces=[old]))
    assert (leaf_of(lake), masks(lake)) == (new.location, [])
    assert sound(lake)


@pytest.mark.parametrize(
    ("lie", "code"),
    [
        ({"cardinality": 2}, "vector-invalid"),
        ({"offset": 8}, "vector-invalid"),
        ({"location": "data/v.puffin"}, "location-invalid"),
        ({"location": "metadata/vectors/../v.puffin"}, "location-invalid"),
        ({"referenced_file": "metadata/leaves/none.parquet"}, "compaction-stale"),
    ],
)
def test_a_vector_that_is_not_what_the_intent_says_is_rejected(lake: Lake, lie: dict[str, object], code: str) -> None:
    assert codes(lake.put(moving(lake, [0], **lie), append("e"))) == [code, None]


def test_a_table_is_not_loaded_without_its_stored_vectors(lake: Lake) -> None:
    lake.put(moving(lake, [0]))
    root = decode_root(lake.bodies[-1], name="head")
    with pytest.raises(Corrupt, match=PUFFIN):
        TableState.of(root, DEFINITION, lake.head.leaves)


def with_deletes(*, in_leaf: bool) -> Lake:
    """Two data files with a vector each, in Puffin files of their own."""
    lake = new_lake(append("a"), append("b"))
    lake.put(delete_rows(lake, "one", A, 1, 2), delete_rows(lake, "two", B, 3))
    if in_leaf:
        lake.put(flush(lake, "f"))
    return lake


def joining(
    lake: Lake, *targets: str, intent_id: str = "join", lie: Mapping[str, Iterable[int]] | None = None
) -> Intent:
    """An intent of a worker that read the head: the vectors of `targets` in one Puffin file; `lie`: other positions."""
    vectors = []
    for number, target in enumerate(targets):
        live = lake.head.vector_of(target)
        assert live is not None
        positions = (lie or {}).get(target, lake.positions(live))
        name = f"{intent_id}-joined"
        vectors.append(lake.vector(name, target, positions, seen_vector(lake.head, target), offset=4 + 100 * number))
    version = lake.head.header.version
    return intent(IntentKind.COMPACT_VECTORS, intent_id, add_vectors=vectors, made_from_version=version)


def vector_numbers(lake: Lake, target: str) -> tuple[int | None, Status]:
    live = lake.head.vector_of(target)
    assert live is not None
    return live.version_info.sequence_number, live.version_info.status


@pytest.mark.parametrize("in_leaf", [False, True], ids=["in the root", "in a leaf"])
def test_vectors_of_data_files_are_joined_in_one_file_and_no_row_changes(in_leaf: bool) -> None:
    lake = with_deletes(in_leaf=in_leaf)
    rows, numbers = lake.deleted_rows(), [vector_numbers(lake, name) for name in (A, B)]
    totals = lake.head.header.totals
    assert codes(lake.put(joining(lake, A, B))) == [None]
    assert {lake.head.vector_of(name).location for name in (A, B)} == {"data/join-joined.puffin"}  # type: ignore[union-attr]
    assert lake.deleted_rows() == rows
    assert [vector_numbers(lake, name)[0] for name in (A, B)] == [number for number, _ in numbers]
    assert lake.head.header.totals.vectors == totals.vectors
    assert lake.head.header.snapshot.operation == "replace"
    assert lake.head.header.snapshot.summary["rootline.joined-vectors"] == "2"
    assert not diff(lake.head.root, lake.head.leaves, lake.head.live.stored)
    assert sound(lake)


def test_a_vector_that_grew_since_stays_and_the_other_is_joined() -> None:
    lake = with_deletes(in_leaf=True)
    late = joining(lake, A, B)
    lake.put(delete_rows(lake, "three", A, 1, 2, 5))
    assert codes(lake.put(late)) == [None]
    assert lake.deleted_rows() == {A: {1, 2, 5}, B: {3}}
    assert [vector.location for name in (A, B) if (vector := lake.head.vector_of(name))] == [
        "data/three.puffin",
        "data/join-joined.puffin",
    ]
    assert codes(lake.put(joining(lake, A, intent_id="again"))) == [None]
    assert sound(lake)


def test_a_join_of_vectors_that_all_grew_since_is_stale() -> None:
    lake = with_deletes(in_leaf=False)
    late = joining(lake, A)
    lake.put(delete_rows(lake, "three", A, 1, 2, 5))
    assert codes(lake.put(late)) == ["compaction-stale"]
    assert lake.deleted_rows() == {A: {1, 2, 5}, B: {3}}


@pytest.mark.parametrize("positions", [[1], [1, 2, 3], [4, 5]], ids=["fewer rows", "more rows", "other rows"])
def test_a_joined_vector_that_deletes_other_rows_is_rejected(positions: list[int]) -> None:
    lake = with_deletes(in_leaf=True)
    assert codes(lake.put(joining(lake, A, B, lie={A: positions}))) == ["vector-invalid"]
    assert lake.deleted_rows() == {A: {1, 2}, B: {3}}


def test_a_writer_who_saw_a_vector_before_it_was_joined_still_rewrites_removes_and_deletes() -> None:
    lake = with_deletes(in_leaf=True)
    seen = rewrite(lake, "rewrite", A, adds=(data_file("new", rows=8),))
    also = remove("remove", removed(B, seen_vector(lake.head, B)))
    lake.put(joining(lake, A, B))
    assert codes(lake.put(seen, also)) == [None, None]
    assert {place.location for place in lake.live()} == {"data/new.parquet"}
    assert sound(lake)


def test_a_writer_who_saw_a_vector_before_a_delete_and_a_join_is_stale() -> None:
    lake = with_deletes(in_leaf=True)
    late = rewrite(lake, "rewrite", A, adds=(data_file("new", rows=8),))
    blind = remove("remove", removed(A, seen_vector(lake.head, A)))
    lake.put(delete_rows(lake, "three", A, 1, 2, 5))
    lake.put(joining(lake, A, B))
    assert codes(lake.put(late, blind)) == ["stale-source", "stale-source"]
    assert lake.deleted_rows() == {A: {1, 2, 5}, B: {3}}


def test_rows_deleted_by_a_writer_who_saw_the_vector_before_the_join_are_merged() -> None:
    lake = with_deletes(in_leaf=True)
    late = delete_rows(lake, "three", A, 1, 2, 7)
    lake.put(joining(lake, A, B))
    assert codes(lake.put(late)) == [None]
    assert lake.deleted_rows() == {A: {1, 2, 7}, B: {3}}
    assert sound(lake)


def test_a_join_a_delete_and_a_rewrite_share_a_root() -> None:
    lake = with_deletes(in_leaf=True)
    read = rewrite(lake, "rewrite", B, adds=(data_file("new", rows=9),))
    assert codes(lake.put(joining(lake, A, B), delete_rows(lake, "three", A, 1, 2, 9), read)) == [None, None, None]
    assert lake.deleted_rows() == {A: {1, 2, 9}, "data/new.parquet": set()}
    assert sound(lake)


def test_changes_over_a_join_are_those_of_the_deletes_around_it() -> None:
    lake = new_lake(append("a"), append("b"))
    first = len(lake.states)
    lake.put(delete_rows(lake, "one", A, 1))
    lake.put(joining(lake, A))
    lake.put(delete_rows(lake, "two", A, 1, 2))
    net = NetChanges()
    for state in lake.states[first:]:
        net.take(diff(state.root, state.leaves, state.live.stored))
    [change] = net.net().vectors
    assert (change.before, [lake.positions(vector) for vector in change.after]) == ((), [BitMap64([1, 2])])
