"""Coordinators that share a log: partitions go from one to another, and every record is decided once all the same."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import pytest

from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import TableName
from rootline.schemas.verdict import VerdictKind
from rootline.testing.virtual_loop import run_virtually
from tests.coordinator.group_service import Group, coordinating
from tests.coordinator.hooked_ports import HookedStore, taking
from tests.coordinator.running_service import TABLE, append_intent
from tests.support.group_log import GroupLog

TABLES = [TableName(f"t.t{number}") for number in range(8)]


def virtually(work: Coroutine[Any, Any, None]) -> None:
    run_virtually(work)


def moving_table(log: GroupLog, partitions: int) -> TableName:
    """A table whose records go elsewhere once there is one more partition."""
    other = GroupLog(partitions + 1)
    names = (TableName(f"moves.t{number}") for number in range(1_000))
    return next(name for name in names if log.partition_of(name.encode()) != other.partition_of(name.encode()))


async def all_live(group: Group, table: TableName, names: list[str]) -> None:
    assert await group.files(table) == sorted(f"data/{name}.parquet" for name in names)


def test_two_coordinators_share_the_tables_and_hand_them_over_when_one_leaves() -> None:
    async def main() -> None:
        log = GroupLog(4)
        async with coordinating("a", "b", log=log) as group:
            await group.create(*TABLES)
            for number in range(5):
                await group.commit(*(append_intent(f"f-{number}", table) for table in TABLES))
            assert sorted(map(len, (log.owns("a"), log.owns("b")))) == [2, 2]
            both = [set(group.services[name].tables()) for name in "ab"]
            assert all(both)
            assert not both[0] & both[1]
            began_s = asyncio.get_running_loop().time()
            await group.stop("a")
            await group.commit(*(append_intent("after", table) for table in TABLES))
            assert asyncio.get_running_loop().time() - began_s < 2.0, "nobody waits for who has left"
            await group.until_settled()
        for table in TABLES:
            group.check_order(table)
            assert len(await group.files(table)) == 6

    virtually(main())


@pytest.mark.parametrize("seed", range(6))
def test_rebalances_at_any_moment_lose_nothing_and_double_nothing(seed: int) -> None:
    rng = random.Random(seed)

    async def slow(operation: str, key: str) -> None:
        await asyncio.sleep(rng.expovariate(1 / 0.004))
        if rng.random() < 0.02 and operation != "released":
            raise Unavailable("log-unavailable", "x")

    async def disturb(log: GroupLog) -> None:
        while True:
            await asyncio.sleep(rng.expovariate(1 / 0.2))
            log.rebalance()

    async def main() -> None:
        log = GroupLog(3, before=slow, after=slow, read_max=9, rebalance_timeout_s=1.0)
        store = HookedStore(before=slow)
        names: list[str] = []
        async with coordinating(
            "a", "b", log=log, store=store, table_queue_intents_max=5, offsets_commit_interval_s=0.1
        ) as group:
            await group.create(*TABLES)
            disturbing = asyncio.ensure_future(disturb(log))
            for number in range(40):
                names.append(f"f-{number}")
                group.publish(*(append_intent(names[-1], table) for table in TABLES))
                if number % 3 == 0:
                    log.append(rng.choice([None, TABLES[0].encode()]), b"garbage")
                await asyncio.sleep(rng.expovariate(1 / 0.1))
            disturbing.cancel()
            await group.until_settled()
        for table in TABLES:
            group.check_order(table)
            await all_live(group, table, names)
        assert {verdict.kind for verdict in log.verdicts.values() if verdict.table in TABLES[1:]} == {
            VerdictKind.COMMITTED
        }

    virtually(main())


def test_a_table_whose_records_moved_to_another_partition_is_decided_on_both() -> None:
    async def main() -> None:
        log = GroupLog(3)
        table = moving_table(log, 3)
        names = [f"f-{number}" for number in range(60)]
        async with coordinating("a", "b", log=log, store=HookedStore(after=taking(put=0.05))) as group:
            await group.create(table)
            old = group.publish(*(append_intent(name, table) for name in names[:30]))
            await asyncio.sleep(0.06)
            number = log.add_partition()
            new = group.publish(*(append_intent(name, table) for name in names[30:]))
            assert {position.partition for position in new} == {number} != {old[0].partition}
            assert {verdict.kind for verdict in await group.decided(old + new)} == {VerdictKind.COMMITTED}
            await group.until_settled()
            group.check_order(table)
            await all_live(group, table, names)
            again = group.publish(append_intent("f-3", table), append_intent("new", table))
            kinds = [verdict.kind for verdict in await group.decided(again)]
            assert kinds[1] is VerdictKind.COMMITTED
            assert kinds[0] is not VerdictKind.COMMITTED, "its file is live already"

    virtually(main())


def test_one_coordinator_with_both_partitions_of_a_table_keeps_the_order_within_each() -> None:
    async def main() -> None:
        log = GroupLog(2, read_max=5)
        names = [f"f-{number}" for number in range(100)]
        store = HookedStore(after=taking(put=0.02))
        async with coordinating("a", log=log, store=store, table_queue_intents_max=7, batch_intents_max=3) as group:
            await group.create(TABLE)
            positions = []
            for number, name in enumerate(names):
                positions += group.publish(append_intent(name), partition=number % 2)
                if number % 10 == 0:
                    await asyncio.sleep(0.01)
            await group.decided(positions)
            await group.until_settled()
            group.check_order(TABLE)
            await all_live(group, TABLE, names)

    virtually(main())


@pytest.mark.parametrize("how", ["a rebalance", "a clean stop"])
def test_what_is_in_flight_is_decided_and_remembered_before_the_partitions_go(how: str) -> None:
    async def main() -> None:
        log, store = GroupLog(1), HookedStore()
        async with coordinating("a", log=log, store=store, offsets_commit_interval_s=1e6) as group:
            await group.create(TABLE)
            store.after = taking(put=2.0)
            [flying] = group.publish(append_intent("in flight"))
            await asyncio.sleep(1.0)
            [waiting] = group.publish(append_intent("waits behind it"))
            garbage = log.append(None, b"no intent", partition=0)
            await asyncio.sleep(0.5)
            assert log.remembered(0) is None
            if how == "a rebalance":
                generation = log.group.generation
                log.rebalance()
                await group.until(lambda: log.group.generation > generation)
            else:
                await group.stop("a")
            assert not {flying, garbage} & set(log.undecided())
            assert log.remembered(0) == waiting.offset, "its own verdict is the next owner's to give"
            if how == "a clean stop":
                group.start("a")
            await group.decided([waiting])
        assert Counter(letter.offset for letter in log.letters) == {garbage.offset: 2}, "read again, hence told again"

    virtually(main())


def test_a_process_without_room_answers_a_rebalance_in_time() -> None:
    async def main() -> None:
        hanging = True

        async def hang(operation: str, key: str) -> None:
            while operation == "put" and hanging:  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(1.0)

        log, store = GroupLog(2, rebalance_timeout_s=30.0), HookedStore()
        async with coordinating("a", log=log, store=store, queue_bytes_max=10_000, request_timeout_s=1e7) as group:
            await group.create(*TABLES)
            await group.until_settled()
            store.before = hang
            positions = []
            for number in range(50):
                positions += group.publish(*(append_intent(f"f-{number}", table) for table in TABLES))
            await group.until(lambda: group.assignment("a").is_full)
            group.start("b")
            await group.until(lambda: len(log.owns("a")) == len(log.owns("b")) == 1, patience_s=29.0)
            hanging = False
            await group.decided(positions)
            await group.until_settled()

    virtually(main())


def test_what_hangs_in_the_store_is_cut_off_at_the_deadline_and_resolved_by_the_next_owner() -> None:
    async def main() -> None:
        hanging = True

        async def hang(operation: str, key: str) -> None:
            if operation == "put" and hanging and "t0" in key:
                await asyncio.sleep(1e6)

        log, store = GroupLog(1, rebalance_timeout_s=30.0), HookedStore()
        async with coordinating("a", log=log, store=store, request_timeout_s=1e7, stop_timeout_s=1.0) as group:
            await group.create(*TABLES)
            await group.until_settled()
            store.after = hang  # it lands, and the answer never comes
            held = group.publish(append_intent("one", TABLES[0]))
            free = group.publish(append_intent("one", TABLES[1]))
            await group.decided(free)
            began_s = asyncio.get_running_loop().time()
            log.rebalance()
            await asyncio.sleep(0.1)
            hanging = False
            verdicts = await group.decided(held)
            assert 20.0 < asyncio.get_running_loop().time() - began_s < 30.0, "in time not to be thrown out"
            assert (verdicts[0].kind, verdicts[0].version) == (VerdictKind.COMMITTED, 1)
            await group.until_settled()

    virtually(main())


def test_all_steps_of_letting_go_keep_to_one_deadline_even_if_the_log_hangs_as_well() -> None:
    async def main() -> None:
        hanging = False

        async def hang(operation: str, key: str) -> None:
            if hanging and operation in ("put", "decided"):
                await asyncio.sleep(1e6)

        log = GroupLog(1, before=hang, rebalance_timeout_s=6.0)
        store = HookedStore(before=hang)
        async with coordinating("a", log=log, store=store, stop_timeout_s=1.0, offsets_commit_interval_s=50.0) as group:
            await group.create(TABLE)
            await group.until_settled()
            await group.commit(append_intent("decided, and not remembered yet"))
            hanging = True
            group.publish(append_intent("one"))
            await asyncio.sleep(1.0)
            began_s = asyncio.get_running_loop().time()
            generation = log.group.generation
            log.rebalance()
            await group.until(lambda: log.group.generation > generation)
            assert log.owns("a") == [0], "it has let go, and was not thrown out"
            assert asyncio.get_running_loop().time() - began_s <= 6.0
            hanging = False
            await group.until_settled()

    virtually(main())
