"""A paused table decides nothing and loses nothing, whoever owns its partition, and holds no other table back."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from rootline.coordinator.protocol.machine_state import Phase
from rootline.ports.intent_feed import ALL_TABLES, Pause
from rootline.schemas.identifiers import LogPosition, TableName
from rootline.schemas.verdict import VerdictKind
from rootline.testing.virtual_loop import run_virtually
from tests.coordinator.group_service import Group, coordinating
from tests.coordinator.hooked_ports import HookedStore
from tests.coordinator.running_service import append_intent
from tests.coordinator.test_parking import Damage, until_passed
from tests.support.group_log import GroupLog

HELD, FREE = TableName("h.h"), TableName("t.t")
WEEK_S = 7 * 86_400.0


def virtually(work: Coroutine[Any, Any, None]) -> None:
    run_virtually(work)


def pause(group: Group, *tables: TableName) -> None:
    group.log.group.paused.extend(Pause(table, 1, "the source is wrong") for table in tables)


def resume(group: Group) -> None:
    group.log.group.paused.clear()


async def until_held(group: Group, name: str = "a") -> None:
    await group.until(lambda: HELD in paused_of(group, name))


def paused_of(group: Group, name: str = "a") -> set[TableName]:
    return {table for table, (phase, _) in group.services[name].tables().items() if phase is Phase.PAUSED}


def undecided(group: Group, positions: list[LogPosition]) -> list[LogPosition]:
    return [position for position in positions if position not in group.log.verdicts]


def test_a_paused_table_decides_nothing_while_others_go_on_and_everything_once_it_is_resumed() -> None:
    async def main() -> None:
        async with coordinating("a", log=GroupLog(1, retention_s=WEEK_S)) as group:
            await group.create(HELD, FREE)
            pause(group, HELD)
            await until_held(group)
            held = group.publish(*(append_intent(f"held-{number}", HELD) for number in range(3)))
            await group.commit(*(append_intent(f"free-{number}", FREE) for number in range(20)))
            assert undecided(group, held) == held
            assert "paused by an operator: the source is wrong" in group.why("a", HELD)
            assert group.services["a"].obstacle_of(HELD).startswith("the table is paused: paused by an operator")
            assert group.services["a"].obstacle_of(FREE) == ""
            assert group.services["a"].readiness().ready
            resume(group)
            verdicts = await group.decided(held)
            assert {verdict.kind for verdict in verdicts} == {VerdictKind.COMMITTED}
            await group.until_settled()
            assert len(await group.files(HELD)) == 3
            assert paused_of(group) == set()
            group.check_order(HELD)

    virtually(main())


def test_a_paused_table_does_not_keep_the_offset_of_its_partition() -> None:
    async def main() -> None:
        async with coordinating("a", log=GroupLog(1, retention_s=WEEK_S)) as group:
            await group.create(HELD, FREE)
            pause(group, HELD)
            await until_held(group)
            held = group.publish(*(append_intent(f"held-{number}", HELD) for number in range(3)))
            await until_passed(group, held[-1].offset)
            parked = group.assignment("a").parked.tables.values()
            assert [(each.records, each.why) for each in parked] == [(3, "paused by an operator: the source is wrong")]
            later = group.publish(append_intent("later", HELD))
            await until_passed(group, later[-1].offset)
            group.log.truncate_before(0, group.log.remembered(0) or 0)
            resume(group)
            assert len(await group.decided([*held, *later])) == 4
            await group.until_settled()
            assert len(await group.files(HELD)) == 4
            group.check_order(HELD)

    virtually(main())


def test_a_pause_outlives_crashes_and_takeovers() -> None:
    async def main() -> None:
        async with coordinating("a", log=GroupLog(1, retention_s=WEEK_S)) as group:
            await group.create(HELD, FREE)
            pause(group, HELD)
            await until_held(group)
            held = group.publish(append_intent("held", HELD))
            await group.crash("a")
            group.start("b")
            await group.commit(append_intent("free", FREE))
            await until_held(group, "b")
            assert undecided(group, held) == held
            await until_passed(group, held[-1].offset)
            await group.stop("b")
            group.start("c")
            await group.commit(append_intent("free-again", FREE))
            assert undecided(group, held) == held
            resume(group)
            assert (await group.decided(held))[0].kind is VerdictKind.COMMITTED

    virtually(main())


def test_what_is_in_flight_when_the_pause_comes_is_finished_and_told_once() -> None:
    async def main() -> None:
        store, putting, go_on = HookedStore(), asyncio.Event(), asyncio.Event()

        async def slow(operation: str, key: str) -> None:
            if operation == "put" and f"{HELD.replace('.', '/')}/" in key:
                putting.set()
                await go_on.wait()

        async with coordinating("a", log=GroupLog(1, retention_s=WEEK_S), store=store) as group:
            await group.create(HELD, FREE)
            store.before = slow
            first = group.publish(append_intent("first", HELD))
            await putting.wait()
            second = group.publish(append_intent("second", HELD))
            pause(group, HELD)
            await until_held(group)
            go_on.set()
            assert (await group.decided(first))[0].kind is VerdictKind.COMMITTED
            await group.commit(append_intent("free", FREE))
            await asyncio.sleep(60.0)
            assert undecided(group, second) == second
            resume(group)
            assert (await group.decided(second))[0].kind is VerdictKind.COMMITTED
            await group.until_settled()
            assert len(await group.files(HELD)) == 2

    virtually(main())


def test_pauses_that_come_and_go_while_writers_write_lose_and_double_nothing() -> None:
    async def main() -> None:
        async with coordinating("a", log=GroupLog(2, retention_s=WEEK_S)) as group:
            await group.create(HELD, FREE)
            published = []
            for number in range(30):
                published += group.publish(
                    append_intent(f"held-{number}", HELD, location=f"data/h{number}.parquet"), partition=number % 2
                )
                if number % 5 == 2:
                    pause(group, HELD)
                if number % 5 == 4:
                    resume(group)
                if number == 12:
                    await group.crash("a")
                    group.start("a")
                await asyncio.sleep(3.0)
            resume(group)
            verdicts = await group.decided(published)
            assert {verdict.kind for verdict in verdicts} <= {VerdictKind.COMMITTED, VerdictKind.DUPLICATE}
            await group.until_settled()
            assert len(await group.files(HELD)) == 30
            group.check_order(HELD)

    virtually(main())


def test_while_all_tables_are_paused_nothing_is_read_and_the_service_is_ready() -> None:
    async def main() -> None:
        async with coordinating("a", log=GroupLog(1, retention_s=WEEK_S)) as group:
            await group.create(HELD, FREE)
            pause(group, ALL_TABLES)
            await until_held(group)
            places = group.publish(append_intent("held", HELD), append_intent("free", FREE))
            await asyncio.sleep(600.0)
            assert undecided(group, places) == places
            await group.stop("a")
            service = group.start("b")
            await group.until(lambda: "all tables are paused" in service.readiness().reason)
            assert service.readiness().ready
            assert undecided(group, places) == places
            resume(group)
            assert len(await group.decided(places)) == 2

    virtually(main())


def test_lifting_a_quarantine_does_not_end_a_pause_and_a_pause_does_not_end_a_quarantine() -> None:
    async def main() -> None:
        log, store = GroupLog(1, retention_s=WEEK_S), HookedStore()
        damage = Damage(store, HELD)
        async with coordinating("a", log=log, store=store) as group:
            await group.create(HELD, FREE)
            await group.until_settled()
            await group.stop("a")
            await damage.do()
            group.start("a")
            held = group.publish(append_intent("held", HELD))
            await group.until(lambda: group.services["a"].tables().get(HELD, (None,))[0] is Phase.QUARANTINED)
            pause(group, HELD)
            await until_held(group)
            resume(group)
            await group.until(lambda: group.services["a"].tables()[HELD][0] is Phase.QUARANTINED)
            pause(group, HELD)
            await until_held(group)
            damage.mend()
            group.log.group.parked.lift(HELD)
            await asyncio.sleep(60.0)
            assert paused_of(group) == {HELD}
            assert undecided(group, held) == held
            resume(group)
            assert (await group.decided(held))[0].kind is VerdictKind.COMMITTED

    virtually(main())
