"""A table that cannot go on leaves its partition: the offset passes its records, and they are decided later, once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from rootline.coordinator.protocol.machine_state import Phase
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import LogPosition, ObjectKey, TableName, Version
from rootline.schemas.intent import DataFile
from rootline.schemas.intent_rules import IntentLimits
from rootline.schemas.object_keys import root_key
from rootline.schemas.verdict import VerdictKind
from rootline.testing.virtual_loop import run_virtually
from tests.coordinator.group_service import Group, coordinating
from tests.coordinator.hooked_ports import HookedStore
from tests.coordinator.running_service import append_intent
from tests.coordinator.test_consumer_loop import Outage
from tests.support.group_log import GroupLog

STUCK, FREE = TableName("q.q"), TableName("t.t")
NARROW = IntentLimits(max_files=2)
WEEK_S = 7 * 86_400.0


def virtually(work: Coroutine[Any, Any, None]) -> None:
    run_virtually(work)


class Damage:
    """The newest root of a table, cut off and made whole again."""

    def __init__(self, store: HookedStore, table: TableName = STUCK, version: int = 0) -> None:
        self.store, self.key = store, ObjectKey(root_key(table, Version(version)))
        self.whole = b""

    async def do(self) -> None:
        found = await self.store.inner.get(self.key)
        assert found is not None
        self.whole = found.body
        self.store.inner.place(self.key, self.whole[:-3])  # type: ignore[attr-defined]

    def mend(self) -> None:
        self.store.inner.place(self.key, self.whole)  # type: ignore[attr-defined]


class Unreachable:
    """A hook that fails every call while `on`."""

    def __init__(self) -> None:
        self.on = False

    async def __call__(self, operation: str, key: str) -> None:
        await asyncio.sleep(0.001)
        if self.on:
            raise Unavailable("store-unavailable", "503 Slow Down")


async def quarantined(group: Group, damage: Damage) -> None:
    """Both tables exist, the coordinator `a` runs, and the first one is corrupt."""
    await group.create(STUCK, FREE)
    await group.until_settled()
    await group.stop("a")
    await damage.do()
    group.start("a")


async def until_passed(group: Group, offset: int) -> None:
    """Others commit until the group's offset has passed `offset`."""
    number = 0
    while (group.log.remembered(0) or 0) <= offset:
        number += 1
        assert number < 200
        await group.commit(append_intent(f"go-on-{number}-{offset}", FREE))
        await asyncio.sleep(60.0)


def test_after_retention_a_quarantined_table_stops_no_other_and_its_records_are_decided_once_it_is_lifted() -> None:
    async def main() -> None:
        log, store = GroupLog(1, retention_s=WEEK_S), HookedStore()
        damage = Damage(store)
        async with coordinating("a", log=log, store=store) as group:
            await quarantined(group, damage)
            stuck = group.publish(*(append_intent(f"stuck-{number}", STUCK) for number in range(3)))
            await group.commit(*(append_intent(f"free-{number}", FREE) for number in range(20)))
            await until_passed(group, stuck[-1].offset)
            later = group.publish(append_intent("later", STUCK))
            await until_passed(group, later[-1].offset)
            assert group.services["a"].obstacle_of(STUCK).startswith("the table is quarantined: ")
            log.truncate_before(0, log.remembered(0) or 0)
            await group.stop("a")
            group.start("b")
            await group.commit(append_intent("after", FREE))
            last = group.publish(append_intent("last", STUCK))
            await group.until(lambda: group.services["b"].tables()[STUCK][0] is Phase.QUARANTINED)
            damage.mend()
            log.group.parked.lift(STUCK)
            verdicts = await group.decided([*stuck, *later, *last])
            assert {verdict.kind for verdict in verdicts} == {VerdictKind.COMMITTED}
            assert len(await group.files(STUCK)) == 5
            await group.until(lambda: not log.group.parked.tables and not log.group.parked.lifts)
            await group.commit(append_intent("and on", STUCK))
            await group.until_settled()
            group.check_order(STUCK)
            assert group.assignment("b").behind == set()

    virtually(main())


STEPS = [
    ("before", "park"),  # nothing is stored
    ("after", "park"),  # stored and named, and the offset has not passed
    ("before", "decided"),
    ("after", "decided"),  # the offset has passed
    ("before", "read_parked"),
    ("before", "verdicts"),  # committed and not told
    ("after", "verdicts"),
    ("before", "unpark"),  # all decided and told
    ("after", "unpark"),
    ("before", "lifted"),
]


@pytest.mark.parametrize(("moment", "operation"), STEPS)
@pytest.mark.parametrize("is_late", [False, True])
def test_a_coordinator_killed_between_two_steps_of_parking_loses_and_doubles_nothing(
    moment: str, operation: str, is_late: bool
) -> None:
    """`is_late`: after the lift; then some of the steps may not come any more."""

    async def main() -> None:
        log, store = GroupLog(1, retention_s=WEEK_S), HookedStore()
        damage, reached, armed = Damage(store), asyncio.Event(), asyncio.Event()

        async def hook(found: str, reader: str) -> None:
            if found == operation and reader.startswith("a.") and armed.is_set() and not reached.is_set():
                reached.set()
                await asyncio.Future()

        async def killing() -> None:
            await reached.wait()
            await group.crash("a")
            group.start("b")

        async with coordinating("a", log=log, store=store) as group:
            await quarantined(group, damage)
            setattr(log.hooks, moment, hook)
            killer = asyncio.ensure_future(killing())
            if not is_late:
                armed.set()
            stuck = group.publish(*(append_intent(f"stuck-{number}", STUCK) for number in range(30)))
            await until_passed(group, stuck[-1].offset)
            log.truncate_before(0, log.remembered(0) or 0)
            stuck += group.publish(*(append_intent(f"more-{number}", STUCK) for number in range(5)))
            armed.set()
            damage.mend()
            log.group.parked.lift(STUCK)
            verdicts = await group.decided(stuck)
            assert {verdict.kind for verdict in verdicts} == {VerdictKind.COMMITTED}
            await group.until(lambda: not log.group.parked.tables)
            await group.commit(append_intent("and on", STUCK), append_intent("and on", FREE))
            await group.until_settled()
            assert len(await group.files(STUCK)) == 36
            group.check_order(STUCK)
            assert is_late or reached.is_set()
            killer.cancel()

    virtually(main())


def test_an_outage_of_the_store_parks_no_table() -> None:
    async def main() -> None:
        outage, log = Unreachable(), GroupLog(1, retention_s=WEEK_S)
        store = HookedStore(before=outage)
        async with coordinating("a", log=log, store=store, poll_wait_s=2.0) as group:
            await group.create(STUCK, FREE)
            await group.until_settled()
            outage.on = True
            waiting = group.publish(append_intent("one", STUCK), append_intent("two", FREE))
            await asyncio.sleep(2_000.0)
            assert not log.group.parked.history
            outage.on = False
            await group.decided(waiting)
            await group.until_settled()

    virtually(main())


def test_past_half_of_the_logs_retention_what_is_undecided_is_parked_even_in_an_outage() -> None:
    async def main() -> None:
        outage, log = Unreachable(), GroupLog(1, retention_s=3_600.0)
        store = HookedStore(before=outage)
        async with coordinating("a", log=log, store=store, poll_wait_s=2.0) as group:
            await group.create(STUCK, FREE)
            await group.until_settled()
            outage.on = True
            waiting = group.publish(append_intent("one", STUCK), append_intent("two", FREE))
            await asyncio.sleep(1_700.0)
            assert not log.group.parked.history
            await group.until(lambda: len(log.group.parked.tables) == 2)
            await group.until(lambda: log.remembered(0) == waiting[-1].offset + 1)
            log.truncate_before(0, log.remembered(0) or 0)
            outage.on = False
            assert {verdict.kind for verdict in await group.decided(waiting)} == {VerdictKind.COMMITTED}
            await group.until(lambda: not log.group.parked.tables)
            await group.commit(append_intent("three", STUCK))

    virtually(main())


def test_a_table_whose_head_cannot_be_listed_is_parked_and_goes_on_by_itself_when_it_can() -> None:
    async def main() -> None:
        outage, log = Outage(STUCK), GroupLog(1, retention_s=WEEK_S, read_max=16)
        store = HookedStore(before=outage)
        async with coordinating("a", log=log, store=store, table_queue_intents_max=8) as group:
            await group.create(STUCK, FREE)
            await group.until_settled()
            await group.stop("a")
            outage.on = True
            group.start("a")
            stuck = group.publish(*(append_intent(f"stuck-{number}", STUCK) for number in range(100)))
            await until_passed(group, stuck[-1].offset)
            stuck += group.publish(*(append_intent(f"later-{number}", STUCK) for number in range(100)))
            await until_passed(group, stuck[-1].offset)
            outage.on = False
            await group.decided(stuck)
            await group.until(lambda: not log.group.parked.tables)
            assert len(await group.files(STUCK)) == 200
            group.check_order(STUCK)
            await group.until(lambda: not group.assignment("a").behind)

    virtually(main())


def test_over_its_limit_a_parked_tables_later_records_are_rejected_for_good() -> None:
    async def main() -> None:
        log, store = GroupLog(1, retention_s=WEEK_S), HookedStore()
        damage = Damage(store)
        async with coordinating("a", log=log, store=store, parked_bytes_max=3_000) as group:
            await quarantined(group, damage)
            stuck = group.publish(append_intent("stuck", STUCK))
            await until_passed(group, stuck[-1].offset)
            await group.stop("a")
            group.start("b")
            later = group.publish(*(append_intent(f"later-{number}", STUCK) for number in range(40)))
            await group.until(lambda: any(log.is_settled(place) for place in later))
            await until_passed(group, later[-1].offset)
            told = [log.verdicts.get(place) for place in later]
            kept = [verdict for verdict in told if verdict is None]
            assert 0 < len(kept) < 40
            assert told[: len(kept)] == kept
            assert {verdict.code for verdict in told if verdict is not None} == {"table-parked"}
            await group.crash("b")
            group.start("c")
            damage.mend()
            log.group.parked.lift(STUCK)
            await group.decided([*stuck, *later])
            await group.until(lambda: not log.group.parked.tables)
            assert len(await group.files(STUCK)) == 1 + len(kept)
            await group.commit(append_intent("and on", STUCK))

    virtually(main())


def test_a_parked_record_that_is_missing_stops_its_table_alone_until_an_operator_goes_on_without_it() -> None:
    async def main() -> None:
        log, store = GroupLog(1, retention_s=WEEK_S), HookedStore()
        damage = Damage(store)
        async with coordinating("a", log=log, store=store) as group:
            await quarantined(group, damage)
            stuck = group.publish(*(append_intent(f"stuck-{number}", STUCK) for number in range(3)))
            await until_passed(group, stuck[-1].offset)
            log.truncate_before(0, log.remembered(0) or 0)
            log.group.parked.lose(STUCK, stuck[1].offset)
            await group.stop("a")
            damage.mend()
            group.start("b")
            later = group.publish(append_intent("later", STUCK))
            await until_passed(group, later[0].offset)
            assert not any(log.is_settled(place) for place in stuck)
            [(held, _)] = log.group.parked.tables.values()
            assert "parked records are gone" in held.why
            log.group.parked.lift(STUCK, without_missing=True)
            await group.decided([stuck[0], stuck[2], *later])
            assert stuck[1] not in log.verdicts
            await group.until(lambda: not log.group.parked.tables)

    virtually(main())


async def parked_beyond_limits(group: Group) -> LogPosition:
    """One record of the stuck table is parked, which coordinators with narrower limits cannot read; none runs."""
    damage = Damage(group.store)
    await quarantined(group, damage)
    files = tuple(DataFile(location=f"data/{n}.parquet", record_count=1, file_size_in_bytes=1) for n in range(3))
    [stuck] = group.publish(append_intent("stuck", STUCK).model_copy(update={"add_data_files": files}))
    await until_passed(group, stuck.offset)
    await group.stop("a")
    damage.mend()
    return stuck


def test_a_parked_record_that_a_later_coordinator_cannot_read_gets_a_verdict_all_the_same() -> None:
    async def main() -> None:
        log = GroupLog(1, retention_s=WEEK_S)
        async with coordinating("a", log=log) as group:
            stuck = await parked_beyond_limits(group)
            group.start("b", limits=NARROW)
            [verdict] = await group.decided([stuck])
            assert (verdict.kind, verdict.code) == (VerdictKind.REJECTED, "intent-too-large")
            await group.until(lambda: not log.group.parked.tables)

    virtually(main())


def test_a_table_stays_parked_until_what_was_rejected_of_it_has_been_told() -> None:
    async def main() -> None:
        log, silent = GroupLog(1, retention_s=WEEK_S), False

        async def fail(operation: str, reader: str) -> None:
            if silent and operation == "verdicts":
                raise Unavailable("log-unavailable", "the topic of verdicts does not answer")

        log.hooks.before = fail
        async with coordinating("a", log=log) as group:
            stuck = await parked_beyond_limits(group)
            silent = True
            group.start("b", limits=NARROW)
            await asyncio.sleep(600.0)
            assert [held.table for held, _ in log.group.parked.tables.values()] == [STUCK]
            await group.crash("b")
            silent = False
            group.start("c", limits=NARROW)
            [verdict] = await group.decided([stuck])
            assert verdict.code == "intent-too-large"
            await group.until(lambda: not log.group.parked.tables)

    virtually(main())


def test_a_table_with_parked_records_of_two_partitions_decides_each_in_its_order() -> None:
    async def main() -> None:
        log, store = GroupLog(1, retention_s=WEEK_S), HookedStore()
        damage = Damage(store)
        async with coordinating("a", log=log, store=store) as group:
            await quarantined(group, damage)
            stuck = group.publish(*(append_intent(f"old-{number}", STUCK) for number in range(3)), partition=0)
            log.add_partition()
            stuck += group.publish(*(append_intent(f"new-{number}", STUCK) for number in range(3)), partition=1)
            stuck += group.publish(append_intent("late", STUCK), partition=0)
            await group.until(lambda: any(place[1] == 1 for place, _ in log.group.parked.tables), patience_s=60.0)
            number = 0
            while min(log.remembered(0) or 0, (log.remembered(1) or 0) + stuck[-1].offset) <= stuck[-1].offset:
                number += 1
                assert number < 100
                await group.commit(append_intent(f"free-{number}", FREE))
                await asyncio.sleep(60.0)
            group.start("b")
            await group.until(lambda: all(log.owners().values()) and len(set(log.owners().values())) == 2)
            damage.mend()
            log.group.parked.lift(STUCK)
            assert {verdict.kind for verdict in await group.decided(stuck)} == {VerdictKind.COMMITTED}
            await group.until(lambda: not log.group.parked.tables)
            assert len(await group.files(STUCK)) == 7
            group.check_order(STUCK)

    virtually(main())
