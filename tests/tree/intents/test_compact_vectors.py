"""Manifest vectors move from the root into Puffin files, and are as dead as before."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

import pytest
from pyroaring import BitMap, BitMap64

from rootline.schemas.bytes.root.root_codec import decode_root
from rootline.schemas.content_entry import ContentType, Status
from rootline.schemas.errors import Corrupt
from rootline.schemas.intent import Intent, IntentKind
from rootline.tree.check.root_diff import diff
from rootline.tree.check.state_rules import state_violations
from rootline.tree.draft.batch import VectorAt
from rootline.tree.state.table_state import TableState
from tests.tree.tables import DEFINITION, Lake, append, codes, intent, new_lake, remove, removed

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
    lake.vectors[VectorAt(location, 4)] = held
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
