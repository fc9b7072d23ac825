"""The figures of "Discarded Approaches": what keeps one snapshot's change apart from the state before it."""

from __future__ import annotations

from tests.seed.figure import (
    ADDED,
    EXISTING,
    Figure,
    Listed,
    data,
    data_manifest,
    delete_manifest,
    manifest_vector,
)
from tests.support.vector_changes import vector_changes


def test_two_vectors_on_one_manifest_keep_the_change_apart_and_the_next_root_folds_them() -> None:
    """The figure's DV1, DV2 and DV3 are the three vector rows of M1 below; inline vectors have no names."""
    figure = Figure()
    figure.put(figure.appending_leaf("M1", "D1", "D2", "D3"))
    assert figure.root() == [data_manifest("M1", ADDED, 2)]
    m1 = data_manifest("M1", EXISTING, 2)

    figure.put(figure.removing("D2"))
    assert figure.root() == [m1, manifest_vector("M1", ADDED, 3, [1])]
    assert (figure.came(), figure.went()) == ([], ["D2"])

    figure.put(figure.removing("D3"))
    assert figure.root() == [m1, manifest_vector("M1", EXISTING, 3, [1]), manifest_vector("M1", ADDED, 4, [2])]
    assert (figure.came(), figure.went()) == ([], ["D3"])

    figure.put(figure.appending("D4"))
    assert figure.root() == [data("D4", ADDED, 5), m1, manifest_vector("M1", EXISTING, 4, [1, 2])]
    assert (figure.came(), figure.went()) == (["D4"], [])
    assert figure.live() == ["D1", "D4"]


def test_modifying_a_vector_that_lives_in_a_delete_manifest() -> None:
    """In the figure a data file has two vectors, the older one and the rows deleted since, side by side in M4.

    Here it has one, which holds the older rows too, and a manifest vector takes the old one out of its leaf (main text,
    "Replacing DVs and Data Files"). What a snapshot deleted is the difference of the two, both of which its root names.
    M2 and M3 leave with the next maintenance, as nothing in them lives; until then they stand with their vectors.
    """
    figure = Figure()
    figure.put(figure.deleting_rows_in_leaves(("M1", ["D1", "D2", "D3"]), ("M2", [("DV1", "D2", [0])])))
    figure.settle()
    m1, m2 = data_manifest("M1", EXISTING, 2), delete_manifest("M2", EXISTING, 2)
    assert figure.root() == [m1, m2]
    assert figure.leaf("M2") == [Listed("DV1", ADDED, None, of="D2")]

    figure.put(figure.deleting_rows_in_leaves(None, ("M3", [("DV2", "D2", [0, 4])])))
    number = figure.lake.head.header.snapshot.sequence_number
    m3 = delete_manifest("M3", EXISTING, number)
    assert figure.root() == [m1, m2, delete_manifest("M3", ADDED, number), manifest_vector("M2", ADDED, number, [0])]
    assert newly_deleted(figure) == [4]

    figure.put(figure.deleting_rows_in_leaves(None, ("M4", [("DV3", "D2", [0, 4, 7])])))
    assert figure.root() == [
        m1,
        m2,
        m3,
        delete_manifest("M4", ADDED, number + 1),
        manifest_vector("M2", EXISTING, number, [0]),
        manifest_vector("M3", ADDED, number + 1, [0]),
    ]
    assert newly_deleted(figure) == [7]

    figure.put(figure.compacting("M5", ["M1"]))
    assert figure.root() == [
        data_manifest("M5", EXISTING, number + 2),
        delete_manifest("M4", EXISTING, number + 1),
    ]
    assert not figure.changes()
    assert figure.live() == ["D1", "D2", "D3", "DV3"]


def newly_deleted(figure: Figure) -> list[int]:
    """The rows that the last snapshot deleted, from what its root names."""
    [change] = vector_changes(figure.changes())
    assert change.before is not None
    assert change.after is not None
    return list(figure.lake.positions(change.after) - figure.lake.positions(change.before))
