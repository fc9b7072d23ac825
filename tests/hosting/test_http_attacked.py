"""What those who watch a process are told when its log cannot be used, and how they may ask."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest

from rootline.adapters.embedded_feed import EmbeddedFeed
from rootline.adapters.memory import MemoryIntentLog, MemoryObjectStore
from rootline.adapters.sqlite.intent_log import SqliteIntentLog
from rootline.adapters.sqlite.undecided import FILE_NAME
from rootline.coordinator.app import CoordinatorService
from rootline.coordinator.http.server import http_app, serve
from rootline.coordinator.settings import CoordinatorSettings
from rootline.schemas.errors import Unavailable
from rootline.workers.app import WorkerService
from rootline.workers.server import serve as serve_worker


@asynccontextmanager
async def asked(folder: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A coordinator on the log in `folder`, which looks at it all the time; a client of its HTTP."""
    log = SqliteIntentLog(folder)
    feed = EmbeddedFeed(log, check_writable=partial(log.check_writable, 0.2), check_every_s=0.01)
    service = CoordinatorService(store=MemoryObjectStore(), log=feed, settings=CoordinatorSettings(probe_rounds=0))
    running = asyncio.create_task(service.run())
    transport = httpx.ASGITransport(app=http_app(service))
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://coordinator") as client:
            await until(client, 200)
            yield client
    finally:
        service.request_stop()
        await running
        await log.close()


async def until(client: httpx.AsyncClient, status: int) -> str:
    """The reason that /readyz gives once it answers `status`."""
    while (answer := await client.get("/readyz")).status_code != status:  # noqa: ASYNC110 - no event tells of it
        await asyncio.sleep(0)
    return str(answer.json()["reason"])


async def test_a_coordinator_is_not_ready_while_the_disk_of_its_log_is_full(tmp_path: Path) -> None:
    log = SqliteIntentLog(tmp_path)
    room = [0]
    feed = EmbeddedFeed(log, check_writable=lambda: log.check_writable(room_bytes_min=room[0]), check_every_s=0.01)
    service = CoordinatorService(store=MemoryObjectStore(), log=feed, settings=CoordinatorSettings(probe_rounds=0))
    running = asyncio.create_task(service.run())
    transport = httpx.ASGITransport(app=http_app(service))
    async with httpx.AsyncClient(transport=transport, base_url="http://coordinator") as client:
        await until(client, 200)
        room[0] = 1 << 62
        assert "the disk is full" in await until(client, 503)
        room[0] = 0
        assert await until(client, 200) == ""
    service.request_stop()
    await running
    await log.close()


async def test_a_coordinator_is_not_ready_while_another_process_holds_the_write_lock_of_its_log(tmp_path: Path) -> None:
    async with asked(tmp_path) as client:
        other = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert "write lock" in await until(client, 503)
        other.execute("ROLLBACK")
        other.close()
        assert await until(client, 200) == ""


async def test_a_coordinator_is_not_ready_while_the_file_of_its_log_is_away(tmp_path: Path) -> None:
    async with asked(tmp_path) as client:
        (tmp_path / FILE_NAME).rename(tmp_path / "away")
        assert "moved away" in await until(client, 503)
        (tmp_path / "away").rename(tmp_path / FILE_NAME)
        assert await until(client, 200) == ""


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_nothing_is_acknowledged_that_went_to_a_file_which_no_one_finds_again(
    tmp_path: Path, *, is_replaced: bool
) -> None:
    log = SqliteIntentLog(tmp_path)
    await log.publish(b"demo.t", b"one")
    (tmp_path / FILE_NAME).rename(tmp_path / "away")
    if is_replaced:
        (tmp_path / FILE_NAME).write_bytes((tmp_path / "away").read_bytes())
    with pytest.raises(Unavailable, match="moved away, deleted or replaced") as caught:
        await log.publish(b"demo.t", b"two")
    assert caught.value.code == "log-unavailable"
    (tmp_path / "away").rename(tmp_path / FILE_NAME)
    assert (await log.publish(b"demo.t", b"three")).offset == 2
    await log.close()


async def test_head_is_answered_as_get_is_without_a_body() -> None:
    store, log = MemoryObjectStore(), MemoryIntentLog()
    coordinator = CoordinatorService(store=store, log=EmbeddedFeed(log), settings=CoordinatorSettings())
    worker = WorkerService(store=store, log=log)
    async with (
        serve(coordinator, "127.0.0.1", 0) as one,
        serve_worker(worker, "127.0.0.1", 0) as two,
        httpx.AsyncClient() as client,
    ):
        for url in [host + path for host in (one, two) for path in ("/healthz", "/readyz", "/metrics")]:
            head, got = await client.head(url), await client.get(url)
            assert (head.status_code, head.content) == (got.status_code, b"")
            assert head.headers["content-type"] == got.headers["content-type"]
