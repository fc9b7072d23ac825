"""Two workers share what there is to do over a real server, and go on when it is gone."""

from __future__ import annotations

import asyncio

import pytest

from rootline.adapters.memory import MemoryIntentLog, MemoryObjectStore, MemoryTaskQueue
from rootline.adapters.open_redis import QueueOrOwn
from rootline.schemas.content_entry import ContentType
from rootline.workers.app import WorkerService
from rootline.workers.settings import WorkerSettings
from tests.adapters.redis.redis_world import Line, Peer, faulty_line, redis_world
from tests.maintenance.table_builder import TableBuilder
from tests.services.valkey_service import ValkeyService
from tests.workers.log_coordinator import LogCoordinator

pytestmark = pytest.mark.services


def worker(store: MemoryObjectStore, log: MemoryIntentLog, peer: Peer) -> WorkerService:
    queue = QueueOrOwn(peer.queue, MemoryTaskQueue())
    settings = WorkerSettings(poll_interval_s=0.05, poll_interval_s_max=0.2)
    return WorkerService(store=store, log=log, settings=settings, queue=queue)


async def flushed(running: list[asyncio.Task[None]], *builders: TableBuilder) -> None:
    """Until no table has rows in its root, or a worker ends."""
    while any(builder.rows_of(ContentType.DATA) for builder in builders):
        ended, _ = await asyncio.wait(running, timeout=0.02)
        assert not ended


async def test_every_table_is_flushed_while_redis_is_there_hangs_is_gone_and_comes_back(
    valkey_service: ValkeyService,
) -> None:
    async with redis_world(valkey_service) as world, faulty_line(world.url) as line:
        store, log = MemoryObjectStore(), MemoryIntentLog()
        builders = []
        for number in range(4):
            builder = TableBuilder(store, f"demo.t{number}", **{"rootline.flush.data-files": "3"})
            await builder.create()
            builders.append(builder)
        peers = [world.peer(line.url, timeout_ms=300, silence_s=0.1) for _ in range(2)]
        workers = [worker(store, log, peer) for peer in peers]
        coordinator = asyncio.create_task(LogCoordinator(log, *builders).serve())
        running = [asyncio.create_task(service.run()) for service in workers]
        for number, state in enumerate((Line.FINE, Line.SILENT, Line.GARBLED, Line.DOWN, Line.FINE)):
            line.state = state
            if state is Line.DOWN:
                line.down()
            for builder in builders:
                await builder.append(*range(10 * number, 10 * number + 3))
            await flushed(running, *builders)
        assert all(service.counters.failures == 0 for service in workers)
        assert sum(peer.count("calls", "queue", "answered") for peer in peers) > 0
        assert sum(peer.count("calls", "queue", "failed") for peer in peers) > 0
        for service in workers:
            service.request_stop()
        await asyncio.gather(*running)
        coordinator.cancel()


async def test_a_table_that_two_workers_watch_is_looked_at_by_one_of_them(valkey_service: ValkeyService) -> None:
    async with redis_world(valkey_service) as world:
        store, log = MemoryObjectStore(), MemoryIntentLog()
        builder = TableBuilder(store, "demo.flights", **{"rootline.flush.data-files": "3"})
        await builder.create()
        await builder.append(1)  # nothing is due: a look, and no more
        first, second = (worker(store, log, world.peer()) for _ in range(2))
        await first.look_once()
        while await first.carry_out_one() is not None:
            pass
        looks = first.counters.jobs_done
        await second.look_once()
        assert await second.carry_out_one() is None
        assert (looks, second.counters.jobs_done) == (3, 0)
