"""Past a hard limit a commit writes leaves itself, so that a root stays bounded without workers."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from rootline.maintenance import flush_plan as stepwise_encoding
from rootline.maintenance.limits import FlushLimits
from rootline.schemas.bytes.leaf_codec import LeafContent, encode_leaf
from rootline.schemas.content_entry import ContentType, Status
from rootline.schemas.intent import IntentKind
from rootline.tree.check.root_diff import diff
from tests.maintenance.table_builder import TableBuilder, data_file, location_of
from tests.support.own_flush import own_flush


async def a_table(**properties: str) -> TableBuilder:
    """Whose coordinator flushes by itself from ten rows of the root on."""
    builder = TableBuilder(**{"rootline.flush.hard-entries": "10", **properties})
    builder.relief = own_flush
    await builder.create()
    return builder


async def test_writers_go_on_without_workers_and_the_root_stays_bounded() -> None:
    builder = await a_table()
    most = 0
    for number in range(60):
        await builder.append(number)
        most = max(most, len(builder.state.live.rows))
    assert most <= 10
    assert len(builder.live_files()) == 60
    assert len(builder.rows_of(ContentType.DATA_MANIFEST)) == 5
    assert await builder.findings() == []


async def test_only_entries_of_earlier_snapshots_move_and_this_one_shows_its_own() -> None:
    builder = await a_table()
    await builder.append(*range(10))
    assert builder.rows_of(ContentType.DATA_MANIFEST) == []
    await builder.append(10, 11)
    assert {row.location for row in builder.rows_of(ContentType.DATA)} == {location_of(10), location_of(11)}
    assert {row.version_info.status for row in builder.rows_of(ContentType.DATA)} == {Status.ADDED}
    (leaf,) = builder.state.leaves.values()
    assert {entry.version_info.status for entry in leaf.entries()} == {Status.EXISTING}
    assert builder.state.header.snapshot.operation == "append"
    changes = diff(builder.state.root, builder.state.leaves)
    assert {entry.location for entry in changes.added} == {location_of(10), location_of(11)}
    assert changes.removed == ()


async def test_what_the_same_commit_removes_is_shown_and_does_not_come_back() -> None:
    builder = await a_table()
    await builder.append(*range(10))
    await builder.remove(3)
    assert {entry.location for entry in diff(builder.state.root, builder.state.leaves).removed} == {location_of(3)}
    assert not builder.is_live(3)
    assert len(builder.live_files()) == 9
    (mask,) = builder.rows_of(ContentType.MANIFEST_DV)
    assert (mask.version_info.status, mask.record_count) == (Status.EXISTING, 1)
    assert await builder.findings() == []


async def test_vectors_go_along_and_vectors_of_leaves_go_too() -> None:
    builder = await a_table()
    await builder.append(*range(9))
    await builder.delete_rows({2: [1]})
    await builder.append(20)  # ten rows: this commit flushes
    assert builder.rows_of(ContentType.POSITION_DELETE) == []
    await builder.append(*range(21, 29))
    await builder.delete_rows({5: [4]})
    await builder.append(30)
    assert builder.rows_of(ContentType.POSITION_DELETE) == []
    assert {row.referenced_file is None for row in builder.rows_of(ContentType.DELETE_MANIFEST)} == {False}
    assert builder.state.header.totals.vectors == 2
    assert await builder.findings() == []


async def test_a_vector_that_the_same_commit_replaces_stays_replaced() -> None:
    builder = await a_table()
    await builder.append(*range(9))
    await builder.delete_rows({2: [1]})
    await builder.delete_rows({2: [7]})
    vector = builder.state.vector_of(location_of(2))
    assert vector is not None
    assert set(await builder.read_vector(vector)) == {1, 7}
    assert builder.state.header.totals.vectors == 1
    assert await builder.findings() == []


async def test_a_flush_of_a_worker_that_comes_late_doubles_nothing() -> None:
    builder = await a_table()
    await builder.append(*range(10))
    late = await builder.flush_intent()
    await builder.append(10)
    (verdict,) = await builder.apply(late)
    assert verdict.code == "flush-stale"
    assert len(builder.live_files()) == 11
    again = await builder.flush_intent()
    await builder.committed(again, builder.intent(IntentKind.APPEND, add_data_files=(data_file(12),)))
    assert await builder.findings() == []


async def test_a_worker_s_flush_and_the_coordinators_own_in_one_root_move_each_row_once() -> None:
    builder = await a_table()
    await builder.append(*range(10))
    await builder.committed(await builder.flush_intent())
    assert len(builder.rows_of(ContentType.DATA_MANIFEST)) == 1
    assert builder.state.header.totals.data_files == 10
    assert await builder.findings() == []


async def test_the_same_head_gives_the_same_leaves_under_the_same_names() -> None:
    builder = await a_table()
    await builder.append(*range(10))
    first, second = own_flush(builder.state), own_flush(builder.state)
    assert (first.manifests, first.encoded) == (second.manifests, second.encoded)
    assert len(first.manifests) == len(first.encoded) == 1


async def test_a_root_that_is_large_in_bytes_is_relieved_too() -> None:
    builder = await a_table(**{"rootline.flush.hard-entries": "20", "rootline.flush.hard-bytes": "500"})
    await builder.append(0)
    await builder.append(1)
    assert builder.rows_of(ContentType.DATA_MANIFEST) == []  # two rows of twenty: not they make it large
    await builder.append(2)
    await builder.append(3)
    assert len(builder.rows_of(ContentType.DATA_MANIFEST)) == 1


@pytest.mark.parametrize(
    ("properties", "entries"), [({}, 5_000), ({"data-files": "10000"}, 40_800), ({"hard-entries": "7"}, 7)]
)
def test_the_hard_limit_is_above_the_worker_s_unless_it_is_set(properties: dict[str, str], entries: int) -> None:
    named = {f"rootline.flush.{name}": value for name, value in properties.items()}
    assert FlushLimits.of_properties(named).hard_entries == entries


@pytest.mark.parametrize("step_entries", [1, 4, 100])
async def test_a_leaf_that_is_encoded_in_steps_is_the_same_byte_by_byte(
    step_entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = await a_table()
    await builder.append(*range(9))
    rows = [row.entry for row in builder.state.live.rows.values()]
    some = [entry if number % 3 else replace(entry, content_stats={}) for number, entry in enumerate(rows)]
    monkeypatch.setattr(stepwise_encoding, "STEP_ENTRIES", step_entries)
    for entries in (rows, some, [replace(entry, content_stats={}) for entry in rows]):
        steps = stepwise_encoding.encode_in_steps(
            entries, builder.definition, leaf_uuid=uuid.UUID(int=5), content=LeafContent.DATA
        )
        pauses = 0
        while True:
            try:
                next(steps)
                pauses += 1
            except StopIteration as end:
                leaf = end.value
                break
        assert pauses >= len(rows) // step_entries
        assert leaf == encode_leaf(entries, builder.definition, leaf_uuid=uuid.UUID(int=5), content=LeafContent.DATA)
