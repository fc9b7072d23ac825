"""The figures that set V3 beside V4, and the rules under "Root Manifests" and "Single Manifest Structure"."""

from __future__ import annotations

from rootline.schemas.content_entry import ContentType, Status
from rootline.tree.check.root_diff import diff
from tests.seed.figure import (
    ADDED,
    DELETED,
    EXISTING,
    Figure,
    Listed,
    data,
    data_manifest,
    delete_manifest,
    manifest_vector,
    vector,
)


def test_a_root_manifest_points_to_a_manifest_a_data_file_and_a_vector_at_once() -> None:
    """In the figure all three are ADDED in one snapshot.

    What one root adds and removes again is no change of it, so M1's vector is EXISTING: a reader counts D1, D3 and D5.
    """
    figure = Figure()
    m1 = figure.appending_leaf("M1", "D1", "D2", "D3")
    d5 = figure.appending("D5")
    figure.put(m1, d5, figure.removing("D2"))
    assert figure.root() == [
        data("D5", ADDED, 3),
        data_manifest("M1", ADDED, 2),
        manifest_vector("M1", EXISTING, 4, [1]),
    ]
    assert sorted(figure.came()) == ["D1", "D3", "D5"]
    assert figure.went() == []
    assert figure.live() == ["D1", "D3", "D5"]


def test_a_root_manifest_holds_every_type_and_leaves_hold_what_is_theirs() -> None:
    figure = Figure()
    figure.put(figure.deleting_rows_in_leaves(("M1", ["D1", "D2"]), ("M2", [("DV1", "D1", [0])]), of="M1"))
    figure.put(figure.appending("D3"))
    figure.put(figure.deleting_rows("DV3", of="D3", bits=[2]))
    figure.put(figure.removing("D2"))
    assert figure.root() == [
        data("D3", EXISTING, 3),
        vector("DV3", "D3", EXISTING, 4, [2]),
        data_manifest("M1", EXISTING, 2),
        delete_manifest("M2", EXISTING, 2, of="M1"),
        manifest_vector("M1", ADDED, 5, [1]),
    ]
    assert figure.leaf("M1") == [Listed("D1", ADDED, None), Listed("D2", ADDED, None)]
    assert figure.leaf("M2") == [Listed("DV1", ADDED, None, of="D1")]
    assert figure.live() == ["D1", "D3", "DV1", "DV3"]


def test_what_changes_data_is_marked_and_what_does_not_is_existing() -> None:
    """ "Any changes to underlying data are marked as ADDED and anything which does not ... is marked as EXISTING." """
    figure = Figure()
    figure.put(figure.appending("D1", "D2"))
    figure.put(figure.flushing("M1", ["D1"]), figure.appending("D3"), figure.removing("D2"))
    rows = figure.lake.head.root.rows
    statuses = {(row.entry.content_type, row.entry.version_info.status) for row in rows}
    assert statuses == {
        (ContentType.DATA, Status.ADDED),
        (ContentType.DATA, Status.DELETED),
        (ContentType.DATA_MANIFEST, Status.EXISTING),
    }
    assert figure.root() == [data("D2", DELETED, 2), data("D3", ADDED, 4), data_manifest("M1", EXISTING, 3)]
    assert (figure.came(), figure.went()) == (["D3"], ["D2"])
    assert not diff(figure.lake.states[1].root, {}).removed


def test_removing_a_data_file_of_a_leaf_removes_its_vector_wherever_that_is() -> None:
    """ "Removing Data Files": two manifest vectors when both are in leaves; else the vector's own row is DELETED."""
    figure = Figure()
    figure.put(figure.deleting_rows_in_leaves(("M1", ["D1", "D2"]), ("M2", [("DV1", "D1", [0])])))
    figure.put(figure.deleting_rows("DV2", of="D2", bits=[1]))
    m1, m2 = data_manifest("M1", EXISTING, 2), delete_manifest("M2", EXISTING, 2)

    figure.put(figure.removing("D1"))
    assert figure.root() == [
        vector("DV2", "D2", EXISTING, 3, [1]),
        m1,
        m2,
        manifest_vector("M1", ADDED, 4, [0]),
        manifest_vector("M2", ADDED, 4, [0]),
    ]
    figure.put(figure.removing("D2"))
    assert figure.root() == [
        vector("DV2", "D2", DELETED, 3, [1]),
        m1,
        m2,
        manifest_vector("M1", EXISTING, 4, [0]),
        manifest_vector("M1", ADDED, 5, [1]),
        manifest_vector("M2", EXISTING, 4, [0]),
    ]
    assert figure.live() == []
