"""A coordinator's feed that is asked again and again, as the coordinator asks it.

Owns: taking events in, answering revocations, waiting until something holds. Does not own: which feed it is
(`tests.contracts.feeds`, `tests.kafka.feeding`), what a test makes of the events.
Invariants: a wait that never ends fails after a minute; every pause is the feed's own; no record comes without an
assignment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from rootline.ports.intent_feed import Assigned, Delivered, FeedEvent, IntentFeed, Revoked
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import LogId, LogRecord

PATIENCE_S: Final = 120


class FeedDriver:
    """One reader.

    `assignment`: the one in force, `None` without one. `records`: since the last assignment. `events`: all but
    deliveries. `answers`: whether it lets partitions go when it is asked to.
    """

    def __init__(self, feed: IntentFeed, *, answers: bool = True) -> None:
        self.feed = feed
        self.answers = answers
        self.assignment: Assigned | None = None
        self.records: list[LogRecord] = []
        self.events: list[FeedEvent] = []
        self.failures: list[Unavailable] = []
        self.at_end = False

    @property
    def values(self) -> list[bytes]:
        return [record.value for record in self.records]

    @property
    def last_assignment(self) -> Assigned:
        """The last one, in force or not."""
        return next(event for event in reversed(self.events) if isinstance(event, Assigned))

    @property
    def log(self) -> LogId:
        """The log of the last assignment."""
        return self.last_assignment.starts[0].log

    async def step(self, *, wait_s: float = 0.2, deliver: bool = True) -> FeedEvent | None:
        """One event taken in; `None` when the log was unavailable."""
        try:
            event = await self.feed.next(wait_s=wait_s, deliver=deliver)
        except Unavailable as failure:
            self.failures.append(failure)
            await asyncio.sleep(0)
            return None
        if not isinstance(event, Delivered):
            self.events.append(event)
        match event:
            case Assigned():
                self.assignment = event
                self.records, self.at_end = [], False
            case Delivered(records, at_end):
                assert not records or self.assignment is not None, "no record comes without an assignment"
                self.records += records
                self.at_end = at_end
            case Revoked():
                self.assignment = None
                if self.answers:
                    await self.feed.released()
        return event

    async def until(self, done: Callable[[], bool], *, deliver: bool = True) -> None:
        """Take in events until `done`."""
        async with asyncio.timeout(PATIENCE_S):
            while not done():
                await self.step(deliver=deliver)


async def together(*drivers: FeedDriver, done: Callable[[], bool]) -> None:
    """Drive these at the same time until `done`."""
    async with asyncio.TaskGroup() as tasks:
        for driver in drivers:
            tasks.create_task(driver.until(done))
