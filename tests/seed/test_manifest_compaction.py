"""The figure of the section "Manifest Compaction"."""

from __future__ import annotations

from rootline.schemas.root_header import Operation
from tests.seed.figure import ADDED, EXISTING, Figure, Listed, data, data_manifest, manifest_vector


def test_manifest_compaction_during_an_append() -> None:
    figure = Figure()
    figure.put(figure.appending_leaf("M1", "D1", "D2", "D3"))
    figure.put(figure.appending_leaf("M2", "D4", "D5", "D6"))
    figure.put(figure.removing("D1"), figure.removing("D5"))
    figure.settle()
    assert figure.root() == [
        data_manifest("M1", EXISTING, 2),
        data_manifest("M2", EXISTING, 3),
        manifest_vector("M1", EXISTING, 4, [0]),
        manifest_vector("M2", EXISTING, 5, [1]),
    ]
    number = figure.lake.head.header.snapshot.sequence_number

    figure.put(figure.compacting("M3", ["M1", "M2"]), figure.appending("D7"))
    assert figure.root() == [data("D7", ADDED, number + 2), data_manifest("M3", EXISTING, number + 1)]
    assert figure.leaf("M3") == [
        Listed("D2", EXISTING, 2),
        Listed("D3", EXISTING, 2),
        Listed("D4", EXISTING, 3),
        Listed("D6", EXISTING, 3),
    ]
    assert (figure.came(), figure.went()) == (["D7"], [])
    assert figure.lake.head.header.snapshot.operation is Operation.APPEND
    assert figure.live() == ["D2", "D3", "D4", "D6", "D7"]


def test_a_compaction_alone_changes_nothing() -> None:
    """ "Any compactions performed must not create files which cause a net change to table state"."""
    figure = Figure()
    figure.put(figure.appending_leaf("M1", "D1", "D2"))
    figure.put(figure.appending_leaf("M2", "D3"))
    before = figure.live()
    figure.put(figure.compacting("M3", ["M1", "M2"]))
    assert figure.root() == [data_manifest("M3", EXISTING, 4)]
    assert not figure.changes()
    assert figure.lake.head.header.snapshot.operation is Operation.REPLACE
    assert figure.live() == before
