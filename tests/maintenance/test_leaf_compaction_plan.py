"""Which leaves become one, and what delete leaves belong to then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rootline.maintenance.leaf_compaction_plan import LeafCompactionPlan, LeafLoad, LoadedLeaf
from rootline.maintenance.limits import CompactionLimits, FlushLimits
from rootline.maintenance.plan import InPlan, InRoot
from rootline.schemas.bytes.leaf_codec import LeafContent
from rootline.schemas.content_entry import ContentType, FileFormat, Status
from tests.maintenance.table_builder import TableBuilder, location_of
from tests.schemas.iceberg_manifests import leaf_row

NOW = CompactionLimits().now


async def with_leaves(*sizes: int) -> TableBuilder:
    """A table with a data leaf of each size."""
    builder = TableBuilder()
    await builder.create()
    first = 0
    for size in sizes:
        await builder.append(*range(first, first + size))
        await builder.flush()
        first += size
    return builder


def plan(builder: TableBuilder, limits: CompactionLimits = NOW) -> LeafCompactionPlan:
    return builder.compaction_plan(limits)


def data_leaves(builder: TableBuilder) -> list[str]:
    return [row.location for row in builder.rows_of(ContentType.DATA_MANIFEST)]


async def test_many_small_leaves_of_one_size_become_one() -> None:
    builder = await with_leaves(2, 2, 2)
    assert plan(builder, CompactionLimits(leaves=4)).leaves == ()
    made = plan(builder, CompactionLimits(leaves=3))
    assert set(made.replaces) == set(data_leaves(builder))
    (leaf,) = made.leaves
    assert {entry.location for entry in leaf.entries} == {location_of(number) for number in range(6)}
    assert {entry.version_info.status for entry in leaf.entries} == {Status.EXISTING}
    assert made.made_from_version == builder.state.header.version


async def test_a_large_leaf_is_not_written_again_with_each_small_one() -> None:
    builder = await with_leaves(40, 2, 2, 2)
    small = data_leaves(builder)[1:]
    assert set(plan(builder, CompactionLimits(leaves=3)).replaces) == set(small)


async def test_a_leaf_that_is_mostly_dead_is_rewritten_without_what_is_dead() -> None:
    builder = await with_leaves(4)
    await builder.remove(0)
    assert plan(builder, CompactionLimits()).leaves == ()
    await builder.remove(1)
    (leaf,) = plan(builder, CompactionLimits()).leaves
    assert {entry.location for entry in leaf.entries} == {location_of(2), location_of(3)}


async def test_a_leaf_that_is_dead_as_a_whole_leaves_without_another_in_its_place() -> None:
    builder = await with_leaves(2, 2)
    dead, live = data_leaves(builder)
    await builder.remove(0, 1)
    made = plan(builder, CompactionLimits())
    assert (made.leaves, made.replaces) == ((), (dead,))
    await builder.committed(await builder.compaction_intent(made))
    assert data_leaves(builder) == [live]
    assert builder.rows_of(ContentType.MANIFEST_DV) == []
    (verdict,) = await builder.apply(await builder.compaction_intent(made))
    assert verdict.code == "compaction-stale"
    assert await builder.findings() == []


async def test_leaves_of_two_specs_do_not_become_one() -> None:
    builder = await with_leaves(2, 2)
    await builder.append(10, 11, spec_id=1)
    await builder.flush()
    made = plan(builder)
    assert {leaf.spec_id for leaf in made.leaves} == {0}
    assert len(made.replaces) == 2


async def test_vectors_of_joined_leaves_are_joined_beside_them() -> None:
    builder = await with_leaves(2, 2)
    for number in (0, 1, 2):
        await builder.delete_rows({number: [1]})
        await builder.flush()
    made = plan(builder)
    data, deletes = made.leaves
    assert (data.content, deletes.content) == (LeafContent.DATA, LeafContent.DELETE)
    assert deletes.affinity == InPlan(0)
    assert len(deletes.entries) == 3


async def test_a_single_delete_leaf_follows_without_being_written_again() -> None:
    builder = await with_leaves(2, 2)
    await builder.delete_rows({0: [1]})
    await builder.flush()
    (delete_leaf,) = builder.rows_of(ContentType.DELETE_MANIFEST)
    made = plan(builder)
    assert [leaf.content for leaf in made.leaves] == [LeafContent.DATA]
    assert made.reaffiliate == ((delete_leaf.location, InPlan(0)),)


async def test_delete_leaves_of_one_data_leaf_become_one() -> None:
    builder = await with_leaves(4)
    for number in range(3):
        await builder.delete_rows({number: [1]})
        await builder.flush()
    (owner,) = data_leaves(builder)
    (leaf,) = plan(builder, CompactionLimits(leaves=3)).leaves
    assert (leaf.affinity, len(leaf.entries)) == (InRoot(owner), 3)


async def test_loose_vectors_find_the_leaf_of_their_data_file() -> None:
    builder = await with_leaves(2, 2)
    for number in (0, 2):
        await builder.delete_rows({number: [1]})
        await builder.flush_loose()
    one, two = data_leaves(builder)
    made = plan(builder, CompactionLimits(leaves=2, dead_percent=100, leaf_entries=2))
    assert {leaf.affinity: len(leaf.entries) for leaf in made.leaves} == {InRoot(one): 1, InRoot(two): 1}


async def test_one_compaction_moves_a_bounded_number_of_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = await with_leaves(3, 3, 3, 3)
    monkeypatch.setattr("rootline.maintenance.leaf_compaction_plan.ENTRIES_MAX", 7)
    assert plan(builder).entries == 6


async def test_what_a_plan_made_can_be_committed_and_leaves_less_to_do() -> None:
    builder = await with_leaves(3, 3, 3)
    await builder.delete_rows({0: [1], 4: [2]})
    await builder.remove(1)
    before = builder.live_files()
    await builder.committed(await builder.compaction_intent(plan(builder)))
    assert builder.live_files() == before
    assert len(data_leaves(builder)) == 1
    assert builder.rows_of(ContentType.MANIFEST_DV) == []
    assert plan(builder).leaves == ()
    assert await builder.findings() == []


def test_limits_come_from_the_tables_properties() -> None:
    properties = {
        "rootline.compact.leaves": "3",
        "rootline.compact.dead-percent": "20",
        "rootline.flush.leaf-entries": "9",
    }
    assert CompactionLimits.of_properties(properties) == CompactionLimits(3, 20, 9)
    for name, value in (("leaves", "no"), ("dead-percent", "101"), ("leaves", "0")):
        assert CompactionLimits.of_properties({f"rootline.compact.{name}": value}) == CompactionLimits()
    assert FlushLimits.of_properties({}).leaf_entries == CompactionLimits().leaf_entries


def _loose(number: int, spec_id: int) -> LoadedLeaf:
    row = leaf_row(b"", 4, is_delete=True, location=f"deletes-{number}.parquet")
    return LoadedLeaf(replace(row, file_format=FileFormat.PARQUET, partition_spec_id=spec_id), 4)


def test_delete_leaves_of_different_specs_are_not_compacted_into_as_many_again_and_again() -> None:
    limits = CompactionLimits(leaves=3)
    apart = [_loose(number, number) for number in range(5)]
    assert LeafLoad(tuple(apart)).chosen(limits) == ()
    more = [_loose(5, 0), _loose(6, 0)]
    chosen = LeafLoad((*apart, *more)).chosen(limits)
    assert [leaf.location for leaf in chosen] == ["deletes-0.parquet", "deletes-5.parquet", "deletes-6.parquet"]
