from __future__ import annotations

import pytest

from rootline.schemas.content_entry import ContentType
from rootline.schemas.errors import Corrupt
from rootline.schemas.intent import IntentKind
from rootline.tree.check.root_diff import RootDiff, diff
from tests.support.vector_changes import vector_changes
from tests.tree.tables import append, data_file, intent, new_lake, remove, removed, seen_vector

A = "data/a.parquet"


def test_a_root_alone_tells_what_was_added_and_removed() -> None:
    lake = new_lake(append("a"), append("b"))
    lake.put(append("c"), remove("r", removed(A)))
    changes = diff(lake.head.root, {})
    assert [entry.location for entry in changes.added_files] == ["data/c.parquet"]
    assert [entry.location for entry in changes.removed_files] == [A]
    assert RootDiff(lake.head.root).changed == ()


def test_a_vector_that_replaces_another_is_one_change() -> None:
    lake = new_lake(append("a"))
    lake.put(intent(IntentKind.ROW_DELTA, "d1", add_vectors=(lake.vector("v1", A, [1]),)))
    [change] = vector_changes(diff(lake.head.root, {}))
    assert (change.data_location, change.before, change.after and change.after.location) == (A, None, "data/v1.puffin")
    lake.put(intent(IntentKind.ROW_DELTA, "d2", add_vectors=(lake.vector("v2", A, [1, 2], seen_vector(lake.head, A)),)))
    [change] = vector_changes(diff(lake.head.root, {}))
    assert change.before is not None
    assert change.after is not None
    assert (change.before.location, change.after.location) == ("data/v1.puffin", "data/v2.puffin")


def test_a_removal_from_a_leaf_is_read_from_its_added_vector() -> None:
    lake = new_lake(append("a"), append("b"))
    leaf = lake.leaf(lake.root_entries())
    lake.put(lake.flush("f", leaf))
    lake.put(remove("r1", removed(A)))
    lake.put(remove("r2", removed("data/b.parquet")))
    assert [entry.location for entry in RootDiff(lake.head.root).changed] == [leaf.location]
    assert [entry.location for entry in diff(lake.head.root, lake.head.leaves).removed] == ["data/b.parquet"]
    with pytest.raises(Corrupt, match="is needed"):
        diff(lake.head.root, {})


def test_maintenance_and_rejections_show_as_nothing() -> None:
    lake = new_lake(append("a"))
    lake.put(lake.flush("f", lake.leaf(lake.root_entries())))
    assert not diff(lake.head.root, lake.head.leaves)
    lake.put(append("a", data_file("a")))
    assert not diff(lake.head.root, lake.head.leaves)


def test_every_change_since_the_beginning_folds_to_the_live_set() -> None:
    lake = new_lake(append("a"), append("b"), remove("r", removed(A)))
    lake.put(lake.flush("f", lake.leaf(lake.root_entries())))
    lake.put(append("a2", data_file("a", rows=4)), remove("r2", removed("data/b.parquet")))
    live: set[tuple[ContentType, str]] = set()
    for state in lake.states:
        changes = diff(state.root, lake.leaves)
        live -= {(entry.content_type, entry.location) for entry in changes.removed}
        live |= {(entry.content_type, entry.location) for entry in changes.added}
    assert live == {(place.content_type, place.location) for place in lake.live()}
