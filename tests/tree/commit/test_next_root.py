"""How a root follows from the one before it: which bytes are reused, what each row shows."""

from __future__ import annotations

import io

import fastavro

from rootline.schemas.content_entry import Status
from rootline.tree.check.root_diff import diff
from rootline.tree.commit.next_root import BLOCK_ROWS_MAX
from rootline.tree.state.live_index import YOUNG_ROWS_MAX, LiveIndex
from tests.support.state_rules import state_violations
from tests.tree.tables import Lake, append, data_file, new_lake, remove, removed


def big(count: int) -> Lake:
    lake = new_lake()
    lake.put(append("many", *(data_file(f"m{number:05}") for number in range(count))))
    return lake


def test_an_added_row_is_existing_in_the_next_root_with_the_same_tail() -> None:
    lake = new_lake(append("a"))
    [before] = lake.head.root.rows
    lake.put(append("b"))
    [after] = [row for row in lake.head.root.rows if row.entry.location == "data/a.parquet"]
    assert after.entry.version_info.status is Status.EXISTING
    assert after.entry.version_info.snapshot_id == before.entry.version_info.snapshot_id
    assert after.tail is before.tail


def test_settled_blocks_are_the_same_objects_in_the_next_root() -> None:
    lake = big(3 * BLOCK_ROWS_MAX)
    lake.put(append("a"))
    settled = lake.head.root.blocks[:-1]
    lake.put(append("b"))
    assert all(one is other for one, other in zip(settled, lake.head.root.blocks[:-1], strict=True))


def test_a_removed_row_rebuilds_its_block_only() -> None:
    lake = big(3 * BLOCK_ROWS_MAX)
    lake.put(append("a"))
    before = lake.head.root.blocks
    lake.put(remove("r", removed("data/m00300.parquet")))
    after = set(map(id, lake.head.root.blocks))
    assert sum(id(block) not in after for block in before) <= 2
    assert state_violations(lake.head) == []


def test_small_commits_compress_few_rows_each_and_blocks_stay_large() -> None:
    lake = new_lake()
    for number in range(300):
        lake.put(append(f"a{number}"))
        assert len(lake.head.root.blocks[-1].rows) <= YOUNG_ROWS_MAX + 1
    assert len(lake.head.root.blocks) <= 300 // BLOCK_ROWS_MAX + 3
    assert state_violations(lake.head) == []


def test_a_root_without_changes_reuses_every_block() -> None:
    lake = big(10)
    lake.put(append("m", data_file("m00001")))
    blocks = lake.head.root.blocks
    lake.put(append("m", data_file("m00001")))
    assert [id(block) for block in lake.head.root.blocks] == [id(block) for block in blocks]


def test_a_file_added_and_removed_in_one_root_appears_nowhere() -> None:
    lake = new_lake(append("a"))
    lake.put(append("b"), remove("r", removed("data/b.parquet")))
    assert [row.entry.location for row in lake.head.root.rows] == ["data/a.parquet"]
    assert not diff(lake.head.root, lake.head.leaves)
    assert lake.head.header.snapshot.summary.get("added-data-files") is None


def test_a_file_removed_and_added_again_in_one_root_is_shown_both_ways() -> None:
    lake = new_lake(append("a"))
    lake.put(remove("r", removed("data/a.parquet")), append("a2", data_file("a", rows=3)))
    changes = diff(lake.head.root, lake.head.leaves)
    assert [entry.record_count for entry in changes.removed_files] == [10]
    assert [entry.record_count for entry in changes.added_files] == [3]
    lake.put(append("b"))
    assert lake.head.header.totals.rows == 13
    assert state_violations(lake.head) == []


def test_the_index_that_followed_the_commits_equals_one_made_from_nothing() -> None:
    lake = big(40)
    lake.put(remove("r", removed("data/m00003.parquet")), append("a"))
    fresh = LiveIndex.of(lake.head.root, lake.head.leaves)
    assert fresh == lake.head.live or (fresh.rows, fresh.dead) == (lake.head.live.rows, lake.head.live.dead)


def test_a_state_read_back_makes_the_same_next_root() -> None:
    lake = big(300)
    lake.put(append("a"))
    twin = lake.reloaded_lake()
    twin.bodies = list(lake.bodies)
    for each in (lake, twin):
        each.put(append("b"), remove("r", removed("data/m00007.parquet")))
    assert lake.bodies[-1] == twin.bodies[-1]


def test_any_avro_library_reads_a_root_that_was_joined() -> None:
    lake = big(300)
    lake.put(append("a"))
    lake.put(append("b"))
    records = list(fastavro.reader(io.BytesIO(lake.bodies[-1])))
    assert len(records) == 302
    locations = [record["location"] for record in records if isinstance(record, dict)]
    assert set(locations) == {entry.location for entry in lake.root_entries()}


def test_all_adds_are_an_append_all_removals_a_delete_and_both_an_overwrite() -> None:
    lake = new_lake(append("a"), append("b"))
    operations = []
    for batch in ([append("c")], [remove("r", removed("data/a.parquet"))], [append("d"), append("x", data_file("b"))]):
        lake.put(*batch)
        operations.append(lake.head.header.snapshot.operation)
    lake.put(append("e"), remove("r2", removed("data/b.parquet")))
    operations.append(lake.head.header.snapshot.operation)
    assert operations == ["append", "delete", "append", "overwrite"]


def test_each_root_names_its_parent() -> None:
    lake = new_lake(append("a"), append("b"))
    for parent, child in zip(lake.states, lake.states[1:], strict=False):
        assert child.header.parent_digest == parent.root.digest
        assert child.header.snapshot.parent_id == parent.header.snapshot.snapshot_id
