"""Which manifests a root's export consists of, and which of them are those of the root before."""

from __future__ import annotations

from itertools import pairwise

from rootline.catalog.export_keys import FormatVersion
from rootline.catalog.exported_definition import ExportedDefinition
from rootline.catalog.manifest_writer import (
    CHUNK_ENTRIES,
    GivenEntries,
    LeafChunk,
    Merged,
    RemovedFromLeaf,
    Unit,
    entries_of_chunk,
    removed_entries,
    units_of,
)
from rootline.schemas.bytes.leaf import LeafContent
from rootline.schemas.content_entry import ContentEntry, ContentType, Status
from rootline.schemas.intent import Intent, IntentKind
from rootline.tree.state.table_state import TableState
from tests.tree.tables import (
    BY_BUCKET,
    DEFINITION,
    Lake,
    append,
    data_file,
    equality_delete,
    intent,
    new_lake,
    remove,
    removed,
    seen_vector,
)

V2, V3 = (ExportedDefinition.of(DEFINITION, format_version) for format_version in FormatVersion)


def units(lake: Lake, exported: ExportedDefinition = V3, merged: Merged | None = None) -> list[Unit]:
    root = lake.head.root
    return units_of(root, exported) if merged is None else units_of(root, exported, None, merged)


def names(found: list[Unit]) -> set[str]:
    return {unit.name for unit in found}


def held(lake: Lake, unit: Unit) -> list[ContentEntry]:
    """The entries of a unit."""
    if isinstance(unit.part, GivenEntries):
        return list(unit.part.entries)
    leaf = lake.leaves[unit.part.row.location].of_row(unit.part.row)
    if isinstance(unit.part, LeafChunk):
        return leaf.entries_at(entries_of_chunk(unit.part, leaf))
    return removed_entries(unit.part, leaf)


def live(lake: Lake, found: list[Unit]) -> list[str]:
    entries = [entry for unit in found for entry in held(lake, unit)]
    return sorted(entry.location for entry in entries if entry.version_info.status is not Status.DELETED)


def large_lake(count: int) -> Lake:
    """`count` files in one leaf, two in the root."""
    lake = new_lake()
    for start in range(0, count, 2_000):
        numbers = range(start, min(start + 2_000, count))
        lake.put(append(f"many{start}", *(data_file(f"f{number}", rows=1) for number in numbers)))
    lake.put(lake.flush("flush", lake.leaf(lake.root_entries())))
    lake.put(append("one"), append("two"))
    return lake


def all_live(state: TableState) -> list[str]:
    return sorted(found.entry.location for found in state.live.entries())


def row_delta(name: str, lake: Lake, target: str, positions: list[int]) -> Intent:
    seen = seen_vector(lake.head, target)
    return intent(IntentKind.ROW_DELTA, name, add_vectors=(lake.vector(name, target, positions, seen),))


def test_every_live_entry_is_in_exactly_one_unit() -> None:
    lake = large_lake(CHUNK_ENTRIES + 10)
    lake.put(row_delta("v1", lake, "data/f3.parquet", [0]))
    lake.put(remove("r1", removed("data/f9.parquet"), removed("data/one.parquet")))
    found = units(lake)
    assert live(lake, found) == all_live(lake.head)
    assert len(names(found)) == len(found)
    assert {unit.content for unit in found} == {LeafContent.DATA, LeafContent.DELETE}


def test_a_leaf_is_cut_into_chunks_of_consecutive_ordinals() -> None:
    lake = large_lake(2 * CHUNK_ENTRIES + 1)
    chunks = [unit.part for unit in units(lake) if isinstance(unit.part, LeafChunk)]
    bounds = [0, CHUNK_ENTRIES, 2 * CHUNK_ENTRIES, 2 * CHUNK_ENTRIES + 1]
    assert [(chunk.start, chunk.stop) for chunk in chunks] == list(pairwise(bounds))


def test_a_commit_of_one_file_makes_one_unit() -> None:
    lake = large_lake(CHUNK_ENTRIES + 10)
    before = units(lake)
    lake.put(append("three"))
    fresh = [unit for unit in units(lake) if unit.name not in names(before)]
    assert len(fresh) == 1
    assert isinstance(fresh[0].part, GivenEntries)


def test_a_removal_from_a_leaf_makes_its_chunk_anew_and_says_what_went_once() -> None:
    lake = large_lake(CHUNK_ENTRIES + 10)
    lake.put(append("settle"))
    before = units(lake)
    gone = held(lake, next(unit for unit in before if isinstance(unit.part, LeafChunk)))[17]
    lake.put(remove("r", removed(gone.location)))
    after = units(lake)
    fresh = {type(unit.part) for unit in after if unit.name not in names(before)}
    assert fresh == {LeafChunk, RemovedFromLeaf, GivenEntries}  # and the open block, whose ADDED rows are EXISTING now
    (said,) = (held(lake, unit) for unit in after if isinstance(unit.part, RemovedFromLeaf))
    own = lake.head.header.snapshot.snapshot_id
    assert [(entry.location, entry.version_info.status, entry.version_info.snapshot_id) for entry in said] == [
        (gone.location, Status.DELETED, own)
    ]
    assert said[0].version_info.sequence_number == gone.version_info.sequence_number
    assert gone.location not in live(lake, after)
    lake.put(append("next"))
    later = units(lake)
    assert not [unit for unit in later if isinstance(unit.part, RemovedFromLeaf)]
    chunks = {unit.name for unit in after if isinstance(unit.part, LeafChunk)}
    assert chunks == {unit.name for unit in later if isinstance(unit.part, LeafChunk)}


def test_a_leaf_without_live_entries_has_no_unit() -> None:
    lake = new_lake(append("a"), append("b"))
    lake.put(lake.flush("flush", lake.leaf(lake.root_entries())))
    lake.put(remove("r", removed("data/a.parquet"), removed("data/b.parquet")))
    assert [type(unit.part) for unit in units(lake)] == [RemovedFromLeaf]
    lake.put(append("c"))
    assert [type(unit.part) for unit in units(lake)] == [GivenEntries]


def test_a_block_is_cut_by_spec_and_content() -> None:
    lake = new_lake(append("a"), append("b", data_file("b", partition_spec_id=BY_BUCKET)))
    lake.put(row_delta("v", lake, "data/a.parquet", [1]))
    assert sorted((unit.spec_id, str(unit.content)) for unit in units(lake)) == [
        (0, "data"),
        (0, "delete"),
        (2, "data"),
    ]


def test_equality_deletes_are_in_no_unit_in_the_root_and_in_leaves() -> None:
    lake = new_lake(append("a"))
    deletes = (equality_delete("e", 3, "UA"),)
    lake.put(intent(IntentKind.ROW_DELTA, "e", add_equality_deletes=deletes))
    assert live(lake, units(lake)) == ["data/a.parquet"]
    entries = lake.root_entries(ContentType.EQUALITY_DELETE)
    lake.put(lake.flush("flush", lake.leaf(entries, content=LeafContent.DELETE)))
    assert live(lake, units(lake)) == ["data/a.parquet"]


def test_a_vector_that_a_converted_delete_stands_for_is_left_out() -> None:
    lake = new_lake(append("a"), append("b"))
    for target in ("a", "b"):
        lake.put(row_delta(f"v{target}", lake, f"data/{target}.parquet", [1]))
    vectors = lake.root_entries(ContentType.POSITION_DELETE)
    converted = vectors[0].with_version_info(vectors[0].version_info)
    in_root = units(lake, merged=Merged((converted,), frozenset({"data/a.parquet"})))
    assert live(lake, in_root) == ["data/a.parquet", "data/b.parquet", "data/va.puffin", "data/vb.puffin"]
    assert sum(unit.content is LeafContent.DELETE for unit in in_root) == 2
    lake.put(lake.flush("flush", lake.leaf(vectors, content=LeafContent.DELETE)))
    leaves = {name: leaf for name, leaf in lake.leaves.items() if leaf.content is LeafContent.DELETE}
    in_leaf = units(lake, merged=Merged((converted,), frozenset({"data/a.parquet"}), leaves))
    assert live(lake, in_leaf) == ["data/a.parquet", "data/b.parquet", "data/va.puffin", "data/vb.puffin"]
    plain = {unit.name for unit in units(lake) if unit.content is LeafContent.DELETE}
    assert not plain & names(in_leaf)


def test_a_vector_that_went_is_not_shown() -> None:
    lake = new_lake(append("a"))
    lake.put(row_delta("v1", lake, "data/a.parquet", [1]))
    lake.put(row_delta("v2", lake, "data/a.parquet", [1, 2]))
    deletes = [entry for unit in units(lake) for entry in held(lake, unit) if unit.content is LeafContent.DELETE]
    assert [(entry.location, entry.version_info.status) for entry in deletes] == [("data/v2.puffin", Status.ADDED)]


def test_the_formats_and_definitions_have_names_of_their_own() -> None:
    lake = large_lake(3)
    assert not names(units(lake, V2)) & names(units(lake, V3))
    assert names(units(lake)) == names(units(lake.reloaded_lake()))
