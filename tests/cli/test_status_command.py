"""`rootline status` on an embedded lake: with a host, without one, paused, and where store or log are not there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rootline.adapters.memory import MemoryObjectStore
from rootline.cli.lake_status import REREAD_MAX, ROOTS_MAX, HeadCache
from rootline.cli.operator_commands import print_statuses
from rootline.cli.output import Output
from rootline.connect import connect, open_stored_log
from rootline.schemas.identifiers import ObjectKey, TableName, Version
from rootline.schemas.object_keys import root_key
from tests.cli.conftest import Run
from tests.coordinator.hooked_ports import HookedStore


async def publish(folder: Path, table: str, count: int) -> None:
    log = open_stored_log(None, str(folder))
    await log.publish_many([(table.encode(), b"{}")] * count)
    await log.close()


def test_owner_head_lag_and_state_are_shown_and_the_reason(run: Run, lake: Path) -> None:
    here = ("--warehouse", lake, "--json")
    unowned = run("status", *here).records
    assert [(row["table"], row["state"], row["head"], row["lag"]) for row in unowned] == [
        ("demo.flights", "unowned", 3, 0)
    ]
    assert "rootline up" in unowned[0]["why"]
    with connect(lake) as opened:
        opened.table("demo.flights").append({"id": [7], "carrier": ["UA"], "delay": [0.5]}, timeout_s=60.0)
        (idle,) = run("status", *here).records
        assert (idle["state"], idle["head"], idle["owner"][:8], idle["oldest"]) == ("idle", 4, "process ", None)
    asyncio.run(publish(lake, "demo.flights", 3))
    (pending,) = run("status", "demo.flights", *here).records
    assert (pending["lag"], pending["parked"], pending["oldest_s"] >= 0) == (3, 0, True)
    run("pause", "demo.flights", "--why", "wrong source", "--warehouse", lake)
    (paused,) = run("status", *here).records
    assert (paused["state"], paused["why"]) == ("paused", "paused by an operator: wrong source")
    assert "wrong source" in run("status", "--warehouse", lake).out


def test_it_refreshes_as_often_as_it_is_told_and_changes_nothing(run: Run, lake: Path) -> None:
    before = sorted(path.name for path in lake.rglob("*") if "log.sqlite" not in path.name)
    watched = run("status", "--watch", "--every", 0.5, "--times", 3, "--warehouse", lake, "--json")
    assert (watched.code, len(watched.records)) == (0, 3)
    assert sorted(path.name for path in lake.rglob("*") if "log.sqlite" not in path.name) == before


def test_an_unknown_table_ends_with_one_and_what_cannot_be_reached_with_three(run: Run, lake: Path) -> None:
    assert run("status", "demo.nothing", "--warehouse", lake, "--json").code == 1
    away = run("status", "--warehouse", lake, "--log", f"sqlite://{lake}/elsewhere", "--json")
    assert (away.code, away.records[0]["state"], away.records[0]["head"]) == (3, "unknown", 3)
    assert "the log: " in away.err


def test_when_nothing_answered_it_does_not_say_that_there_are_no_tables(capsys: pytest.CaptureFixture[str]) -> None:
    print_statuses(Output(as_json=False), [], [], in_place=False)
    assert "no tables" in capsys.readouterr().out
    print_statuses(Output(as_json=False), [], ["the store: no answer"], in_place=False)
    shown = capsys.readouterr()
    assert "no tables" not in shown.out
    assert "because these requests failed" in shown.out
    assert shown.err == "the store: no answer\n"


@pytest.mark.parametrize("count", [300])
async def test_after_the_first_look_a_refresh_reads_a_bounded_number_of_heads(count: int) -> None:
    store = HookedStore(MemoryObjectStore())
    names = [TableName(f"n.t{number:04}") for number in range(count)]
    for name in names:
        await store.inner.put_if_absent(ObjectKey(root_key(name, Version(0))), b"root")
    heads = HeadCache(store)
    assert len(await heads.refresh(())) == count
    assert len(store.calls) <= count + 2 + ROOTS_MAX
    assert len(heads.damaged) == ROOTS_MAX, "a look reads a bounded number of roots back"
    store.calls.clear()
    await store.inner.put_if_absent(ObjectKey(root_key(names[-1], Version(1))), b"root")
    found = await heads.refresh({names[-1]})
    assert (found[names[-1]], len(found)) == (1, count)
    assert len(store.calls) <= REREAD_MAX + ROOTS_MAX
    for _ in range(count // REREAD_MAX + 1):
        store.calls.clear()
        await heads.refresh(())
        assert len(store.calls) <= REREAD_MAX + 2 + ROOTS_MAX
    assert len(heads.damaged) == count, "they go round"
