"""What becomes of hints and tasks when Redis is down, slow, lies, loses answers, or loses what it held."""

from __future__ import annotations

import asyncio

import pytest

from rootline.adapters.memory import MemoryTaskQueue
from rootline.adapters.open_redis import QueueOrOwn
from rootline.adapters.redis_calls import FAILURES_MAX
from rootline.ports.task_queue import Ending, Offer, Task, TaskKind
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import TableName, Version
from tests.adapters.redis.redis_world import Line, Peer, faulty_line, redis_world
from tests.services.valkey_service import ValkeyService, running_valkey

pytestmark = pytest.mark.services
FLIGHTS = TableName("demo.flights")
TASK = Task(TaskKind.ROOT, FLIGHTS, Version(3))


def either(peer: Peer) -> QueueOrOwn:
    """The queue as a worker has it."""
    return QueueOrOwn(peer.queue, MemoryTaskQueue())


async def fail(peer: Peer) -> None:
    """Calls until no more are sent."""
    for _ in range(FAILURES_MAX):
        with pytest.raises(Unavailable):
            await peer.queue.waiting()
    assert peer.calls.is_silent


@pytest.mark.parametrize("state", [Line.DOWN, Line.SILENT, Line.CUT, Line.GARBLED])
async def test_without_answers_there_are_no_hints_and_tasks_go_through_the_workers_own_queue(
    valkey_service: ValkeyService, state: Line
) -> None:
    async with redis_world(valkey_service) as world, faulty_line(world.url) as line:
        cut_off = world.peer(line.url, timeout_ms=200, silence_s=3600)
        line.down()
        line.state = state
        assert await cut_off.hints.newest(FLIGHTS) is None
        queue = either(cut_off)
        assert await queue.offer(TASK) is Offer.QUEUED
        task = await queue.take(wait_s=0)
        assert task == TASK
        await queue.finish(task, Ending.DONE)
        await fail(cut_off)
        sent = cut_off.count("calls", "queue", "failed")
        assert await queue.offer(TASK) is Offer.QUEUED
        assert cut_off.count("calls", "queue", "failed") == sent, "no one asks it any more"
        assert cut_off.count("calls", "queue", "skipped") > 0
        assert cut_off.count("up") == 0
        assert not cut_off.hints.are_kept
        cut_off.hints.tell(FLIGHTS, Version(4))
        assert cut_off.count("calls", "hint", "skipped") == 0, "nothing is even begun"


async def test_a_redis_that_answers_again_is_used_again(valkey_service: ValkeyService) -> None:
    async with redis_world(valkey_service) as world, faulty_line(world.url) as line:
        peer = world.peer(line.url, silence_s=0.01)
        line.down()
        await fail_without_silence(peer)
        line.state = Line.FINE
        queue = either(peer)
        while await queue.offer(TASK) is not Offer.QUEUED or peer.count("up") == 0:
            task = await queue.take(wait_s=0)
            assert task is not None
            await queue.finish(task, Ending.FAILED)
        assert await world.peer().queue.take(wait_s=0) == TASK


async def fail_without_silence(peer: Peer) -> None:
    for _ in range(FAILURES_MAX):
        with pytest.raises(Unavailable):
            await peer.queue.waiting()


async def test_telling_a_hint_never_waits_for_a_redis_that_hangs(valkey_service: ValkeyService) -> None:
    async with redis_world(valkey_service) as world, faulty_line(world.url) as line:
        peer = world.peer(line.url, timeout_ms=200, silence_s=3600)
        line.state = Line.SILENT
        for version in range(1_000):
            peer.hints.tell(FLIGHTS, Version(version))
        await peer.hints.drained()
        assert peer.count("calls", "hint", "failed") == 1, "only the latest of a table is sent, once"


async def test_an_answer_to_a_question_that_was_given_up_is_no_answer_to_the_next(
    valkey_service: ValkeyService,
) -> None:
    async with redis_world(valkey_service) as world:
        peer = world.peer()
        peer.hints.tell(FLIGHTS, Version(12))
        await peer.hints.drained()
        for turns in range(60):
            asking = asyncio.create_task(peer.queue.waiting())
            for _ in range(turns % 20):
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait({asking})
            assert await peer.hints.newest(FLIGHTS) == 12


async def test_many_questions_at_once_are_no_failure(valkey_service: ValkeyService) -> None:
    async with redis_world(valkey_service) as world:
        peer = world.peer()
        await asyncio.gather(*(peer.hints.newest(TableName(f"demo.t{number}")) for number in range(300)))
        assert peer.count("calls", "hint", "answered") == 300


async def test_an_offer_whose_answer_is_lost_is_done_twice_at_worst(valkey_service: ValkeyService) -> None:
    async with redis_world(valkey_service) as world, faulty_line(world.url) as line:
        peer, other = world.peer(line.url), world.peer()
        assert await reached(peer)
        queue = either(peer)
        line.state = Line.CUT
        assert await queue.offer(TASK) is Offer.QUEUED
        line.state = Line.FINE
        assert await other.queue.take(wait_s=0) == TASK
        task = await queue.take(wait_s=0)
        assert task == TASK
        await queue.finish(task, Ending.DONE)
        await other.queue.finish(TASK, Ending.DONE)
        assert await queue.offer(TASK) is Offer.DONE


async def test_a_task_that_was_handed_out_in_a_lost_answer_is_claimed(valkey_service: ValkeyService) -> None:
    async with redis_world(valkey_service) as world, faulty_line(world.url) as line:
        peer, other = world.peer(line.url), world.peer()
        await other.queue.offer(TASK)
        assert await reached(peer)
        line.state = Line.CUT
        with pytest.raises(Unavailable):
            await peer.queue.take(wait_s=0)
        assert await other.queue.take(wait_s=0) is None
        await other.all_fell_silent()
        assert await other.queue.take(wait_s=0) == TASK


async def test_a_task_whose_end_is_lost_is_looked_at_again_by_another(valkey_service: ValkeyService) -> None:
    async with redis_world(valkey_service) as world, faulty_line(world.url) as line:
        peer, other = world.peer(line.url), world.peer()
        await peer.queue.offer(TASK)
        assert await peer.queue.take(wait_s=0) == TASK
        line.down()
        await peer.queue.finish(TASK, Ending.DONE)
        await other.all_fell_silent()
        assert await other.queue.take(wait_s=0) == TASK


async def test_after_a_failover_that_lost_everything_the_queue_begins_again_and_leases_come_back(
    valkey_service: ValkeyService,
) -> None:
    async with redis_world(valkey_service) as world:
        working, other = world.peer(), world.peer()
        await other.queue.offer(TASK)
        assert await working.queue.take(wait_s=0) == TASK
        await other.queue.offer(Task(TaskKind.ROOT, TableName("demo.planes"), Version(1)))
        await forget_all(other)
        await working.queue.renew()
        assert await other.queue.offer(TASK) is Offer.ALREADY_THERE, "a worker has it in hand, and said so again"
        assert await other.queue.take(wait_s=0) is None, "what waited is lost"
        assert await other.queue.offer(Task(TaskKind.ROOT, TableName("demo.planes"), Version(1))) is Offer.QUEUED
        await working.queue.finish(TASK, Ending.DONE)
        assert await other.queue.offer(TASK) is Offer.DONE


async def test_a_failover_that_lost_half_leaves_no_table_that_can_never_be_queued(
    valkey_service: ValkeyService,
) -> None:
    async with redis_world(valkey_service) as world:
        one, other = world.peer(), world.peer()
        await one.queue.offer(TASK)
        await one.raw.delete(one.keys.tasks)
        assert await other.queue.offer(TASK) is Offer.QUEUED, "its entry is gone, whatever the index says"
        await one.raw.delete(one.keys.queued, one.keys.leases)
        assert await other.queue.offer(TASK) is Offer.QUEUED
        assert await one.queue.take(wait_s=0) == TASK
        assert await other.queue.take(wait_s=0) is None, "the second entry is the same task, which is in hand"
        assert other.count("tasks", "doubled") == 1


async def test_a_server_that_is_killed_and_comes_back_empty_is_used_again(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:

    with running_valkey(tmp_path_factory.mktemp("mortal-valkey")) as service:
        server = service.own()
        async with redis_world(service) as world:
            peer = world.peer(silence_s=0.01)
            queue = either(peer)
            await queue.offer(TASK)
            server.kill()
            assert await queue.offer(TASK) is Offer.QUEUED, "in the own queue"
            server.start_again()
            while not await reached(peer):
                await asyncio.to_thread(server.wait_ready)
            assert await queue.take(wait_s=0) == TASK
            assert await peer.queue.offer(TASK) is Offer.QUEUED, "nothing of before is left"


async def reached(peer: Peer) -> bool:
    try:
        await peer.queue.waiting()
    except Unavailable:
        return False
    return True


async def forget_all(peer: Peer) -> None:
    keys = [key async for key in peer.raw.scan_iter(f"{peer.keys.stem}*")]
    await peer.raw.delete(*keys)


@pytest.mark.parametrize(
    "value",
    [b"", b"-1", b"1.5", b"99999999999999999999", b"9" * 40, b"\xff\xfe", b"0x10", b"7\n", b"007", b"x" * 5_000_000],
)
async def test_a_hint_that_is_no_version_is_no_hint(valkey_service: ValkeyService, value: bytes) -> None:
    async with redis_world(valkey_service) as world:
        peer = world.peer()
        await peer.raw.set(peer.keys.head(FLIGHTS), value)
        assert await peer.hints.newest(FLIGHTS) is None


async def test_a_hint_of_another_type_is_no_hint_and_is_replaced_by_the_next_one(valkey_service: ValkeyService) -> None:
    async with redis_world(valkey_service) as world:
        peer = world.peer()
        await peer.raw.lpush(peer.keys.head(FLIGHTS), "poison")
        for _ in range(2 * FAILURES_MAX):
            assert await peer.hints.newest(FLIGHTS) is None
        assert peer.hints.are_kept, "a server that answers is not down"
        peer.hints.tell(FLIGHTS, Version(8))
        await peer.hints.drained()
        assert await world.peer().hints.newest(FLIGHTS) == 8


@pytest.mark.parametrize("key", ["tasks", "queued", "leases", "done", "dead"])
async def test_keys_of_another_type_send_every_worker_to_its_own_queue(valkey_service: ValkeyService, key: str) -> None:
    async with redis_world(valkey_service) as world:
        peer = world.peer()
        await peer.raw.set(getattr(peer.keys, key), "poison")
        queue = either(peer)
        for _ in range(2):
            assert await queue.offer(TASK) is Offer.QUEUED
            task = await queue.take(wait_s=0)
            assert task == TASK
            await queue.finish(task, Ending.FAILED)
        assert not peer.calls.is_silent


async def test_entries_that_no_worker_wrote_are_dropped_and_the_tasks_behind_them_are_taken(
    valkey_service: ValkeyService,
) -> None:
    async with redis_world(valkey_service) as world:
        peer = world.peer()
        for entry in (
            {"a": "b"},
            {"kind": "root", "table": "demo.flights", "version": "-4"},
            {"kind": "root", "table": "demo.flights", "version": "9" * 19},
            {"kind": "delete-everything", "table": "demo.flights", "version": "4"},
            {"kind": "root", "table": "../../etc", "version": "4"},
            {"kind": "root", "table": b"\xff\xfe.\x00", "version": "4"},
            {"kind": "root", "table": "x" * 1_000_000, "version": "4"},
            *({"number": number} for number in range(40)),
        ):
            await peer.raw.xadd(peer.keys.tasks, entry)
        await peer.queue.offer(TASK)
        assert await peer.queue.take(wait_s=0) == TASK
        assert peer.count("tasks", "unreadable") == 47
        assert await peer.raw.xlen(peer.keys.tasks) == 1
        assert await peer.raw.hlen(peer.keys.leases) == 1


async def test_marks_that_claim_to_be_from_the_future_or_are_garbage_hold_nothing_up(
    valkey_service: ValkeyService,
) -> None:
    async with redis_world(valkey_service) as world:
        peer = world.peer()
        like = "root demo.flights"
        for value in (
            "99999999999999999",
            "nonsense",
            "3 99999999999999",
            "3 5 99999999999999",
            "99999999999999 me",
            "",
        ):
            for key in (peer.keys.queued, peer.keys.leases, peer.keys.done, peer.keys.dead):
                await peer.raw.hset(key, like, value)
            assert await peer.queue.offer(TASK) is Offer.QUEUED
            assert await peer.queue.take(wait_s=0) == TASK
            await peer.queue.finish(TASK, Ending.FAILED)
        await peer.raw.hset(
            peer.keys.dead, mapping={"nonsense": "nonsense", "root a.b": "1 2", "\x1b[31m x.y": "1 2 3"}
        )
        assert await peer.queue.listed() == []
