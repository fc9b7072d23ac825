"""The figures of the section "Remove Files"."""

from __future__ import annotations

from tests.seed.figure import ADDED, DELETED, EXISTING, Figure, data, data_manifest, manifest_vector


def test_removing_a_file_from_the_root_manifest() -> None:
    """Snapshot 1 of the figure has D1 and D2 EXISTING, which needs a snapshot after theirs: D0's."""
    figure = Figure()
    figure.put(figure.appending("D1", "D2"))
    figure.put(figure.appending("D0"))
    assert figure.root() == [data("D0", ADDED, 3), data("D1", EXISTING, 2), data("D2", EXISTING, 2)]

    figure.put(figure.removing("D1"))
    assert figure.root() == [data("D0", EXISTING, 3), data("D1", DELETED, 2), data("D2", EXISTING, 2)]
    assert (figure.came(), figure.went()) == ([], ["D1"])
    assert figure.live() == ["D0", "D2"]


def test_a_deleted_entry_carries_the_snapshot_that_deleted_it_and_leaves_with_the_next_root() -> None:
    figure = Figure()
    figure.put(figure.appending("D1", "D2"))
    figure.put(figure.removing("D1"))
    header = figure.lake.head.header.snapshot
    [gone] = figure.changes().removed
    assert gone.version_info.snapshot_id == header.snapshot_id

    figure.put(figure.appending("D3"))
    assert figure.root() == [data("D2", EXISTING, 2), data("D3", ADDED, 4)]


def test_removing_a_file_from_a_leaf_manifest() -> None:
    figure = Figure()
    figure.put(figure.appending_leaf("M1", "D1", "D2", "D3"))
    leaf = figure.lake.objects[figure.leaves["M1"].location]
    assert figure.root() == [data_manifest("M1", ADDED, 2)]

    figure.put(figure.removing("D2"))
    assert figure.root() == [data_manifest("M1", EXISTING, 2), manifest_vector("M1", ADDED, 3, [1])]
    assert figure.lake.objects[figure.leaves["M1"].location] is leaf
    assert (figure.came(), figure.went()) == ([], ["D2"])
    assert figure.live() == ["D1", "D3"]
