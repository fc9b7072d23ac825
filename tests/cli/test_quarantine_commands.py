"""`rootline quarantine` on an embedded log, without a coordinator; with one, `test_table_states` has the story."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from rootline.connect import open_stored_log
from rootline.ports.intent_feed import ParkedTable
from rootline.schemas.identifiers import TableName
from tests.cli.conftest import Run
from tests.cli.test_status_command import publish

STUCK = TableName("demo.flights")


async def noticed(folder: Path) -> None:
    """What a coordinator writes of two tables, one of which has nothing undecided any more."""
    log = open_stored_log(None, str(folder))
    notice = ParkedTable(STUCK, await log.identity(), 0, 4, 1_000, "quarantined: root-corrupt: x", 4)
    await log.mark_stuck(notice, over=False)
    await log.mark_stuck(replace(notice, table=TableName("demo.old")), over=False)
    await log.close()


async def lifts(folder: Path) -> list[str]:
    log = open_stored_log(None, str(folder))
    found = [lift.table for lift in await log.lifts()]
    await log.close()
    return found


def test_what_a_coordinator_noticed_is_listed_and_a_lift_waits_for_the_next_one(run: Run, lake: Path) -> None:
    here = ("--warehouse", lake, "--json")
    assert run("quarantine", "list", *here).records == []
    assert run("quarantine", "lift", STUCK, *here).code == 1
    asyncio.run(publish(lake, STUCK, 1))
    asyncio.run(noticed(lake))
    (listed,) = run("quarantine", "list", *here).records
    assert (listed["table"], listed["state"], listed["records"]) == (STUCK, "quarantined", 0)
    (status,) = run("status", *here).records
    assert (status["state"], status["why"]) == ("quarantined", "root-corrupt: x")
    assert run("quarantine", "lift", STUCK, "--dry-run", *here).records[0]["lifted"] is False
    assert asyncio.run(lifts(lake)) == []
    assert run("quarantine", "lift", STUCK, *here).records[0]["lifted"] is True
    assert asyncio.run(lifts(lake)) == [STUCK]


def test_the_warehouse_of_an_embedded_log_must_be_named(run: Run) -> None:
    refused = run("quarantine", "list")
    assert refused.code == 2
    assert "--warehouse" in refused.err
