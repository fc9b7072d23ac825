"""A group whose files changed meanwhile is refused and planned again, and the others land. Spark takes no part."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.schemas.errors import Invalid
from rootline.spark.compaction import Asked, Compaction, GroupRuns, Strategy
from rootline.spark.options import parse_options
from rootline.spark.rewrite_jobs import FilesOfGroup, GroupWork, pack
from tests.client.change.test_equality_deletes import delete_by_id
from tests.client.change.test_rewrite import files_of, rows_of

SCHEMA = pa.schema([("id", pa.int64()), ("carrier", pa.string()), ("delay", pa.float64())])
Meanwhile = Callable[[int, set[str]], None]


def rows(*ids: int, carrier: str = "UA") -> pa.Table:
    return pa.table({"id": ids, "carrier": [carrier] * len(ids), "delay": [float(id_) for id_ in ids]}, SCHEMA)


@pytest.fixture
def table(lake: Lake) -> TableHandle:
    """Four small files in each of two partitions."""
    made = lake.create_table("demo.flights", SCHEMA, partition_by=["carrier"])
    for carrier, first in (("UA", 0), ("AA", 100)):
        for at in range(first, first + 16, 4):
            made.append(rows(*range(at, at + 4), carrier=carrier))
    return made


def compacted(
    lake: Lake, folder: Path, meanwhile: Meanwhile = lambda *_: None, *, tries: int = 4, where: str | None = None
) -> Compaction:
    """A compaction; `meanwhile` happens after the rows of a group were read, with its number and its carriers."""
    calls = 0

    def write(work: GroupWork) -> FilesOfGroup:
        nonlocal calls
        calls += 1
        written = pack(work, 0)
        carriers = {task.data.content_stats[2].lower_bound for task in work.shares[0]}
        meanwhile(calls, {str(carrier) for carrier in carriers})
        return written

    options = parse_options({"path": "demo.flights", "warehouse": str(folder)})
    runs = GroupRuns(lake, options, Asked(Strategy.BIN_PACK, where, None, None, None, tries, 30.0, {}), write)
    return runs.carried_out(runs.groups(), 1)


def deleting(table: TableHandle, where: str, carrier: str, times: int = 1) -> Meanwhile:
    """Deletes rows while a group of this carrier is written, the first times."""
    left = [where] * times

    def meanwhile(_: int, carriers: set[str]) -> None:
        if carrier in carriers and left:
            table.delete_where(left.pop())

    return meanwhile


def facts(done: Compaction) -> dict[str, Any]:
    names = ("groups", "refused", "planned_again", "files_before", "files_after", "files_left", "rows")
    return {"commits": len(done.commits)} | {name: getattr(done, name) for name in names}


def test_small_files_of_each_partition_become_one_and_rows_keep_their_lineage(
    lake: Lake, folder: Path, table: TableHandle
) -> None:
    before, head = rows_of(table), table.head().version
    done = compacted(lake, folder)
    assert facts(done) == {
        "commits": 2,
        "groups": 2,
        "refused": 0,
        "planned_again": 0,
        "files_before": 8,
        "files_after": 2,
        "files_left": 0,
        "rows": 32,
    }
    assert rows_of(table) == before
    assert not table.changes(from_version=head, to_version=done.commits[-1].version)
    assert compacted(lake, folder).groups == 0, "there is nothing left to do"


def test_what_came_together_goes_together_so_that_a_filter_opens_one_file_afterwards(lake: Lake, folder: Path) -> None:
    properties = {"rootline.append.leaf-files": "4", "rootline.compact.data-target-bytes": "3000"}
    table = lake.create_table("demo.flights", SCHEMA, properties=properties)
    for first in range(0, 120, 10):
        table.append(rows(*range(first, first + 10), carrier="UA" * (1 + first % 30)))
    done = compacted(lake, folder)
    assert done.files_after > 2
    assert {len(table.scan(f"id = {id_}").plan()) for id_ in range(5, 120, 10)} == {1}


def test_a_group_whose_file_got_a_vector_is_planned_again_without_that_file_and_the_others_land(
    lake: Lake, folder: Path, table: TableHandle
) -> None:
    before = rows_of(table)
    done = compacted(lake, folder, deleting(table, "id = 101", "AA"))
    assert done.refused == 1
    assert done.planned_again == 2, "the file that changed, and those that did not"
    assert len(done.commits) == 3
    assert done.files_left == 0
    assert rows_of(table) == [row for row in before if row[0] != 101]
    assert list(table.check()) == []


def test_a_group_that_is_hit_each_time_is_given_up_and_nothing_is_lost(
    lake: Lake, folder: Path, table: TableHandle
) -> None:
    before = rows_of(table)
    left = list(range(100, 116, 4))

    def meanwhile(_: int, carriers: set[str]) -> None:
        if "AA" in carriers and left:
            table.delete_where(f"id in ({left[0]}, {left[0] + 4 if len(left) > 1 else left[0]})")
            del left[:1]

    done = compacted(lake, folder, meanwhile, tries=2)
    assert done.files_left > 0
    assert done.refused >= 2
    assert {row[0] for row in rows_of(table)} == {row[0] for row in before} - {100, 104, 108, 112}
    assert list(table.check()) == []


def test_files_that_are_rewritten_or_removed_meanwhile_are_left_out_and_the_rest_is_done(
    lake: Lake, folder: Path, table: TableHandle
) -> None:
    before = rows_of(table)

    def meanwhile(number: int, _: set[str]) -> None:
        if number == 1:
            table.delete_where("id < 4")
            table.rewrite(where="carrier = 'AA'")

    done = compacted(lake, folder, meanwhile)
    assert (done.refused, len(done.commits)) == (1, 1), "the other group was gone before its turn came"
    assert rows_of(table) == [row for row in before if row[0] >= 4]
    assert files_of(table) == 2
    assert list(table.check()) == []


def test_a_row_that_is_deleted_in_a_file_that_left_and_came_back_meanwhile_stays_deleted(
    lake: Lake, folder: Path, table: TableHandle
) -> None:
    version = table.head().version

    def meanwhile(call: int, _: set[str]) -> None:
        if call == 1:
            table.delete_where("id < 4")
            table.restore(version)
            delete_by_id(lake, folder, table, 1, 2)

    done = compacted(lake, folder, meanwhile, where="carrier = 'UA'")
    assert (done.refused, done.rows) == (1, 14)
    assert {1, 2}.isdisjoint(table.scan().to_arrow().column("id").to_pylist())


def test_what_is_deleted_while_a_group_waits_for_its_turn_refuses_nothing(
    lake: Lake, folder: Path, table: TableHandle
) -> None:
    before = rows_of(table)

    def meanwhile(number: int, carriers: set[str]) -> None:
        if number == 1:
            table.delete_where("id = 1" if "AA" in carriers else "id = 101")

    done = compacted(lake, folder, meanwhile)
    assert (done.refused, len(done.commits), files_of(table)) == (0, 2, 2)
    assert len(rows_of(table)) == len(before) - 1
    assert list(table.check()) == []


def test_files_that_are_no_longer_worth_it_when_their_turn_comes_are_counted_as_left(
    lake: Lake, folder: Path, table: TableHandle
) -> None:
    def meanwhile(number: int, carriers: set[str]) -> None:
        if number == 1:
            first = 0 if "AA" in carriers else 100
            table.delete_where(f"id >= {first} and id < {first + 12}")

    done = compacted(lake, folder, meanwhile)
    assert (len(done.commits), done.refused, done.files_left) == (1, 0, 1)


def test_files_of_a_spec_that_is_an_older_one_when_their_turn_comes_stay_as_they_are(
    lake: Lake, folder: Path, table: TableHandle
) -> None:
    def meanwhile(number: int, _: set[str]) -> None:
        if number == 1:
            with table.alter() as change:
                change.add_partition_field("bucket(4, id)")

    done = compacted(lake, folder, meanwhile)
    assert (len(done.commits), done.files_left, files_of(table)) == (1, 4, 5)


def test_a_group_that_is_too_large_when_its_turn_comes_is_done_in_several(
    lake: Lake, folder: Path, table: TableHandle
) -> None:
    before, size = rows_of(table), max(task.data.file_size_in_bytes or 0 for task in table.scan().plan())

    def meanwhile(number: int, _: set[str]) -> None:
        if number == 1:
            with table.alter() as change:
                change.set_properties({"rootline.compact.data-target-bytes": str(2 * size + 2)})

    done = compacted(lake, folder, meanwhile)
    assert (done.groups, len(done.commits), done.refused, done.planned_again) == (2, 3, 0, 0)
    assert (done.files_left, files_of(table), rows_of(table)) == (0, 3, before)


def test_a_failure_that_no_change_of_the_files_explains_is_raised_and_one_that_it_does_is_a_refusal(
    lake: Lake, folder: Path, table: TableHandle
) -> None:
    def broken(number: int, _: set[str]) -> None:
        if number == 1:
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        compacted(lake, folder, broken)

    def gone(number: int, _: set[str]) -> None:
        if number == 1:
            table.delete_where("id in (0, 100)")
            raise OSError("an object is gone")

    done = compacted(lake, folder, gone)
    assert done.refused == 1
    assert done.files_left == 0
    assert files_of(table) <= 3


def test_deletes_of_every_kind_are_carried_out_and_a_file_without_rows_is_not_replaced(
    lake: Lake, folder: Path, table: TableHandle
) -> None:
    table.append(rows(200, 201, carrier="DL"))
    delete_by_id(lake, folder, table, 200, 201, carrier="DL")
    delete_by_id(lake, folder, table, 1)
    table.delete_where("id = 2")
    table.append(rows(1, 200, carrier="DL"))
    before = rows_of(table)
    done = compacted(lake, folder)
    assert (done.groups, done.files_before, done.files_after, done.refused) == (3, 10, 3, 0)
    assert rows_of(table) == before
    assert not any(task.vectors or task.deletes for task in table.scan().plan())
    assert list(table.check()) == []


def test_a_table_that_is_made_again_meanwhile_ends_the_compaction(lake: Lake, folder: Path, table: TableHandle) -> None:
    def meanwhile(number: int, _: set[str]) -> None:
        if number == 1:
            lake.drop_table("demo.flights")
            lake.create_table("demo.flights", SCHEMA, partition_by=["carrier"])

    with pytest.raises(Invalid) as error:
        compacted(lake, folder, meanwhile)
    assert error.value.code == "table-uuid-mismatch"
