"""The figures of the section "Overwrite Files"."""

from __future__ import annotations

from rootline.schemas.root_header import Operation
from tests.seed.figure import ADDED, DELETED, EXISTING, Figure, data, data_manifest, manifest_vector


def test_overwriting_files_in_the_root_manifest() -> None:
    figure = Figure()
    figure.put(figure.appending("D1"))
    assert figure.root() == [data("D1", ADDED, 2)]

    figure.put(figure.overwriting("D1", adds="D2"))
    assert figure.root() == [data("D1", DELETED, 2), data("D2", ADDED, 3)]
    assert (figure.came(), figure.went()) == (["D2"], ["D1"])

    figure.put(figure.overwriting("D2", adds="D3"))
    assert figure.root() == [data("D2", DELETED, 3), data("D3", ADDED, 4)]
    assert (figure.came(), figure.went()) == (["D3"], ["D2"])
    assert figure.live() == ["D3"]


def test_overwriting_files_in_a_leaf_manifest() -> None:
    figure = Figure()
    figure.put(figure.appending_leaf("M1", "D1", "D2", "D3"))
    assert figure.root() == [data_manifest("M1", ADDED, 2)]

    figure.put(figure.overwriting("D2", adds="D4"))
    assert figure.root() == [
        data("D4", ADDED, 3),
        data_manifest("M1", EXISTING, 2),
        manifest_vector("M1", ADDED, 3, [1]),
    ]
    assert (figure.came(), figure.went()) == (["D4"], ["D2"])
    assert figure.lake.head.header.snapshot.operation is Operation.OVERWRITE
    assert figure.live() == ["D1", "D3", "D4"]
