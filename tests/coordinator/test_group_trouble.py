"""A group in trouble: zombies, crashes, offsets that are not taken, logs that must not be read on."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from rootline.schemas.errors import Fenced, Unavailable
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


async def all_live(group: Group, table: TableName, names: list[str]) -> None:
    assert await group.files(table) == sorted(f"data/{name}.parquet" for name in names)


def test_a_zombie_goes_on_with_what_it_has_and_harms_nothing() -> None:
    async def main() -> None:
        log, store = GroupLog(2, session_timeout_s=10.0), HookedStore()
        async with coordinating("a", log=log, store=store) as group:
            await group.create(*TABLES)
            await group.until_settled()
            store.after = taking(put=1.0)
            names = [f"f-{number}" for number in range(30)]
            positions = []
            for name in names[:15]:
                positions += group.publish(*(append_intent(name, table) for table in TABLES))
            await asyncio.sleep(0.3)
            log.pause("a")
            group.start("b")
            await asyncio.sleep(10.0)
            assert log.owns("b") == [0, 1]
            for name in names[15:]:
                positions += group.publish(*(append_intent(name, table) for table in TABLES))
            await asyncio.sleep(0.5)
            log.resume("a")
            verdicts = await group.decided(positions)
            assert {verdict.kind for verdict in verdicts} == {VerdictKind.COMMITTED}
            await group.until_settled()
            for table in TABLES:
                group.check_order(table)
                await all_live(group, table, names)
            assert len(log.owns("a")) == len(log.owns("b")) == 1, "it is a member like any other again"

    virtually(main())


def test_a_process_that_is_killed_is_followed_after_its_session() -> None:
    async def main() -> None:
        log, store = GroupLog(2, session_timeout_s=10.0), HookedStore(after=taking(put=0.05))
        async with coordinating("a", "b", log=log, store=store) as group:
            await group.create(*TABLES)
            positions = []
            for number in range(20):
                positions += group.publish(*(append_intent(f"f-{number}", table) for table in TABLES))
                await asyncio.sleep(0.01)
            await group.crash("a")
            began_s = asyncio.get_running_loop().time()
            verdicts = await group.decided(positions)
            assert asyncio.get_running_loop().time() - began_s > 5.0
            assert {verdict.kind for verdict in verdicts} == {VerdictKind.COMMITTED}
            await group.until_settled()

    virtually(main())


def test_the_group_knows_who_has_ended_in_good_order_and_who_has_not() -> None:
    async def main() -> None:
        log, store = GroupLog(1, session_timeout_s=1.0), HookedStore()
        async with coordinating(log=log, store=store, request_timeout_s=1e6, stop_timeout_s=5.0) as group:
            group.start("a")
            await group.create(TABLE)
            await group.stop("a")
            assert log.group.in_hand == set(), "a clean stop"
            group.start("a")
            await group.commit(append_intent("one"))
            await group.crash("a")
            assert log.group.in_hand == {0}, "a crash"
            group.start("a")
            await group.commit(append_intent("two"))
            store.before = taking(put=1e5)
            group.publish(append_intent("three"))
            await asyncio.sleep(1.0)
            await group.stop("a")
            assert log.group.in_hand == {0}, "a stop that was cut short"
            store.before = taking()
            group.start("a")
            await group.until_settled()
        assert log.group.in_hand == set()

    virtually(main())


def test_a_log_that_hangs_when_it_is_told_of_progress_delays_no_commit() -> None:
    async def main() -> None:
        async def hang(operation: str, reader: str) -> None:
            if operation == "decided":
                await asyncio.sleep(1e6)

        log = GroupLog(1, before=hang)
        async with coordinating("a", log=log) as group:
            await group.create(TABLE)
            began_s = asyncio.get_running_loop().time()
            for number in range(20):
                await group.commit(append_intent(f"f-{number}"))
                await asyncio.sleep(1.0)
            assert asyncio.get_running_loop().time() - began_s < 22.0
            log.hooks.before = taking()
            await group.until_settled()

    virtually(main())


def test_offsets_that_the_log_does_not_take_are_told_again_and_are_known_at_the_next_start() -> None:
    async def main() -> None:
        failing = True

        async def fail(operation: str, reader: str) -> None:
            if operation == "decided" and failing:
                raise Unavailable("log-unavailable", "the group's coordinator moves")

        log = GroupLog(1, before=fail)
        async with coordinating("a", log=log) as group:
            await group.create(TABLE)
            await group.commit(append_intent("one"))
            await asyncio.sleep(10.0)
            assert log.remembered(0) is None
            failing = False
            await group.until_settled()
            log.hooks.after, failing = fail, True  # remembered, and nobody hears of it
            log.hooks.before = taking()
            await group.commit(append_intent("two"))
            await group.until_settled()
        read: list[int] = []

        async def count(operation: str, reader: str) -> None:
            if operation == "verdicts":
                read.append(1)

        log.hooks.before, log.hooks.after = count, taking()
        async with coordinating("a", log=log, store=group.store) as group:
            await asyncio.sleep(10.0)
        assert read == [], "what was decided is not even read again"

    virtually(main())


@pytest.mark.parametrize(
    ("harm", "code"),
    [
        (lambda log: log.recreate(), "log-replaced"),
        (lambda log: log.truncate_before(0, 3), "offset-out-of-range"),
        (lambda log: log.cut_after(0, 0), "log-behind-root"),
    ],
)
def test_a_log_that_must_not_be_read_on_ends_the_service(harm: Any, code: str) -> None:
    async def main() -> None:
        log = GroupLog(1)
        async with coordinating("a", log=log) as group:
            await group.create(TABLE)
            await group.until_settled()
        group.publish(append_intent("one"), append_intent("two"), append_intent("three"))
        harm(log)
        group = Group(log, group.store, {})
        group.start("b")
        with pytest.raises(Fenced) as ended:
            await group.until(lambda: False, patience_s=100.0)
        assert ended.value.code == code
        assert log.owners() == {0: None}, "it does not sit on what it cannot read"

    virtually(main())


def test_more_coordinators_than_partitions_are_ready_and_wait_for_their_turn() -> None:
    async def main() -> None:
        log = GroupLog(1)
        async with coordinating("a", "b", "c", log=log) as group:
            await group.create(TABLE)
            await group.until(lambda: all(service.readiness().ready for service in group.services.values()))
            owner = next(name for name in "abc" if log.owns(name))
            await group.crash(owner)
            await group.commit(append_intent("one"))
            await group.until_settled()

    virtually(main())


def test_metrics_are_measured_at_any_moment_of_a_rebalance() -> None:
    async def main() -> None:
        log = GroupLog(4)
        async with coordinating("a", "b", log=log) as group:
            await group.create(*TABLES)
            turns = 0

            async def measure(service: Any) -> None:
                nonlocal turns
                while turns < 400:
                    await service.measure()
                    turns += 1
                    await asyncio.sleep(0)

            async def answers_late(operation: str, reader: str) -> None:
                await asyncio.sleep(0.05 if operation == "lag" else 0.0)

            log.hooks.after = answers_late
            measuring = asyncio.gather(*(measure(service) for service in group.services.values()))
            for _ in range(20):
                log.rebalance()
                await asyncio.sleep(0.02)
            await measuring

    virtually(main())
