"""What is moved into leaves, when, and in which order."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from rootline.maintenance.data_compaction_plan import FILES_MAX
from rootline.maintenance.flush_plan import RootLoad, plan_flush
from rootline.maintenance.limits import FLUSH_NOW, CompactionLimits, ExpiryLimits, FlushLimits, SweepLimits
from rootline.maintenance.plan import InPlan, InRoot
from rootline.schemas.bytes.leaf_codec import MAX_ENTRIES, LeafContent
from rootline.schemas.content_entry import ContentType, Status
from rootline.schemas.errors import Invalid
from rootline.schemas.table_properties import PROPERTIES, check_set, property_fault
from tests.maintenance.table_builder import REGIONS, TableBuilder, location_of


async def a_table(*numbers: int) -> TableBuilder:
    builder = TableBuilder()
    await builder.create()
    if numbers:
        await builder.append(*numbers)
    return builder


async def test_nothing_is_planned_below_the_thresholds() -> None:
    builder = await a_table(*range(9))
    assert builder.plan(FlushLimits(data_files=10, vectors=5)).leaves == ()
    assert builder.plan(FlushLimits(data_files=9, vectors=5)).entries == 9


async def test_an_empty_table_has_nothing_to_flush() -> None:
    builder = await a_table()
    assert builder.plan(FLUSH_NOW).leaves == ()


async def test_bytes_alone_make_a_flush_due() -> None:
    builder = await a_table(*range(9))
    size = RootLoad.of(builder.state.root).data_bytes
    assert builder.plan(FlushLimits(bytes_max=size + 1)).leaves == ()
    assert builder.plan(FlushLimits(bytes_max=size)).entries == 9


async def test_a_leaf_holds_one_spec() -> None:
    builder = await a_table(*range(6))
    await builder.append(*range(6, 10), spec_id=1)
    assert [(leaf.spec_id, len(leaf.entries)) for leaf in builder.plan().leaves] == [(0, 6), (1, 4)]


async def test_entries_are_clustered_by_partition_then_by_lower_bound() -> None:
    builder = await a_table(8, 3, 1, 5, 7, 0, 2, 6, 4)
    (leaf,) = builder.plan().leaves
    expected = sorted(range(9), key=lambda number: (REGIONS[number % 3], number))
    assert [entry.location for entry in leaf.entries] == [location_of(number) for number in expected]


async def test_leaves_of_one_spec_are_of_even_size_and_overlap_in_no_partition() -> None:
    builder = await a_table(*range(9))
    leaves = builder.plan(FlushLimits(data_files=1, leaf_entries=4)).leaves
    assert [len(leaf.entries) for leaf in leaves] == [3, 3, 3]
    for leaf in leaves:
        assert len({entry.content_stats[2].lower_bound for entry in leaf.entries}) == 1


async def test_leaf_entries_are_existing_and_say_where_they_come_from() -> None:
    builder = await a_table(0, 1)
    await builder.append(2)
    (leaf,) = builder.plan().leaves
    rows = {row.entry.location: row.entry for row in builder.state.root.rows}
    assert any(row.version_info.status is Status.ADDED for row in rows.values())
    for entry in leaf.entries:
        row = rows[entry.location]
        assert entry.version_info.status is Status.EXISTING
        assert entry.version_info.snapshot_id == row.version_info.snapshot_id is not None
        assert entry.version_info.sequence_number == row.version_info.sequence_number is not None
        assert entry.version_info.file_sequence_number == row.version_info.file_sequence_number is not None
        assert entry.first_row_id == row.first_row_id is not None


async def test_vectors_of_flushed_files_go_to_a_delete_leaf_of_their_data_leaf() -> None:
    builder = await a_table(0, 1, 2)
    await builder.append(3, 4, spec_id=1)
    await builder.delete_rows({1: [5], 3: [6, 7]})
    leaves = builder.plan().leaves
    assert [leaf.content for leaf in leaves] == [LeafContent.DATA] * 2 + [LeafContent.DELETE] * 2
    for delete in leaves[2:]:
        assert isinstance(delete.affinity, InPlan)
        data = leaves[delete.affinity.index]
        assert {entry.referenced_file for entry in delete.entries} <= {entry.location for entry in data.entries}
        assert delete.spec_id == data.spec_id


async def test_vectors_of_files_that_are_in_leaves_already_join_one_delete_leaf_a_data_leaf() -> None:
    builder = await a_table(0, 1, 2)
    await builder.append(3, 4, spec_id=1)
    await builder.flush()
    await builder.delete_rows({0: [1], 2: [2], 4: [3]})
    leaves = builder.plan().leaves
    assert [leaf.content for leaf in leaves] == [LeafContent.DELETE] * 2
    affinities = [leaf.affinity for leaf in leaves]
    data_leaves = {row.location for row in builder.rows_of(ContentType.DATA_MANIFEST)}
    assert {affinity.location for affinity in affinities if isinstance(affinity, InRoot)} == data_leaves
    assert sorted(len(leaf.entries) for leaf in leaves) == [1, 2]


async def test_vectors_stay_in_the_root_while_their_data_files_do() -> None:
    builder = await a_table(0, 1)
    await builder.flush()
    await builder.append(2, 3)
    await builder.delete_rows({0: [1], 2: [2]})
    plan = builder.plan(FlushLimits(data_files=1_000, vectors=1))
    moved = {entry.referenced_file for leaf in plan.leaves for entry in leaf.entries}
    # one vector on a root file reaches the threshold too, so its data file goes along
    assert moved >= {location_of(0), location_of(2)}
    builder = await a_table(0, 1)
    await builder.flush()
    await builder.append(2, 3)
    await builder.delete_rows({0: [1], 1: [1], 2: [2]})
    plan = builder.plan(FlushLimits(data_files=1_000, vectors=2))
    assert [leaf.content for leaf in plan.leaves] == [LeafContent.DELETE]
    assert {entry.referenced_file for leaf in plan.leaves for entry in leaf.entries} == {location_of(0), location_of(1)}


async def test_many_vectors_on_root_files_make_their_data_files_due() -> None:
    builder = await a_table(0, 1, 2)
    await builder.delete_rows({0: [1], 1: [1]})
    plan = builder.plan(FlushLimits(data_files=1_000, vectors=2))
    assert [leaf.content for leaf in plan.leaves] == [LeafContent.DATA, LeafContent.DELETE]


async def test_vectors_stay_put_when_the_leaf_of_their_file_was_not_read() -> None:
    builder = await a_table(0)
    await builder.flush()
    await builder.delete_rows({0: [1]})
    load = RootLoad.of(builder.state.root)
    assert load.leaves_to_read(FLUSH_NOW) == load.data_leaves != ()
    assert plan_flush(builder.state.root, builder.definition, FLUSH_NOW, leaves={}).leaves == ()


async def test_no_leaf_is_read_when_no_vector_needs_one() -> None:
    builder = await a_table(0)
    await builder.flush()
    await builder.append(1)
    assert RootLoad.of(builder.state.root).leaves_to_read(FLUSH_NOW) == ()


async def test_equality_deletes_go_to_a_delete_leaf_that_belongs_to_no_data_leaf() -> None:
    builder = await a_table(0)
    await builder.delete_where_equal(0)
    plan = builder.plan()
    assert [(leaf.content, leaf.affinity) for leaf in plan.leaves] == [
        (LeafContent.DATA, None),
        (LeafContent.DELETE, None),
    ]
    assert plan.leaves[1].entries[0].equality_ids == (1,)


async def test_the_same_root_gives_the_same_plan() -> None:
    builder = await a_table(*range(12))
    await builder.delete_rows({number: [number] for number in range(12)})
    assert builder.plan() == builder.plan()


async def test_thresholds_are_table_properties() -> None:
    limits = FlushLimits.of_properties({"rootline.flush.data-files": "7", "rootline.flush.leaf-entries": "65536"})
    assert (limits.data_files, limits.vectors, limits.leaf_entries) == (7, 200, 65_536)


@pytest.mark.parametrize(
    ("name", "value"),
    [("data-files", "0"), ("vectors", "-1"), ("bytes", "many"), ("leaf-entries", "65537"), ("vectors", "²")],
)
def test_a_threshold_that_cannot_be_used_counts_as_not_set_and_cannot_be_set_anew(name: str, value: str) -> None:
    stored = {f"rootline.flush.{name}": value}
    assert FlushLimits.of_properties(stored) == FlushLimits()
    check_set(stored, {**stored, "rootline.flush.vectors": "7"})
    with pytest.raises(Invalid, match=rf"rootline\.flush\.{name}") as refused:
        check_set({}, stored)
    assert refused.value.code == "property-invalid"


def test_what_would_delete_by_a_default_that_nobody_chose_stops_and_says_so() -> None:
    for name in ("rootline.expire", "rootline.expire.all-versions", "rootline.expire.root-retention-seconds"):
        with pytest.raises(Invalid, match=name):
            ExpiryLimits.of_properties({name: "many"})
    with pytest.raises(Invalid, match=r"rootline\.sweep\.orphan-age-s"):
        SweepLimits.of_properties({"rootline.sweep.orphan-age-s": "never"}, 1)
    with pytest.raises(Invalid, match=r"rootline\.drop\.retention-seconds"):
        check_set({}, {"rootline.drop.retention-seconds": "a week"})


def test_a_name_below_rootline_that_does_not_exist_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(Invalid, match=r"rootline\.flush\.data_files.*did you mean rootline\.flush\.data-files\?"):
        check_set({}, {"rootline.flush.data_files": "7"})
    check_set({}, {"write.format.default": "lance", "rootlines": "x"})


def test_the_rules_of_properties_allow_what_their_readers_can_use() -> None:
    assert property_fault("rootline.flush.leaf-entries", str(MAX_ENTRIES)) is None
    assert property_fault("rootline.flush.leaf-entries", str(MAX_ENTRIES + 1)) is not None
    assert property_fault("rootline.compact.data-files", str(FILES_MAX + 1)) is not None


async def test_vectors_of_many_leaves_go_to_few_delete_leaves() -> None:
    builder = TableBuilder()
    await builder.create()
    for number in range(0, 10, 2):
        await builder.append(number, number + 1)
        await builder.flush()
    await builder.delete_rows({number: [1] for number in (0, 1, 2, 4, 6, 8)})
    plan = plan_flush(
        builder.state.root, builder.definition, replace(FLUSH_NOW, delete_leaves=2), leaves=builder.state.leaves
    )
    assert sorted(len(leaf.entries) for leaf in plan.leaves) == [1, 2, 3]
    (loose,) = (leaf for leaf in plan.leaves if leaf.affinity is None)
    assert len(loose.entries) == 3
    await builder.committed(await builder.flush_intent(plan))
    assert builder.rows_of(ContentType.POSITION_DELETE) == []
    assert await builder.findings() == []


async def test_a_later_compaction_brings_loose_vectors_to_their_data_leaves() -> None:
    builder = TableBuilder()
    await builder.create()
    for number in range(0, 8, 2):
        await builder.append(number, number + 1)
        await builder.flush()
    for number in (0, 2, 4, 6):
        await builder.delete_rows({number: [1]})
        await builder.flush_loose()
    await builder.committed(
        await builder.compaction_intent(builder.compaction_plan(CompactionLimits(leaves=4, leaf_entries=4)))
    )
    owners = [row.referenced_file for row in builder.rows_of(ContentType.DELETE_MANIFEST)]
    assert None not in owners
    assert await builder.findings() == []


async def test_data_files_and_deletes_have_thresholds_of_their_own_in_counts_and_bytes() -> None:
    builder = TableBuilder()
    await builder.create()
    await builder.append(*range(4))
    await builder.flush()
    await builder.append(4, 5)
    await builder.delete_rows({0: [1], 4: [2]})
    load = RootLoad.of(builder.state.root)
    assert min(load.data_bytes, load.vector_bytes, load.delete_bytes) > 0
    far = FlushLimits()
    assert not load.data_is_due(far)
    assert not load.deletes_are_due(far)
    assert load.data_is_due(replace(far, bytes_max=load.data_bytes))
    assert load.data_is_due(replace(far, vector_bytes_max=load.vector_bytes))
    only_deletes = replace(load, data_files=(), vectors_of_root=(), data_bytes=0, vector_bytes=0)
    assert only_deletes.deletes_are_due(replace(far, vector_bytes_max=load.delete_bytes))
    assert only_deletes.deletes_are_due(replace(far, vectors=1))
    assert not only_deletes.deletes_are_due(replace(far, bytes_max=1, data_files=1))


def test_every_property_that_maintenance_reads_has_a_rule() -> None:
    folder = Path(str(files("rootline.maintenance")))
    text = "".join(path.read_text("utf-8") for path in folder.glob("*.py"))
    named = set(re.findall(r'"(rootline\.(?:append|compact|convert|expire|export|flush|sweep)[a-z.-]*)"', text))
    assert len(named) > 30
    assert sorted(named - PROPERTIES.keys()) == []
