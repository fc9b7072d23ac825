"""Parking under hasty operators and tables that recover in the middle: nothing is skipped, doubled or told twice."""

from __future__ import annotations

import asyncio

import pytest

from rootline.schemas.errors import Unavailable
from rootline.schemas.verdict import VerdictKind
from rootline.testing.virtual_loop import run_virtually
from tests.coordinator.group_service import Group, coordinating
from tests.coordinator.hooked_ports import HookedStore
from tests.coordinator.running_service import append_intent
from tests.coordinator.test_consumer_loop import Outage
from tests.coordinator.test_parking import FREE, STUCK, WEEK_S, Damage, quarantined, until_passed
from tests.coordinator.test_verdict_account import TOLD, counted
from tests.support.group_log import GroupLog
from tests.support.partitioned_log import LogPosition


async def parked_with_a_gap(group: Group, damage: Damage, prefix: str) -> list[LogPosition]:
    """Three records are parked, and the one in the middle is gone; the table itself is mended. Coordinator: `b`."""
    stuck = group.publish(*(append_intent(f"{prefix}-{number}", STUCK) for number in range(3)))
    await until_passed(group, stuck[-1].offset)
    group.log.truncate_before(0, group.log.remembered(0) or 0)
    group.log.group.parked.lose(STUCK, stuck[1].offset)
    damage.mend()
    return stuck


def test_a_word_to_go_on_without_missing_records_that_was_given_twice_is_not_for_what_is_parked_later() -> None:
    async def main() -> None:
        log, store = GroupLog(1, retention_s=WEEK_S), HookedStore()
        damage = Damage(store)
        async with coordinating("a", log=log, store=store) as group:
            await quarantined(group, damage)
            stuck = await parked_with_a_gap(group, damage, "first")
            await group.stop("a")
            log.group.parked.lift(STUCK, without_missing=True)
            again = log.group.parked.lifts[:]
            group.start("b")
            await group.decided([stuck[0], stuck[2]])
            await group.until(lambda: not log.group.parked.tables)
            log.group.parked.lifts += again  # the operator's second command comes a moment too late
            [verdict] = await group.commit(append_intent("and on", STUCK))
            await group.stop("b")
            assert verdict.version is not None
            damage = Damage(store, version=verdict.version)
            await damage.do()
            group.start("c")
            stuck = await parked_with_a_gap(group, damage, "second")
            log.group.parked.lift(STUCK)
            await asyncio.sleep(3_600.0)
            assert not any(log.is_settled(place) for place in stuck)
            [(held, _)] = log.group.parked.tables.values()
            assert "parked records are gone" in held.why
            assert "parked records are gone" in group.why("c", STUCK)

    run_virtually(main())


@pytest.mark.parametrize("room_bytes", [1_500, 64_000_000])
def test_a_table_that_recovers_while_it_is_being_parked_decides_each_of_its_records_once(room_bytes: int) -> None:
    """It decides what it was given while the first portion of that is being stored; the rest is over the limit."""

    async def main() -> None:
        outage, log = Outage(STUCK), GroupLog(1, retention_s=WEEK_S)
        store = HookedStore(before=outage)

        async def hook(operation: str, reader: str) -> None:
            if operation == "park" and outage.on:
                outage.on = False
                await asyncio.sleep(120.0)

        log.hooks.before = hook
        async with coordinating("a", log=log, store=store, parked_bytes_max=room_bytes) as group:
            await group.create(STUCK, FREE)
            await group.until_settled()
            await group.stop("a")
            outage.on = True
            group.start("a")
            stuck = group.publish(*(append_intent(f"stuck-{number}", STUCK) for number in range(300)))
            await until_passed(group, stuck[0].offset)
            verdicts = await group.decided(stuck)
            assert {verdict.kind for verdict in verdicts} == {VerdictKind.COMMITTED}
            assert not log.letters
            await group.until(lambda: not log.group.parked.tables)
            await group.until_settled()
            assert len(await group.files(STUCK)) == 300
            group.check_order(STUCK)

    run_virtually(main())


def test_a_table_that_recovers_before_anything_of_it_was_parked_is_given_nothing_twice() -> None:
    async def main() -> None:
        outage, log = Outage(STUCK), GroupLog(1, retention_s=WEEK_S)
        store, handed = HookedStore(before=outage), list[int]()
        is_slow = False

        async def slow(operation: str, key: str) -> None:
            await outage(operation, key)
            if is_slow and operation == "put" and key.startswith("q/q"):
                await asyncio.sleep(4.0)

        store.before = slow

        async def hook(operation: str, reader: str) -> None:
            nonlocal is_slow
            if operation == "park":
                outage.on, is_slow = False, True
                raise Unavailable("log-unavailable", "the topic does not answer")

        log.hooks.before = hook
        async with coordinating("a", log=log, store=store, batch_intents_max=3) as group:
            await group.create(STUCK, FREE)
            await group.until_settled()
            await group.stop("a")
            outage.on = True
            group.start("a")
            await group.until(lambda: group.services["a"]._consumer.assignment is not None)
            served = group.assignment("a").served
            hand_over = type(served).hand_over

            def noting(self, loop, table, place, records):  # type: ignore[no-untyped-def]
                handed.extend(record.position.offset for record in records if table == STUCK)
                hand_over(self, loop, table, place, records)

            type(served).hand_over = noting  # type: ignore[method-assign]
            try:
                stuck = group.publish(*(append_intent(f"stuck-{number}", STUCK) for number in range(20)))
                await until_passed(group, stuck[-1].offset)
                verdicts = await group.decided(stuck)
            finally:
                type(served).hand_over = hand_over  # type: ignore[method-assign]
            assert {verdict.kind for verdict in verdicts} == {VerdictKind.COMMITTED}
            await group.until_settled()
            assert len(await group.files(STUCK)) == 20
            assert sorted(handed) == sorted(set(handed))

    run_virtually(main())


def test_a_record_that_is_too_large_to_be_parked_is_rejected_alone_and_holds_no_other_back() -> None:
    """Brokers refuse those that are sent behind it, too, because they are out of order."""

    async def main() -> None:
        log, store = GroupLog(1, retention_s=WEEK_S), HookedStore()
        damage = Damage(store)
        async with coordinating("a", log=log, store=store) as group:
            await quarantined(group, damage)
            stuck = group.publish(append_intent("first", STUCK))
            await until_passed(group, stuck[0].offset)
            stuck += group.publish(*(append_intent(f"stuck-{number}", STUCK) for number in range(5)))
            log.group.parked.too_large.add(stuck[3].offset)
            await until_passed(group, stuck[-1].offset)
            damage.mend()
            log.group.parked.lift(STUCK)
            codes = [verdict.code for verdict in await group.decided(stuck)]
            assert codes == [None, None, None, "table-parked", None, None]
            await group.until_settled()

    run_virtually(main())


def test_a_record_that_is_too_large_to_be_parked_is_rejected_once_however_often_the_next_one_is_tried() -> None:
    async def main() -> None:
        log, store = GroupLog(1, retention_s=WEEK_S), HookedStore()
        damage = Damage(store)
        async with coordinating("a", log=log, store=store) as group:
            await quarantined(group, damage)
            stuck = group.publish(append_intent("first", STUCK))
            await until_passed(group, stuck[0].offset)
            stuck += group.publish(*(append_intent(f"stuck-{number}", STUCK) for number in range(4)))
            log.group.parked.too_large.add(stuck[2].offset)
            log.group.parked.unanswered[stuck[3].offset] = 3
            await until_passed(group, stuck[-1].offset)
            await group.until(lambda: not +log.group.parked.unanswered)
            damage.mend()
            log.group.parked.lift(STUCK)
            verdicts = await group.decided(stuck)
            await group.until_settled()
            assert [verdict.code for verdict in verdicts] == [None, None, "table-parked", None, None]
            assert "too large to be parked" in (verdicts[2].message or "")
            assert counted(group.services["a"], TOLD)["rejected", "table-parked"] == 1
            assert [letter.offset for letter in log.letters] == [stuck[2].offset]

    run_virtually(main())
