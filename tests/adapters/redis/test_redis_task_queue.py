"""Workers share one queue over Redis: what is in it, who has it, and what becomes of tasks that no one ends."""

from __future__ import annotations

import asyncio

import pytest

from rootline.ports.task_queue import Ending, Offer, Task, TaskKind
from rootline.schemas.identifiers import TableName, Version
from tests.adapters.redis.redis_world import Peer, redis_world
from tests.services.valkey_service import ValkeyService

pytestmark = pytest.mark.services


def task_of(table: str = "demo.flights", version: int = 3, kind: TaskKind = TaskKind.ROOT) -> Task:
    return Task(kind, TableName(table), Version(version))


async def taken(peer: Peer) -> Task:
    """Some task; waits for it as long as the test may run."""
    while (task := await peer.queue.take(wait_s=1.0)) is None:
        pass
    return task


async def test_a_task_of_one_worker_is_taken_by_another_once(valkey_service: ValkeyService) -> None:
    async with redis_world(valkey_service) as world:
        one, other = world.peer(), world.peer()
        assert await one.queue.offer(task_of()) is Offer.QUEUED
        assert await other.queue.offer(task_of(version=4)) is Offer.ALREADY_THERE
        assert await other.queue.offer(task_of(kind=TaskKind.HISTORY)) is Offer.QUEUED
        assert (await one.queue.waiting())[TaskKind.ROOT] == 1
        assert await other.queue.take(wait_s=0) == task_of()
        assert (await one.queue.waiting())[TaskKind.ROOT] == 0
        assert await one.queue.take(wait_s=0) == task_of(kind=TaskKind.HISTORY)
        assert await one.queue.take(wait_s=0) is None
        assert await one.queue.offer(task_of(version=4)) is Offer.ALREADY_THERE, "in hand"


async def test_a_version_that_was_looked_at_is_done_for_all_workers_and_the_next_is_not(
    valkey_service: ValkeyService,
) -> None:
    async with redis_world(valkey_service) as world:
        one, other = world.peer(), world.peer()
        await one.queue.offer(task_of())
        await other.queue.finish(await taken(other), Ending.DONE)
        assert await one.queue.offer(task_of()) is Offer.DONE
        assert await one.queue.offer(task_of(version=4)) is Offer.QUEUED


async def test_what_failed_can_be_offered_again_and_so_can_a_look_at_history(valkey_service: ValkeyService) -> None:
    async with redis_world(valkey_service) as world:
        one = world.peer()
        await one.queue.offer(task_of())
        await one.queue.finish(await taken(one), Ending.FAILED)
        assert await one.queue.offer(task_of()) is Offer.QUEUED
        await one.queue.finish(await taken(one), Ending.DONE)
        for _ in range(2):
            assert await one.queue.offer(task_of(kind=TaskKind.HISTORY)) is Offer.QUEUED
            await one.queue.finish(await taken(one), Ending.DONE)


async def test_what_failed_after_a_look_at_the_root_makes_that_look_due_again(valkey_service: ValkeyService) -> None:
    async with redis_world(valkey_service) as world:
        one = world.peer()
        await one.queue.offer(task_of())
        await one.queue.finish(await taken(one), Ending.DONE)
        for ending, offer in ((Ending.DONE, Offer.DONE), (Ending.FAILED, Offer.QUEUED)):
            await one.queue.offer(task_of(kind=TaskKind.ROWS))
            await one.queue.finish(await taken(one), ending)
            assert await one.queue.offer(task_of()) is offer


async def test_what_a_stopping_worker_cuts_off_another_takes_at_once(valkey_service: ValkeyService) -> None:
    async with redis_world(valkey_service) as world:
        one, other = world.peer(), world.peer()
        await one.queue.offer(task_of())
        await one.queue.finish(await taken(one), Ending.CUT_OFF)
        assert await other.queue.take(wait_s=0) == task_of()


async def test_the_queue_is_bounded(valkey_service: ValkeyService) -> None:
    async with redis_world(valkey_service) as world:
        one = world.peer(tasks_max=2)
        assert [await one.queue.offer(task_of(f"demo.t{number}")) for number in range(3)] == [
            Offer.QUEUED,
            Offer.QUEUED,
            Offer.FULL,
        ]
        await one.queue.finish(await taken(one), Ending.DONE)
        assert await one.queue.offer(task_of("demo.t2")) is Offer.QUEUED


async def test_a_task_of_a_worker_that_fell_silent_is_claimed_and_one_that_is_renewed_is_not(
    valkey_service: ValkeyService,
) -> None:
    async with redis_world(valkey_service) as world:
        dead, alive, other = world.peer(), world.peer(), world.peer()
        await alive.queue.offer(task_of("demo.held"))
        held = await taken(alive)
        await alive.queue.offer(task_of("demo.lost"))
        await taken(dead)
        assert await other.queue.take(wait_s=0) is None
        await other.all_fell_silent()
        await alive.queue.renew()
        assert await taken(other) == task_of("demo.lost")
        assert await other.queue.take(wait_s=0) is None
        assert other.count("tasks", "claimed") == 1
        assert await alive.queue.offer(held) is Offer.ALREADY_THERE


async def test_a_worker_that_comes_back_too_late_neither_renews_nor_ends_what_is_anothers_now(
    valkey_service: ValkeyService,
) -> None:
    async with redis_world(valkey_service) as world:
        slow, other = world.peer(), world.peer()
        await slow.queue.offer(task_of())
        task = await taken(slow)
        await other.all_fell_silent()
        assert await taken(other) == task
        await slow.queue.renew()
        await slow.queue.finish(task, Ending.DONE)
        assert await slow.queue.offer(task) is Offer.ALREADY_THERE
        await other.queue.finish(task, Ending.FAILED)
        assert await slow.queue.offer(task) is Offer.QUEUED


async def test_a_task_that_kills_every_worker_is_dead_and_is_tried_again_when_an_operator_says_so(
    valkey_service: ValkeyService,
) -> None:
    async with redis_world(valkey_service, attempts_max=2) as world:
        watcher, operator = world.peer(), world.peer()
        await watcher.queue.offer(task_of())
        for _ in range(2):
            await taken(world.peer())  # and nothing more is heard of it
            await operator.all_fell_silent()
        assert await watcher.queue.take(wait_s=0) is None
        [dead] = await operator.queue.listed()
        assert (dead.task, dead.attempts) == (task_of(), 2)
        assert watcher.count("tasks", "dead") == 1
        assert await watcher.queue.offer(task_of(version=9)) is Offer.GIVEN_UP
        await operator.queue.waiting()
        assert operator.count("dead") == 1
        assert await operator.queue.retry(dead) is Offer.QUEUED
        assert await operator.queue.listed() == []
        assert await taken(watcher) == task_of()


async def test_a_dead_task_that_is_dropped_or_dead_long_enough_is_offered_again(valkey_service: ValkeyService) -> None:
    async with redis_world(valkey_service, dead_task_s=3600) as world:
        one, patient = world.peer(), world.peer(dead_task_s=0)
        for _ in range(2):
            await one.raw.hset(one.keys.dead, "root demo.flights", "3 5 1700000000000")
            assert len(await one.queue.listed()) == 1
            assert await patient.queue.offer(task_of()) in (Offer.QUEUED, Offer.ALREADY_THERE)
            assert await one.queue.listed() == []
        now_s, _ = await one.raw.time()
        await one.raw.hset(one.keys.dead, "root demo.flights", f"3 5 {now_s}000")
        assert await one.queue.offer(task_of()) is Offer.GIVEN_UP
        assert await one.queue.drop(TaskKind.ROOT, TableName("demo.flights"))
        assert not await one.queue.drop(TaskKind.ROOT, TableName("demo.flights"))
        assert await one.queue.offer(task_of()) is Offer.ALREADY_THERE


async def test_one_task_is_in_one_hand_when_many_workers_ask_at_once(valkey_service: ValkeyService) -> None:
    async with redis_world(valkey_service) as world:
        peers = [world.peer() for _ in range(8)]
        tasks = {task_of(f"demo.t{number}") for number in range(20)}
        for task in tasks:
            await asyncio.gather(*(peer.queue.offer(task) for peer in peers))
        found: list[Task] = []

        async def work(peer: Peer) -> None:
            while (task := await peer.queue.take(wait_s=0)) is not None:
                found.append(task)
                await peer.queue.finish(task)

        await asyncio.gather(*map(work, peers))
        assert len(found) == 20
        assert set(found) == tasks
