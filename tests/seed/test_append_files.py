"""The figures of the section "Append Files"."""

from __future__ import annotations

from tests.seed.figure import ADDED, EXISTING, Figure, Listed, data, data_manifest


def test_appends_to_the_root_manifest() -> None:
    figure = Figure()
    figure.put(figure.appending_leaf("M1", "D1", "D2", "D3"))
    assert figure.root() == [data_manifest("M1", ADDED, 2)]
    assert figure.leaf("M1") == [Listed(name, ADDED, None) for name in ("D1", "D2", "D3")]
    assert (figure.came(), figure.went()) == (["D1", "D2", "D3"], [])

    figure.put(figure.appending("D4"))
    assert figure.root() == [data("D4", ADDED, 3), data_manifest("M1", EXISTING, 2)]
    assert (figure.came(), figure.went()) == (["D4"], [])

    figure.put(figure.appending("D5"))
    assert figure.root() == [data("D4", EXISTING, 3), data("D5", ADDED, 4), data_manifest("M1", EXISTING, 2)]
    assert (figure.came(), figure.went()) == (["D5"], [])
    assert figure.live() == ["D1", "D2", "D3", "D4", "D5"]


def test_appends_to_the_root_manifest_using_new_data_manifests() -> None:
    figure = Figure()
    figure.put(figure.appending_leaf("M1", "D1", "D2", "D3"))
    assert figure.root() == [data_manifest("M1", ADDED, 2)]

    figure.put(figure.appending_leaf("M2", "D4", "D5", "D6"))
    assert figure.root() == [data_manifest("M1", EXISTING, 2), data_manifest("M2", ADDED, 3)]
    assert figure.leaf("M2") == [Listed(name, ADDED, None) for name in ("D4", "D5", "D6")]
    assert (figure.came(), figure.went()) == (["D4", "D5", "D6"], [])
    assert figure.live() == ["D1", "D2", "D3", "D4", "D5", "D6"]


def test_files_of_a_leaf_inherit_snapshot_sequence_number_and_row_ids_from_its_row_for_ever() -> None:
    """The entry table: "Inherited when null"; "First Row ID Inheritance"."""
    figure = Figure()
    figure.put(figure.appending("D0"))
    figure.put(figure.appending_leaf("M1", "D1", "D2"))
    snapshot = figure.lake.head.header.snapshot.snapshot_id
    wanted = {"D1": (snapshot, 3, 3, 10), "D2": (snapshot, 3, 3, 20)}
    assert {name: figure.numbers(name) for name in wanted} == wanted

    figure.put(figure.appending("D3"))
    figure.put(figure.removing("D1"))
    assert figure.numbers("D2") == wanted["D2"]
    assert figure.numbers("D3")[3] == 30


def test_row_ids_are_given_once_and_stay_under_flush_and_compaction() -> None:
    figure = Figure()
    figure.put(figure.appending("D1", "D2"))
    figure.put(figure.appending_leaf("M1", "D3", "D4"))
    wanted = {name: figure.numbers(name) for name in ("D1", "D2", "D3", "D4")}
    assert [numbers[3] for numbers in wanted.values()] == [0, 10, 20, 30]

    figure.put(figure.flushing("M2", ["D1", "D2"]))
    assert {name: figure.numbers(name) for name in wanted} == wanted
    figure.put(figure.compacting("M3", ["M1", "M2"]))
    assert {name: figure.numbers(name) for name in wanted} == wanted
    assert figure.lake.head.header.row_ids.next == 40
