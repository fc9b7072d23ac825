"""Upserts of the same keys at the same time, beside deletes, compactions and changes of the schema."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rootline import Invalid, connect
from rootline.client import row_updates
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from tests.client.change.test_equality_deletes import delete_by_id

COLUMNS = {"id": "long not null", "writer": "string", "round": "long"}


@pytest.fixture
def counters(lake: Lake) -> TableHandle:
    """An empty table, identified by `id`."""
    table = lake.create_table("demo.counters", COLUMNS)
    with table.alter() as change:
        change.set_identifier_fields("id")
    return table


def ids_of(table: TableHandle) -> list[int]:
    found: list[int] = sorted(table.scan(columns=["id"]).to_arrow().column(0).to_pylist())
    return found


def test_threads_that_upsert_the_same_new_keys_add_each_once(counters: TableHandle) -> None:
    def upsert(writer: int) -> tuple[int, int]:
        inserted = updated = 0
        for round_ in range(4):
            rows = [{"id": id_, "writer": f"w{writer}", "round": round_} for id_ in range(round_ * 5, round_ * 5 + 10)]
            commit = counters.upsert(rows, timeout_s=60)
            assert commit.rows.inserted is not None
            inserted, updated = inserted + commit.rows.inserted, updated + commit.rows.updated
        return inserted, updated

    with ThreadPoolExecutor(3) as pool:
        counts = list(pool.map(upsert, range(3)))
    assert ids_of(counters) == list(range(25))
    assert sum(inserted for inserted, _ in counts) == 25
    assert sum(updated for _, updated in counts) == 3 * 40 - 25
    assert list(counters.check(data_files="all")) == []


PROGRAM = """
import sys, pyarrow.compute as pc, rootline
lake = rootline.connect(sys.argv[1])
table = lake.table("demo.counters")
for round_ in range(int(sys.argv[3])):
    table.upsert([{"id": id_, "writer": sys.argv[2], "round": round_} for id_ in (round_, round_ + 1)], timeout_s=60)
    table.update_where("id = -1", {"round": pc.field("round") + 1}, timeout_s=60)
lake.close()
"""


def test_processes_lose_no_update_and_double_no_row(folder: Path) -> None:
    with connect(folder) as lake:
        table = lake.create_table("demo.counters", COLUMNS)
        with table.alter() as change:
            change.set_identifier_fields("id")
        table.append([{"id": -1, "writer": "", "round": 0}])
        programs = [
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(folder), f"w{at}", "6"], stderr=subprocess.PIPE, text=True
            )
            for at in range(2)
        ]
        for program in programs:
            _, errors = program.communicate(timeout=120)
            assert program.returncode == 0, errors
        assert ids_of(table) == [-1, *range(7)]
        assert table.scan("id = -1").to_arrow().column("round").to_pylist() == [12]


def interfered(monkeypatch: pytest.MonkeyPatch, change: Any) -> Counter[str]:
    """Let `change` be committed after the first plan of the next change of rows, before its intent is published.

    Returns a count of its plans, which grows.
    """
    planned = row_updates._Changes.intent
    calls: Counter[str] = Counter()

    async def intent(self: Any, options: Any) -> Any:
        found = await planned(self, options)
        calls["plans"] += 1
        if calls["plans"] == 1:
            await asyncio.to_thread(change)
        return found

    monkeypatch.setattr(row_updates._Changes, "intent", intent)
    return calls


@pytest.mark.parametrize(
    "other", ["compact", "delete", "add column", "drop column", "rename", "widen", "upsert", "append"]
)
def test_a_change_between_plan_and_commit_loses_nothing(
    lake: Lake, counters: TableHandle, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    counters.append([{"id": id_, "writer": "old", "round": 0} for id_ in range(4)])
    counters.append([{"id": id_, "writer": "old", "round": 0} for id_ in range(4, 8)])
    beside = connect_beside(lake, counters)

    def change() -> None:
        match other:
            case "compact":
                beside.rewrite()
            case "delete":
                beside.delete_where("id = 2 or id = 7")
            case "add column":
                with beside.alter() as altered:
                    altered.add_column("more", "string", default="d")
            case "drop column":
                with beside.alter() as altered:
                    altered.drop_column("writer")
            case "rename":
                with beside.alter() as altered:
                    altered.rename_column("round", "turn")
            case "widen":
                with beside.alter() as altered:
                    altered.add_column("w", "int")
                    altered.update_column("w", "long")
            case "upsert":
                beside.upsert([{"id": 2, "writer": "other", "round": 5}, {"id": 20, "writer": "other", "round": 5}])
            case "append":
                beside.append([{"id": 100, "writer": "other", "round": 5}])

    interfered(monkeypatch, change)
    commit = counters.upsert([{"id": 2, "round": 9}, {"id": 5, "round": 9}, {"id": 20, "round": 9}], timeout_s=60)
    expected = [*range(8), 20]
    if other == "delete":
        expected = [0, 1, 2, 3, 4, 5, 6, 20]
        assert commit.rows.inserted == 2
    elif other == "append":
        expected.append(100)
    assert ids_of(counters) == expected
    column = "turn" if other == "rename" else "round"
    assert sorted(counters.scan(f"{column} = 9").to_arrow().column("id").to_pylist()) == [2, 5, 20]
    if other == "upsert":
        assert counters.scan("id = 2 and writer = 'other'").count() == 1
    assert list(counters.check(data_files="all")) == []


def test_changes_of_other_rows_of_a_file_are_no_conflict_for_keys_that_are_found(
    lake: Lake, counters: TableHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters.append([{"id": id_, "writer": "old", "round": 0} for id_ in range(8)])
    beside = connect_beside(lake, counters)
    calls = interfered(monkeypatch, lambda: beside.delete_where("id = 7 or id = 0"))
    assert counters.upsert([{"id": 2, "round": 9}, {"id": 5, "round": 9}]).rows.updated == 2
    assert calls["plans"] == 1
    assert ids_of(counters) == [1, 2, 3, 4, 5, 6]
    assert list(counters.check(data_files="all")) == []


@pytest.mark.parametrize("other", ["upsert", "delete"])
def test_a_row_that_would_not_change_has_its_values_at_the_commit(
    lake: Lake, counters: TableHandle, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    counters.append([{"id": id_, "writer": "old", "round": 0} for id_ in range(8)])
    beside = connect_beside(lake, counters)

    def change() -> None:
        if other == "upsert":
            beside.upsert([{"id": 2, "round": 5}])
        else:
            beside.delete_where("id = 2")

    calls = interfered(monkeypatch, change)
    commit = counters.upsert([{"id": 2, "round": 0}, {"id": 5, "round": 9}])
    assert calls["plans"] == (3 if other == "upsert" else 2)  # the other upsert has a plan, too
    assert (commit.rows.updated, commit.rows.inserted) == ((2, 0) if other == "upsert" else (1, 1))
    assert counters.scan("id = 2 and round = 0").count() == 1
    assert list(counters.check(data_files="all")) == []


@pytest.mark.parametrize("is_whole", [True, False])
def test_an_equality_delete_between_plan_and_commit_is_seen(
    lake: Lake, folder: Path, flights: TableHandle, monkeypatch: pytest.MonkeyPatch, is_whole: bool
) -> None:
    flights.append(pa.table({"id": [1] if is_whole else [1, 2, 3], "carrier": ["UA"] * (1 if is_whole else 3)}))
    beside = connect_beside(lake, flights)
    interfered(monkeypatch, lambda: delete_by_id(lake, folder, beside, 1))
    commit = flights.upsert([{"id": 1, "delay": 5.0, "carrier": "UA"}], on=["id"])
    assert (commit.rows.inserted, commit.rows.updated) == (1, 0)
    assert ids_of(flights) == ([1] if is_whole else [1, 2, 3])


def connect_beside(lake: Lake, table: TableHandle) -> TableHandle:
    """A second handle, of the same lake."""
    return lake.table(table.name)


def test_increments_beside_a_compaction_are_all_counted(counters: TableHandle) -> None:
    counters.append([{"id": 0, "writer": "", "round": 0}])

    def increment(_: int) -> None:
        for _round in range(5):
            counters.update_where("id = 0", {"round": pc.field("round") + 1}, timeout_s=60)

    def compact(_: int) -> None:
        for _round in range(5):
            counters.append([{"id": 1 + _round, "writer": "a", "round": 0}])
            with contextlib.suppress(Invalid):  # stale-source: an increment was faster
                counters.rewrite()

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(increment, 0), pool.submit(increment, 1), pool.submit(compact, 0)]:
            done.result()
    assert counters.scan("id = 0").to_arrow().column("round").to_pylist() == [10]
    assert ids_of(counters) == list(range(6))
