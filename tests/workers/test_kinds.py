"""A kind of maintenance is one row of a table that everything else reads."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from rootline.adapters.memory import MemoryIntentLog, MemoryObjectStore
from rootline.adapters.system_environment import SystemEnvironment
from rootline.ports.task_queue import TaskKind
from rootline.schemas.identifiers import TableName
from rootline.workers.jobs.job import JobOutcome
from rootline.workers.kinds import BY_HAND, KINDS, maintain
from tests.maintenance.table_builder import TableBuilder
from tests.workers.log_coordinator import LogCoordinator

DOCS = Path(__file__).parents[2] / "docs"


def test_every_kind_has_a_name_of_its_own_and_every_look_has_a_kind() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    assert {kind.task for kind in KINDS} == set(TaskKind)


def test_every_kind_that_is_run_by_hand_is_shown_in_the_operators_page() -> None:
    said = re.findall(r"^rootline maintenance run ([a-z-]+)", (DOCS / "operations.md").read_text(), re.MULTILINE)
    assert set(said) == set(BY_HAND)


@pytest.mark.parametrize("name", BY_HAND)
async def test_every_kind_that_is_run_by_hand_says_nothing_is_due_for_a_table_that_does_not_exist(name: str) -> None:
    store, log, environment = MemoryObjectStore(), MemoryIntentLog(), SystemEnvironment()
    report = await maintain(store, log, environment, TableName("demo.none"), BY_HAND[name], dry_run=False)
    assert report.outcome is JobOutcome.NOTHING_DUE


async def test_by_hand_a_dry_run_writes_nothing_and_a_run_publishes_one_intent() -> None:
    builder, log = TableBuilder(MemoryObjectStore()), MemoryIntentLog()
    await builder.create()
    await builder.append(1, 2)
    before = len((await builder.store.list("demo/")).keys)
    environment, kind = SystemEnvironment(), BY_HAND["flush"]
    planned = await maintain(builder.store, log, environment, builder.table, kind, dry_run=True)
    assert (planned.outcome, planned.leaves, planned.entries) == (JobOutcome.PLANNED, 1, 2)
    assert len((await builder.store.list("demo/")).keys) == before
    assert await log.end_offset() == 0
    serving = asyncio.create_task(LogCoordinator(log, builder).serve())
    done = await maintain(builder.store, log, environment, builder.table, kind, dry_run=False)
    serving.cancel()
    assert (done.outcome, done.leaves, done.entries) == (JobOutcome.COMMITTED, 1, 2)
    assert await log.end_offset() == 1
