"""What one table costs beside many others: its work does not grow with their number."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from rootline.ports.intent_feed import ALL_TABLES, Pause
from rootline.schemas.identifiers import TableName
from rootline.schemas.verdict import VerdictKind
from rootline.testing.virtual_loop import run_virtually
from tests.coordinator.group_service import Group, coordinating
from tests.coordinator.hooked_ports import HookedStore
from tests.coordinator.running_service import append_intent
from tests.support.counted_steps import counted_steps
from tests.support.group_log import GroupLog

FEW, MANY = 20, 200
OURS = "/coordinator/runtime/"


def named(count: int) -> list[TableName]:
    return [TableName(f"t.t{number}") for number in range(count)]


def test_a_table_that_is_named_for_the_first_time_costs_the_same_beside_few_tables_and_many() -> None:
    steps: dict[int, int] = {}

    async def main(count: int) -> None:
        async with coordinating("a", log=GroupLog(4)) as group:
            await group.create(*named(count))
            await group.until_settled()
            with counted_steps(OURS) as counted:
                for number in range(5):
                    await group.create(TableName(f"late.t{number}"))
            steps[count] = counted.count
            await group.until_settled()

    for count in (FEW, MANY):
        run_virtually(main(count))
    assert steps[MANY] < 1.2 * steps[FEW]


def test_names_of_tables_that_do_not_exist_cost_the_same_beside_few_tables_and_many() -> None:
    steps: dict[int, int] = {}

    async def main(count: int) -> None:
        async with coordinating("a", log=GroupLog(4)) as group:
            await group.create(*named(count))
            await group.until_settled()
            with counted_steps(OURS) as counted:
                for number in range(20):
                    verdicts = await group.decided(
                        group.publish(append_intent(f"stray-{number}", TableName(f"nowhere.t{number}")))
                    )
                    assert [verdict.kind for verdict in verdicts] == [VerdictKind.REJECTED]
            steps[count] = counted.count
            assert len(group.assignment("a").tables) <= count + 1, "names alone take no memory"
            await group.until_settled()

    for count in (FEW, MANY):
        run_virtually(main(count))
    assert steps[MANY] < 1.2 * steps[FEW]


@pytest.mark.parametrize(
    "pauses",
    [lambda _: [Pause(ALL_TABLES, 0)], lambda tables: [Pause(table, 0) for table in tables]],
    ids=["all at once", "each by itself"],
)
def test_pausing_and_resuming_tables_costs_each_the_same_however_many_wait(
    pauses: Callable[[Sequence[TableName]], list[Pause]],
) -> None:
    steps: dict[int, int] = {}

    async def main(count: int) -> None:
        is_slow = False

        async def slow(operation: str, _: str) -> None:
            await asyncio.sleep(30.0 if is_slow and operation == "put" else 0.0)

        tables = named(count)
        async with coordinating("a", log=GroupLog(4), store=HookedStore(before=slow)) as group:
            await group.create(*tables)
            await group.until_settled()
            is_slow = True
            positions = group.publish(*(append_intent("one", table) for table in tables))
            await group.until(lambda: _undecided(group) == count)
            with counted_steps(OURS) as counted:
                group.assignment("a").take_pauses(pauses(tables))
                group.assignment("a").take_pauses([])
            steps[count] = counted.count
            is_slow = False
            await group.decided(positions)
            await group.until_settled()

    for count in (FEW, MANY):
        run_virtually(main(count))
    assert steps[MANY] / MANY < 1.2 * steps[FEW] / FEW


def _undecided(group: Group) -> int:
    return len(group.assignment("a").frontier.undecided())
