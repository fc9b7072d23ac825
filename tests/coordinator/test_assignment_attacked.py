"""Partitions that are revoked, paused and resumed while tables catch up or are being parked: all is decided once."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from rootline.coordinator.protocol.machine_state import Phase
from rootline.coordinator.runtime.assignment.served_tables import Pauses
from rootline.ports.intent_feed import ALL_TABLES, Pause
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import LogPosition, TableName
from rootline.schemas.verdict import VerdictKind
from rootline.testing.virtual_loop import run_virtually
from tests.coordinator.group_service import Group, coordinating
from tests.coordinator.hooked_ports import HookedStore
from tests.coordinator.running_service import append_intent
from tests.coordinator.test_consumer_loop import Outage
from tests.coordinator.test_parking import FREE, STUCK, WEEK_S, Damage, quarantined, until_passed
from tests.coordinator.test_pausing import pause, paused_of, resume
from tests.support.group_log import GroupLog


class Stop:
    """A hook that stops one call of an operation until `go_on` is set. `calls`: the calls to let pass before."""

    def __init__(self, operation: str, calls: int = 0) -> None:
        self.operation, self.left = operation, calls
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()
        self.is_armed = False

    async def __call__(self, operation: str, reader: str) -> None:
        if operation != self.operation or not self.is_armed or self.reached.is_set():
            return
        self.left -= 1
        if self.left < 0:
            self.reached.set()
            await self.go_on.wait()


async def all_decided_once(group: Group, positions: list[LogPosition], table: TableName, files: int) -> None:
    verdicts = await group.decided(positions)
    assert {verdict.kind for verdict in verdicts} == {VerdictKind.COMMITTED}
    await group.until_settled()
    assert len(await group.files(table)) == files
    group.check_order(table)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("calls", [0, 3])
def test_partitions_that_are_revoked_while_a_table_catches_up_lose_and_double_nothing(moment: str, calls: int) -> None:
    """Its own reader stands in the middle of a read, and rejected records of its key have no dead letters yet."""

    async def main() -> None:
        stop, is_silent = Stop("read_again", calls), True
        outage, log = Outage(STUCK), GroupLog(1, read_max=4)

        async def before(operation: str, reader: str) -> None:
            if operation == "letters" and is_silent:
                raise Unavailable("log-unavailable", "no dead letters now")
            if moment == "before":
                await stop(operation, reader)

        log.hooks.before = before
        if moment == "after":
            log.hooks.after = stop
        async with coordinating("a", log=log, store=HookedStore(before=outage), table_queue_intents_max=3) as group:
            await group.create(STUCK, FREE)
            await group.until_settled()
            outage.on = stop.is_armed = True
            stuck, garbage = list[LogPosition](), list[LogPosition]()
            for number in range(40):
                stuck += group.publish(append_intent(f"s-{number}", STUCK))
                if number % 4 == 0:
                    garbage.append(log.append(STUCK.encode(), b"garbage"))
            await asyncio.sleep(1.0)
            assert {table for table, _ in group.assignment("a").behind} == {STUCK}
            outage.on = False
            await stop.reached.wait()
            assert (log.remembered(0) or 0) <= min(log.undecided()).offset
            generation = log.group.generation
            log.rebalance()
            await group.until(lambda: log.group.generation > generation)
            stop.go_on.set()
            is_silent = False
            await all_decided_once(group, stuck, STUCK, 40)
            assert group.assignment("a").behind == set()
            assert {letter.offset for letter in log.letters} == {place.offset for place in garbage}
            assert group.assignment("a").buffered_bytes == 0

    run_virtually(main())


@pytest.mark.parametrize("calls", [0, 2])
def test_a_table_that_is_paused_and_resumed_while_its_own_reader_reads_gets_each_record_once(calls: int) -> None:
    async def main() -> None:
        stop, outage, log = Stop("read_again", calls), Outage(STUCK), GroupLog(1, read_max=4)
        log.hooks.after = stop
        async with coordinating("a", log=log, store=HookedStore(before=outage), table_queue_intents_max=3) as group:
            await group.create(STUCK, FREE)
            await group.until_settled()
            outage.on = stop.is_armed = True
            stuck = group.publish(*(append_intent(f"s-{number}", STUCK) for number in range(40)))
            await asyncio.sleep(1.0)
            outage.on = False
            await stop.reached.wait()
            for _ in range(3):
                pause(group, STUCK)
                await group.until(lambda: paused_of(group) == {STUCK})
                await group.commit(append_intent(f"free-{asyncio.get_running_loop().time()}", FREE))
                resume(group)
                await group.until(lambda: not paused_of(group))
            stop.go_on.set()
            await all_decided_once(group, stuck, STUCK, 40)
            await group.until(lambda: not group.assignment("a").behind)

    run_virtually(main())


def test_a_pause_reaches_a_reader_that_waits_for_room_in_a_full_queue() -> None:
    """The loop that it waits for ends with the pause, and its queue never has room."""

    async def main() -> None:
        outage, log = Outage(STUCK), GroupLog(1, read_max=4)
        async with coordinating("a", log=log, store=HookedStore(before=outage), table_queue_intents_max=3) as group:
            await group.create(STUCK, FREE)
            await group.until_settled()
            outage.on = True
            stuck = group.publish(*(append_intent(f"s-{number}", STUCK) for number in range(40)))
            await asyncio.sleep(1.0)
            pause(group, STUCK)
            await group.until(lambda: paused_of(group) == {STUCK})
            await group.until(lambda: not group.assignment("a").behind)
            assert log.remembered(0) == stuck[0].offset
            outage.on = False
            resume(group)
            await all_decided_once(group, stuck, STUCK, 40)

    run_virtually(main())


@pytest.mark.parametrize("operation", ["park", "read_parked", "unpark", "lifts", "lifted"])
@pytest.mark.parametrize("moment", ["revoked", "paused and resumed", "paused, revoked, resumed"])
def test_a_table_that_is_revoked_or_paused_in_the_middle_of_parking_decides_each_record_once(
    operation: str, moment: str
) -> None:
    async def main() -> None:
        stop, log, store = Stop(operation), GroupLog(1, retention_s=WEEK_S), HookedStore()
        damage = Damage(store)
        log.hooks.before = stop
        async with coordinating("a", log=log, store=store) as group:
            await quarantined(group, damage)
            stop.is_armed = operation == "park"
            stuck = group.publish(*(append_intent(f"stuck-{number}", STUCK) for number in range(30)))
            if operation == "park":
                await asyncio.gather(stop.reached.wait(), group.commit(append_intent("others", FREE)))
            else:
                await until_passed(group, stuck[-1].offset)
                stuck += group.publish(*(append_intent(f"more-{number}", STUCK) for number in range(5)))
                stop.is_armed = True
                damage.mend()
                log.group.parked.lift(STUCK)
                await stop.reached.wait()
            if moment.startswith("paused"):
                pause(group, STUCK)
                await group.until(lambda: paused_of(group) == {STUCK})
            if "revoked" in moment:
                generation = log.group.generation
                log.rebalance()
                await group.until(lambda: log.group.generation > generation)
            if moment.startswith("paused"):
                resume(group)
                await group.until(lambda: not paused_of(group))
            stop.go_on.set()
            if operation == "park":
                damage.mend()
                await group.until(lambda: bool(log.group.parked.tables) or not set(stuck) & set(log.undecided()))
                log.group.parked.lift(STUCK)
            await group.decided(stuck)
            await group.until(lambda: not log.group.parked.tables)
            await all_decided_once(group, stuck, STUCK, len(stuck))

    run_virtually(main())


def test_a_table_that_is_resumed_when_part_of_its_records_is_parked_gets_the_others_from_the_log() -> None:
    """Its first loop had all of them. The new one has none, and goes on where the parked records end."""

    async def main() -> None:
        log, store, asked = GroupLog(1, retention_s=WEEK_S, read_max=4), HookedStore(), Counter[str]()
        damage = Damage(store)

        async def fail(operation: str, reader: str) -> None:
            asked[operation] += 1
            if operation == "park" and asked["park"] > 3:
                raise Unavailable("log-unavailable", "the topic is full")

        async with coordinating("a", log=log, store=store) as group:
            await quarantined(group, damage)
            log.hooks.before = fail
            stuck = group.publish(*(append_intent(f"stuck-{number}", STUCK) for number in range(30)))
            await until_passed(group, stuck[0].offset)
            pause(group, STUCK)
            await group.until(lambda: paused_of(group) == {STUCK})
            damage.mend()
            resume(group)
            await all_decided_once(group, stuck, STUCK, 30)
            await group.until(lambda: not log.group.parked.tables)

    run_virtually(main())


@pytest.mark.parametrize("room_bytes", [500, 64_000_000])
def test_records_that_a_reader_was_reading_when_their_table_was_parked_come_from_the_parked_ones(
    room_bytes: int,
) -> None:
    """Those over the limit were rejected in the meantime, so the reader must not hand them over."""

    async def main() -> None:
        stop, outage, log = Stop("read_again"), Outage(STUCK), GroupLog(1, retention_s=WEEK_S, read_max=8)
        log.hooks.after = stop
        async with coordinating(
            "a", log=log, store=HookedStore(before=outage), table_queue_intents_max=3, parked_bytes_max=room_bytes
        ) as group:
            await group.create(STUCK, FREE)
            await group.until_settled()
            outage.on = stop.is_armed = True
            stuck = group.publish(*(append_intent(f"s-{number}", STUCK) for number in range(40)))
            await asyncio.sleep(1.0)
            outage.on = False
            await stop.reached.wait()
            outage.on = True
            stuck += group.publish(append_intent("last", STUCK))
            await until_passed(group, stuck[-1].offset)
            stop.go_on.set()
            await asyncio.sleep(60.0)
            outage.on = False
            verdicts = await group.decided(stuck)
            await group.until(lambda: not log.group.parked.tables)
            await group.until_settled()
            kinds = {(verdict.kind, verdict.code) for verdict in verdicts}
            rejected = {(VerdictKind.REJECTED, "table-parked")} if room_bytes < 10_000 else set()
            assert kinds == {(VerdictKind.COMMITTED, None)} | rejected
            assert len(await group.files(STUCK)) == sum(verdict.kind is VerdictKind.COMMITTED for verdict in verdicts)
            group.check_order(STUCK)

    run_virtually(main())


def test_a_lift_that_the_log_does_not_confirm_restarts_its_table_and_is_confirmed_later() -> None:
    async def main() -> None:
        log, store, asked = GroupLog(1, retention_s=WEEK_S), HookedStore(), Counter[str]()
        damage = Damage(store)

        async def fail(operation: str, reader: str) -> None:
            asked[operation] += 1
            if operation == "lifted" and asked["lifted"] == 1:
                raise Unavailable("log-unavailable", "not now")

        log.hooks.before = fail
        async with coordinating("a", log=log, store=store) as group:
            await quarantined(group, damage)
            stuck = group.publish(*(append_intent(f"stuck-{number}", STUCK) for number in range(5)))
            await group.until(lambda: bool(log.group.parked.tables))
            damage.mend()
            log.group.parked.lift(STUCK)
            await all_decided_once(group, stuck, STUCK, 5)
            await group.until(lambda: not log.group.parked.lifts)
            assert asked["lifted"] == 2

    run_virtually(main())


def test_pauses_name_the_tables_that_change_and_no_others() -> None:
    pauses = Pauses()
    phases = {STUCK: Phase.IDLE, FREE: Phase.QUARANTINED}
    assert pauses.take([Pause(STUCK, 1)], phases.items()) == [STUCK]
    assert not pauses.take([Pause(STUCK, 2, "for another reason")], phases.items()), "it is paused already"
    phases[STUCK] = Phase.PAUSED
    assert pauses.take([Pause(ALL_TABLES, 1)], phases.items()) == [FREE]
    phases[FREE] = Phase.PAUSED
    assert pauses.take([Pause(STUCK, 1)], phases.items()) == [FREE]
    phases[FREE] = Phase.COLD
    assert pauses.take([], phases.items()) == [STUCK]
    assert pauses.why(STUCK) is None
