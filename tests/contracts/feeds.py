"""Every log that coordinators read, each with its writers' side and its readers.

Owns: how each log is made for a test. Does not own: the contract, driving a reader (`tests.support.feed_driver`).
Invariants: each test has a log of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import pytest

from rootline.adapters.embedded_feed import EmbeddedFeed
from rootline.adapters.memory import MemoryIntentLog
from rootline.adapters.sqlite.intent_log import SqliteIntentLog
from rootline.ports.intent_feed import CoordinatorLog, FeedEvent, RecordedRejection
from rootline.ports.intent_log import NewRecord
from rootline.schemas.identifiers import LogPosition
from rootline.schemas.parts.log import PartitionOffset
from rootline.schemas.verdict import Verdict
from tests.support.feed_driver import FeedDriver
from tests.support.group_log import GroupLog


class WritersSide(Protocol):
    """What a test does to a log as its writers do."""

    async def publish_many(self, records: Sequence[NewRecord]) -> list[LogPosition]: ...

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


class Reader(FeedDriver):
    """A coordinator's reading; `starts` are those of the assignment in force, `None` without one."""

    @property
    def starts(self) -> dict[int, PartitionOffset] | None:
        return None if self.assignment is None else {start.partition: start for start in self.assignment.starts}

    @property
    def poison_candidates(self) -> tuple[PartitionOffset, ...]:
        return self.last_assignment.poison_candidates

    @property
    def kinds(self) -> list[type[FeedEvent]]:
        return [type(event) for event in self.events]

    @property
    def answered(self) -> tuple[RecordedRejection, ...]:
        return self.last_assignment.answered

    async def assigned(self) -> None:
        await self.until(lambda: self.assignment is not None)

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
