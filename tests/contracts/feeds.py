"""Every log that coordinators read, each with its writers' side; and a reader that asks on and on.

Owns: how each is made for a test, and driving readers until something holds. Does not own: the contract.
Invariants: each test has a log of its own; a wait that never ends fails after a minute; every pause is the feed's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import pytest

from rootline.adapters.embedded_feed import EmbeddedFeed
from rootline.adapters.memory.intent_log import MemoryIntentLog
from rootline.adapters.sqlite.intent_log import SqliteIntentLog
from rootline.ports.intent_feed import Answer, Assigned, CoordinatorLog, Delivered, FeedEvent, Revoked
from rootline.schemas.errors import Unavailable
from rootline.schemas.log_position import LogId, LogPosition, LogRecord
from rootline.schemas.root_header import PartitionOffset
from rootline.schemas.verdict import Verdict
from tests.support.group_log import GroupLog

PATIENCE_S: Final = 60


class WritersSide(Protocol):
    """What a test does to a log as its writers do."""

    async def publish_many(self, records: Sequence[tuple[bytes, bytes]]) -> list[LogPosition]: ...

    async def wait_verdict(self, position: LogPosition, *, timeout_s: float) -> Verdict | None: ...


class LogUnderTest:
    """One log. `connect` makes another coordinator's side of it."""

    def __init__(
        self,
        writers: WritersSide,
        connect: Callable[[], CoordinatorLog],
        *,
        expire_offsets: Callable[[], None] = lambda: None,
        remove_before: Callable[[int, int], None] = lambda partition, offset: None,
    ) -> None:
        """`expire_offsets`: what a broker does when no one has read for days; `remove_before`: what retention does."""
        self.writers = writers
        self.expire_offsets = expire_offsets
        self.remove_before = remove_before
        self._connect = connect
        self._stack = AsyncExitStack()

    async def publish(self, *values: bytes, keys: int = 1) -> list[LogPosition]:
        """Records with so many different keys, in turn."""
        records = [(b"key-%d" % (number % keys), value) for number, value in enumerate(values)]
        return await self.writers.publish_many(records)

    def reader(self, *, answers: bool = True) -> Reader:
        """One more; it leaves when the test ends, if it has not before."""
        reader = Reader(self._connect(), answers=answers)
        self._stack.push_async_callback(reader.feed.close)
        return reader

    async def close(self) -> None:
        await self._stack.aclose()


class Reader:
    """A coordinator's reading. `records` since the last assignment; `answers`: whether it lets go when it is asked."""

    def __init__(self, feed: CoordinatorLog, *, answers: bool = True) -> None:
        self.feed = feed
        self.answers = answers
        self.starts: dict[int, PartitionOffset] | None = None
        self.records: list[LogRecord] = []
        self.events: list[type[FeedEvent]] = []
        self.poison_candidates: tuple[PartitionOffset, ...] = ()
        self.answered: tuple[Answer, ...] = ()
        self.at_end = False

    @property
    def values(self) -> list[bytes]:
        return [record.value for record in self.records]

    @property
    def log(self) -> LogId:
        assert self.starts
        return next(iter(self.starts.values())).log

    async def step(self, *, wait_s: float = 0.2, hold: bool = False) -> FeedEvent | None:
        """One event taken in; `None` when the log was unavailable."""
        try:
            event = await self.feed.next(wait_s=wait_s, hold=hold)
        except Unavailable:
            await asyncio.sleep(0)
            return None
        if not isinstance(event, Delivered):
            self.events.append(type(event))
        match event:
            case Assigned(starts, poison_candidates, answered):
                self.answered = answered
                self.starts = {start.partition: start for start in starts}
                self.poison_candidates = poison_candidates
                self.records = []
            case Delivered(records, at_end):
                assert not records or self.starts is not None, "no record comes without an assignment"
                self.records += records
                self.at_end = at_end
            case Revoked():
                self.starts = None
                if self.answers:
                    await self.feed.released()
        return event

    async def until(self, done: Callable[[], bool]) -> None:
        await together(self, done=done)

    async def assigned(self) -> None:
        await self.until(lambda: self.starts is not None)

    async def ended(self) -> None:
        """Read all that there is."""
        self.at_end = False
        await self.until(lambda: self.at_end)

    def in_order(self) -> bool:
        """Whether the records of each partition ascend, each once."""
        places = [record.position for record in self.records]
        assert self.starts is not None
        own = [[place.offset for place in places if place.partition == number] for number in self.starts]
        return all(offsets == sorted(set(offsets)) for offsets in own) and sum(map(len, own)) == len(places)


async def together(*readers: Reader, done: Callable[[], bool]) -> None:
    """Drive these until `done`."""

    async def drive(reader: Reader) -> None:
        while not done():
            await reader.step()

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
        for reader in readers:
            tasks.create_task(drive(reader))


Maker = Callable[[pytest.FixtureRequest, Path, AsyncExitStack], LogUnderTest]


def _memory(_: pytest.FixtureRequest, __: Path, ___: AsyncExitStack) -> LogUnderTest:
    log = MemoryIntentLog()
    return LogUnderTest(log, lambda: EmbeddedFeed(log))


def _sqlite(_: pytest.FixtureRequest, folder: Path, stack: AsyncExitStack) -> LogUnderTest:
    log = SqliteIntentLog(folder / ".rootline")
    stack.push_async_callback(log.close)
    return LogUnderTest(log, lambda: EmbeddedFeed(log, folder / "mark"))


def _group(_: pytest.FixtureRequest, __: Path, ___: AsyncExitStack) -> LogUnderTest:
    log = GroupLog(partitions=4, wary=True)
    return LogUnderTest(
        log, lambda: log.member("reader"), expire_offsets=log.expire_offsets, remove_before=log.truncate_before
    )


def _kafka(request: pytest.FixtureRequest, _: Path, stack: AsyncExitStack) -> LogUnderTest:
    from rootline.adapters.kafka.coordinator_log import KafkaCoordinatorLog  # its clients take a while to import
    from rootline.adapters.kafka.writer_log import KafkaWriterLog
    from tests.kafka.feeding import expire_offsets, remove_before

    settings = request.getfixturevalue("kafka_service").with_topics(delivery_timeout_s=20)
    writers = KafkaWriterLog(settings)
    stack.push_async_callback(writers.close)
    return LogUnderTest(
        writers,
        lambda: KafkaCoordinatorLog(settings),
        expire_offsets=partial(expire_offsets, settings),
        remove_before=partial(remove_before, settings),
    )


SHARED: Final[dict[str, Maker]] = {"group in memory": _group, "kafka": _kafka}
"""Logs with several partitions, which several coordinators share."""
DURABLE: Final[dict[str, Maker]] = {"sqlite": _sqlite, **SHARED}
"""Logs that outlive who reads them."""
LOGS: Final[dict[str, Maker]] = {"memory": _memory, "sqlite": _sqlite, **SHARED}
