"""A Redis for one test, with a line to it that can be cut, silenced and garbled.

Owns: the line, and how parts of one process are put together. Does not own: the server (`tests.services`).
Invariants: a test's keys begin with a prefix of its own; everything is closed at the end of the block.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from urllib.parse import urlsplit

from redis.asyncio import Redis

from rootline.adapters.redis_calls import LakeKeys, RedisCalls, RedisHeadHints
from rootline.adapters.redis_metrics import RedisMetrics
from rootline.adapters.redis_task_queue import RedisTaskQueue
from rootline.adapters.settings import RedisSettings
from rootline.adapters.system_environment import SystemEnvironment
from tests.services.valkey_service import ValkeyService


class Line(Enum):
    """What becomes of answers; requests always arrive, except where the line is down."""

    FINE = "fine"
    SILENT = "silent"  # carried out, and no answer comes
    CUT = "cut"  # carried out, and the connection ends instead of an answer
    GARBLED = "garbled"  # carried out, and the answer is not Redis
    DOWN = "down"  # no connection lives


@dataclass
class FaultyLine:
    """Between a client and a server; `state` may be changed at any time."""

    upstream: tuple[str, int]
    state: Line = Line.FINE
    url: str = ""
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    def down(self) -> None:
        """End every connection, and let no other live."""
        self.state = Line.DOWN
        for writer in list(self._open):
            writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a client."""
        if self.state is Line.DOWN:
            writer.close()
            return
        far_reader, far_writer = await asyncio.open_connection(*self.upstream)
        self._open |= {writer, far_writer}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._requests(reader, far_writer))
                group.create_task(self._answers(far_reader, writer, far_writer))
        except* (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._open -= {writer, far_writer}
            writer.close()
            far_writer.close()

    async def _requests(self, reader: asyncio.StreamReader, far: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            far.write(data)
            await far.drain()
        far.close()

    async def _answers(
        self, far: asyncio.StreamReader, writer: asyncio.StreamWriter, far_writer: asyncio.StreamWriter
    ) -> None:
        while data := await far.read(65_536):
            match self.state:
                case Line.SILENT:
                    continue
                case Line.CUT | Line.DOWN:
                    break
                case Line.GARBLED:
                    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n$99999999999\r\n")
                case Line.FINE:
                    writer.write(data)
            await writer.drain()
        writer.close()
        far_writer.close()


@contextlib.asynccontextmanager
async def faulty_line(url: str) -> AsyncIterator[FaultyLine]:
    """A line to the server at `url`."""
    parts = urlsplit(url)
    line = FaultyLine((parts.hostname or "", parts.port or 6379))
    server = await asyncio.start_server(line.serve, "127.0.0.1", 0)
    line.url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield line
    finally:
        line.down()
        server.close()


@dataclass(frozen=True)
class Peer:
    """What one process has of a lake's Redis; `raw` is a client past all of it."""

    calls: RedisCalls
    keys: LakeKeys
    hints: RedisHeadHints
    queue: RedisTaskQueue
    raw: Redis

    def count(self, metric: str, *labels: str) -> float:
        """A value of its metrics."""
        found = getattr(self.calls.metrics, metric)
        value: float = (found.labels(*labels) if labels else found)._value.get()
        return value

    async def all_fell_silent(self) -> None:
        """As if no worker had been heard of for an hour."""
        for entry in await self.raw.xpending_range(self.keys.tasks, "workers", "-", "+", 100):
            command = ("XCLAIM", self.keys.tasks, "workers", entry["consumer"], 0, entry["message_id"])
            await self.raw.execute_command(*command, "IDLE", 3_600_000, "RETRYCOUNT", entry["times_delivered"])
        for like in await self.raw.hkeys(self.keys.leases):
            await self.raw.hset(self.keys.leases, like, "1700000000000 someone")


@dataclass
class RedisWorld:
    """Processes of one lake."""

    url: str
    prefix: str
    settings: dict[str, Any]
    closing: contextlib.AsyncExitStack

    def peer(self, url: str | None = None, *, tasks_max: int = 100, **settings: Any) -> Peer:
        """Another process."""
        chosen = RedisSettings(
            url=url or self.url, prefix=self.prefix, **{"timeout_ms": 5_000, **self.settings, **settings}
        )
        calls, keys = RedisCalls(chosen, SystemEnvironment(), RedisMetrics()), LakeKeys.of(chosen.prefix, "s3://lake/a")
        raw = Redis.from_url(self.url, protocol=2)
        hints = RedisHeadHints(calls, keys)
        for close in (raw.aclose, calls.close, hints.close):
            self.closing.push_async_callback(close)
        return Peer(calls, keys, hints, RedisTaskQueue(calls, keys, tasks_max=tasks_max), raw)


@contextlib.asynccontextmanager
async def redis_world(service: ValkeyService, **settings: Any) -> AsyncIterator[RedisWorld]:
    """A lake of its own on `service`."""
    async with contextlib.AsyncExitStack() as closing:
        yield RedisWorld(service.url, service.prefix().rstrip(":"), settings, closing)
