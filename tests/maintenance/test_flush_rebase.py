"""What becomes of a flush when the table changed between its plan and its commit."""

from __future__ import annotations

from rootline.schemas.content_entry import ContentType, EntryPlace, Status
from rootline.schemas.verdict import VerdictKind
from rootline.storage.check.chain import check_table
from rootline.storage.check.findings import DataFiles
from tests.maintenance.table_builder import TableBuilder, location_of


async def a_table(*numbers: int) -> TableBuilder:
    builder = TableBuilder()
    await builder.create()
    await builder.append(*numbers)
    return builder


async def findings_of(builder: TableBuilder) -> list[object]:
    return [finding async for finding in check_table(builder.store, builder.table, data_files=DataFiles.IGNORED)]


def live(builder: TableBuilder, numbers: range) -> list[int]:
    return [number for number in numbers if builder.is_live(number)]


async def test_a_flush_changes_no_live_set_and_no_totals_of_files() -> None:
    builder = await a_table(*range(9))
    await builder.delete_rows({1: [1], 2: [2, 3]})
    before, totals = builder.live_files(), builder.state.header.totals
    await builder.flush()
    after = builder.state.header.totals
    assert builder.live_files() == before
    assert builder.rows_of(ContentType.DATA) == builder.rows_of(ContentType.POSITION_DELETE) == []
    assert (after.data_files, after.vectors, after.rows, after.deleted_rows, after.data_bytes) == (
        totals.data_files,
        totals.vectors,
        totals.rows,
        totals.deleted_rows,
        totals.data_bytes,
    )
    assert (after.data_manifests, after.delete_manifests) == (1, 1)
    assert await findings_of(builder) == []


async def test_a_file_that_is_removed_between_plan_and_commit_stays_removed() -> None:
    builder = await a_table(*range(4))
    late = await builder.flush_intent()
    await builder.remove(2)
    await builder.committed(late)
    assert live(builder, range(4)) == [0, 1, 3]
    (mask,) = builder.rows_of(ContentType.MANIFEST_DV)
    assert (mask.version_info.status, mask.record_count) == (Status.EXISTING, 1)
    assert await findings_of(builder) == []


async def test_a_file_that_is_removed_in_the_same_root_stays_removed_in_either_order() -> None:
    for flush_first in (True, False):
        builder = await a_table(*range(4))
        flush, removal = await builder.flush_intent(), builder.removal(2)
        await builder.committed(*((flush, removal) if flush_first else (removal, flush)))
        assert live(builder, range(4)) == [0, 1, 3]
        assert await findings_of(builder) == []


async def test_a_file_that_another_flush_moved_is_not_doubled() -> None:
    builder = await a_table(*range(4))
    first = await builder.flush_intent()
    await builder.append(4)
    second = await builder.flush_intent()
    await builder.committed(first)
    await builder.committed(second)
    assert builder.state.header.totals.data_files == 5
    assert sorted(builder.live_files()) == [location_of(number) for number in range(5)]
    assert await findings_of(builder) == []


async def test_two_flushes_of_one_plan_in_one_root_move_every_file_once() -> None:
    builder = await a_table(*range(4))
    first, second = await builder.flush_intent(), await builder.flush_intent()
    verdicts = await builder.apply(first, second)
    assert [verdict.kind for verdict in verdicts] == [VerdictKind.COMMITTED, VerdictKind.REJECTED]
    assert verdicts[1].code == "flush-stale"
    assert builder.state.header.totals.data_files == 4
    assert await findings_of(builder) == []


async def test_a_flush_of_which_nothing_is_live_any_more_is_rejected() -> None:
    builder = await a_table(0, 1)
    late = await builder.flush_intent()
    await builder.remove(0, 1)
    (verdict,) = await builder.apply(late)
    assert (verdict.kind, verdict.code) == (VerdictKind.REJECTED, "flush-stale")
    assert builder.rows_of(ContentType.DATA_MANIFEST) == []
    assert await findings_of(builder) == []


async def test_a_file_that_was_removed_and_came_back_is_not_taken_for_the_old_one() -> None:
    builder = await a_table(0, 1)
    late = await builder.flush_intent()
    await builder.remove(0)
    await builder.append(0, writer_id="w", writer_sequence=0)
    await builder.committed(late)
    assert live(builder, range(2)) == [0, 1]
    assert [entry.location for entry in builder.rows_of(ContentType.DATA)] == [location_of(0)]
    assert await findings_of(builder) == []


async def test_a_vector_that_is_replaced_between_plan_and_commit_is_masked_in_its_leaf() -> None:
    builder = await a_table(0, 1)
    await builder.delete_rows({0: [1], 1: [1]})
    late = await builder.flush_intent()
    await builder.delete_rows({0: [2]})
    await builder.committed(late)
    vector = builder.state.vector_of(location_of(0))
    assert vector is not None
    assert list(await builder.read_vector(vector)) == [1, 2]
    assert [entry.referenced_file for entry in builder.rows_of(ContentType.POSITION_DELETE)] == [location_of(0)]
    assert builder.state.header.totals.vectors == 2
    assert await findings_of(builder) == []


async def test_the_vector_of_a_file_that_is_removed_meanwhile_goes_with_it() -> None:
    builder = await a_table(0, 1)
    await builder.delete_rows({0: [1], 1: [1]})
    late = await builder.flush_intent()
    await builder.remove(0)
    await builder.committed(late)
    assert builder.state.vector_of(location_of(0)) is None
    assert builder.state.header.totals.vectors == 1
    assert len(builder.rows_of(ContentType.MANIFEST_DV)) == 2
    assert await findings_of(builder) == []


async def test_a_delete_leaf_whose_vectors_were_all_replaced_is_left_out() -> None:
    builder = await a_table(0)
    await builder.delete_rows({0: [1]})
    late = await builder.flush_intent()
    await builder.delete_rows({0: [2]})
    await builder.committed(late)
    assert builder.rows_of(ContentType.DELETE_MANIFEST) == []
    assert len(builder.rows_of(ContentType.DATA_MANIFEST)) == 1
    assert await findings_of(builder) == []


async def test_a_vector_that_lands_in_the_root_of_the_flush_keeps_deleting() -> None:
    builder = await a_table(0, 1)
    flush = await builder.flush_intent()
    deletion = await builder.deletion({1: [7]})
    await builder.committed(flush, deletion)
    vector = builder.state.vector_of(location_of(1))
    assert vector is not None
    assert list(await builder.read_vector(vector)) == [7]
    assert await findings_of(builder) == []


async def test_a_vector_leaf_lands_after_its_data_file_has_left_its_data_leaf() -> None:
    builder = await a_table(0, 1)
    await builder.flush()
    await builder.delete_rows({0: [1], 1: [1]})
    late = await builder.flush_intent()
    await builder.remove(0)
    await builder.committed(late)
    assert builder.state.vector_of(location_of(0)) is None
    assert builder.state.vector_of(location_of(1)) is not None
    assert builder.state.find(EntryPlace(ContentType.DATA, location_of(0))) is None
    assert await findings_of(builder) == []


async def test_a_long_life_with_flushes_in_between_breaks_no_rule() -> None:
    builder = await a_table(*range(20))
    await builder.delete_rows({number: [number] for number in range(0, 20, 3)})
    await builder.flush()
    await builder.append(*range(20, 30))
    await builder.append(*range(30, 34), spec_id=1)
    late = await builder.flush_intent()
    await builder.delete_rows({3: [100], 21: [5], 30: [1], 31: [2]})
    await builder.remove(0, 4, 22, 33)
    await builder.committed(late)
    await builder.delete_where_equal(7)
    await builder.delete_rows({31: [4], 5: [5]})
    await builder.flush()
    await builder.remove(*range(5, 20))
    await builder.append(40)
    await builder.append(41)
    assert sorted(builder.live_files()) == [location_of(number) for number in [1, 2, 3, 20, 21, *range(23, 33), 40, 41]]
    assert await findings_of(builder) == []
