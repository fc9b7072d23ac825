"""A plan writes itself: its objects, and the intent that names them."""

from __future__ import annotations

from dataclasses import replace

from rootline.maintenance.flush_plan import plan_flush
from rootline.maintenance.leaf_compaction_plan import LeafCompactionPlan
from rootline.maintenance.limits import FLUSH_NOW, CompactionLimits
from rootline.maintenance.plan import IntentStamp, Plan
from rootline.maintenance.vector_compaction_plan import plan_vector_compaction
from rootline.schemas.intent import IntentKind
from rootline.tree.scan.scan_plan import manifest_vectors
from tests.maintenance.table_builder import TableBuilder


def stamp_of(builder: TableBuilder, intent_id: str = "0" * 32) -> IntentStamp:
    return IntentStamp(intent_id, builder.table, builder.state.header.table_uuid, "a worker", 7)


async def plans() -> tuple[TableBuilder, list[Plan]]:
    """One plan of each kind, of one table."""
    builder = TableBuilder()
    await builder.create()
    await builder.append(*range(8))
    await builder.flush()
    await builder.remove(0, 1)
    await builder.append(8, 9)
    await builder.delete_rows({8: [1]})
    root, state = builder.state.root, builder.state
    flush = plan_flush(root, state.definition, FLUSH_NOW)
    (leaf,) = state.leaves
    compaction = LeafCompactionPlan(root.header.version, flush.leaves, (leaf,))
    limits = CompactionLimits(vector_bytes=1)
    vectors = plan_vector_compaction(root, limits, manifest_vectors(root))
    assert vectors is not None
    return builder, [flush, compaction, vectors]


async def test_a_plan_that_is_written_twice_gives_the_same_objects_and_the_same_intent() -> None:
    builder, made = await plans()
    for plan in made:
        stamp = stamp_of(builder)
        assert plan.write(stamp, builder.state.definition) == plan.write(stamp, builder.state.definition)


async def test_the_objects_of_two_intents_have_different_names() -> None:
    builder, made = await plans()
    for plan in made:
        written = [plan.write(stamp_of(builder, digit * 32), builder.state.definition) for digit in "01"]
        one, two = ({item.location for item in each.objects} for each in written)
        assert not one & two


async def test_an_intent_names_every_object_its_maker_and_the_root_that_it_was_made_from() -> None:
    builder, made = await plans()
    kinds = []
    for plan in made:
        written = plan.write(stamp_of(builder), builder.state.definition)
        intent = written.intent
        named = {item.location for items in (intent.add_manifests, intent.add_vectors) for item in items}
        assert named == {item.location for item in written.objects}
        assert len(intent.add_manifests) == plan.leaf_count
        assert (intent.writer_id, intent.writer_sequence) == ("a worker", 7)
        assert intent.made_from_version == plan.made_from_version == builder.state.header.version
        kinds.append(intent.kind)
    assert kinds == [IntentKind.FLUSH, IntentKind.COMPACT_LEAVES, IntentKind.COMPACT_VECTORS]


async def test_vectors_of_a_plan_hold_all_that_is_dead() -> None:
    builder, (*_, vectors) = await plans()
    (added,) = vectors.write(stamp_of(builder), builder.state.definition).intent.add_vectors
    assert (added.cardinality, vectors.entries) == (2, 1)


async def test_a_delete_leaf_is_affiliated_with_the_data_leaf_of_its_own_plan() -> None:
    builder, (flush, *_) = await plans()
    data, deletes = flush.write(stamp_of(builder), builder.state.definition).intent.add_manifests
    assert deletes.referenced_file == data.location
    other = replace(stamp_of(builder), intent_id="1" * 32)
    assert flush.write(other, builder.state.definition).intent.add_manifests[1].referenced_file != data.location
