"""The figures of the section "Row Delta"."""

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
    vector,
)
from tests.support.vector_changes import vector_changes


def test_a_row_delta_in_the_root_manifest_only() -> None:
    figure = Figure()
    figure.put(figure.appending("D1"))
    assert figure.root() == [data("D1", ADDED, 2)]

    figure.put(figure.deleting_rows("DV1", of="D1", bits=[5, 8], adds=["D2"]))
    assert figure.root() == [
        data("D1", EXISTING, 2),
        data("D2", ADDED, 3),
        vector("DV1", "D1", ADDED, 3, [5, 8]),
    ]
    assert (figure.came(), figure.went()) == (["D2", "DV1"], [])
    assert figure.live() == ["D1", "D2", "DV1"]


def test_a_complex_row_delta_with_modified_delete_vectors() -> None:
    figure = Figure()
    figure.put(
        figure.deleting_rows_in_leaves(("DM1", ["D1", "D2"]), ("DVM1", [("DV1", "D1", [3]), ("DV2", "D2", [5])]))
    )
    assert figure.root() == [data_manifest("DM1", ADDED, 2), delete_manifest("DVM1", ADDED, 2)]
    assert figure.leaf("DM1") == [Listed("D1", ADDED, None), Listed("D2", ADDED, None)]
    assert figure.leaf("DVM1") == [Listed("DV1", ADDED, None, of="D1"), Listed("DV2", ADDED, None, of="D2")]

    figure.put(figure.deleting_rows_in_leaves(("DM2", ["D3"]), ("DVM2", [("DV4", "D1", [3, 7])])))
    assert figure.root() == [
        data_manifest("DM1", EXISTING, 2),
        data_manifest("DM2", ADDED, 3),
        delete_manifest("DVM1", EXISTING, 2),
        delete_manifest("DVM2", ADDED, 3),
        manifest_vector("DVM1", ADDED, 3, [0]),  # the figure's DV3
    ]
    assert figure.leaf("DVM2") == [Listed("DV4", ADDED, None, of="D1")]
    assert (figure.came(), figure.went()) == (["D3", "DV4"], ["DV1"])
    [change] = vector_changes(figure.changes())
    assert change.before is not None
    assert change.after is not None
    assert list(figure.lake.positions(change.after) - figure.lake.positions(change.before)) == [7]
    assert figure.live() == ["D1", "D2", "D3", "DV2", "DV4"]
