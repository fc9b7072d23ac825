"""The outbox of rejections and dead letters for records that are not intents of any table.

Owns: the queue, and retrying until the log has acknowledged.
Does not own: the content of a rejection (`records`), the progress of partitions (`frontier`, which is notified
of every published rejection).
Invariants: A rejection is recorded in the log before it is published, because a later owner may have a version that can
read the record. No rejection is dropped. The caller never waits, but must check for room first. A rejection that is not
acknowledged blocks the frontier of its partition only. No record alone can fill the outbox.

Theory. Rejections are published in batches, in the order of the log. If the log refuses a batch, each rejection is
published alone. Those that are refused again are set aside and retried by another task, so that one bad record does not
delay the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from rootline.coordinator.runtime.records import Rejection, recorded_rejection_of
from rootline.ports.environment import Environment
from rootline.ports.intent_feed import RecordingSink
from rootline.ports.retry_policy import jittered_s
from rootline.schemas.errors import OutcomeUnknown, Unavailable
from rootline.schemas.verdict import as_asked, coordinates_only, size_of

_AT_ONCE_MAX: Final = 256
_BYTES_AT_ONCE_MAX: Final = 4_000_000
_WAITING_MAX: Final = 4_096
_LARGE_LETTERS: Final = 8
"""The number of dead letters that always fit into the outbox. Of a larger letter only the coordinates are kept."""

Published = Callable[[Sequence[Rejection]], None]


@dataclass(slots=True)
class RejectionOutbox:
    """The outbox of a partition assignment.

    * `published` is called with rejections that the log has acknowledged.
    * `buffered` is called with each change of the buffered bytes.
    * `trouble` is the reason why some rejections cannot be published at present, or an empty string.
    """

    verdicts: RecordingSink
    environment: Environment
    published: Published
    buffered: Callable[[int], None]
    bytes_max: int
    request_timeout_s: float
    retry_s: float
    trouble: str = ""
    _waiting: list[Rejection] = field(default_factory=list)
    _set_aside: list[Rejection] = field(default_factory=list)
    _buffered_bytes: int = 0
    _refused: asyncio.Event = field(default_factory=asyncio.Event)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _stopping: bool = False

    @property
    def is_full(self) -> bool:
        """Whether the caller must pause until rejections are published."""
        return self.waiting >= _WAITING_MAX or self._buffered_bytes >= self.bytes_max

    @property
    def waiting(self) -> int:
        """The number of rejections that are not published."""
        return len(self._waiting) + len(self._set_aside)

    def reject(self, rejections: Sequence[Rejection]) -> None:
        """Queue rejections. The dead letter of a very large record contains its coordinates only."""
        letter_bytes_max = self.bytes_max // _LARGE_LETTERS
        kept = [
            (verdict, letter if size_of(letter) <= letter_bytes_max else coordinates_only(letter))
            for verdict, letter in rejections
        ]
        self._waiting.extend(kept)
        self._buffer(sum(map(_size, kept)))
        self._arrived.set()

    def request_stop(self) -> None:
        """Let `run` return after all queued rejections are published."""
        self._stopping = True
        self._arrived.set()

    async def run(self) -> None:
        """Publish rejections until `request_stop`."""
        async with asyncio.TaskGroup() as tasks:
            again = tasks.create_task(self._publish_again(), name="rejections set aside")
            while self._waiting or not self._stopping:
                if not self._waiting:
                    self._arrived.clear()
                    await self._arrived.wait()
                    continue
                batch = _first_of(self._waiting)
                refused = await self._publish(batch)
                del self._waiting[: len(batch)]
                self._set_aside += refused
                self._acknowledge(batch, refused)
                if refused:
                    self._refused.set()
                if len(refused) == len(batch):  # the log is at fault, not the records
                    await self._pause()
            while self._set_aside:
                self._arrived.clear()
                await self._arrived.wait()
            again.cancel()

    async def _publish_again(self) -> None:
        """Retry the rejections that were set aside."""
        while True:
            if not self._set_aside:
                self.trouble = ""
                self._arrived.set()
                self._refused.clear()
                await self._refused.wait()
            await self._pause()
            batch = _first_of(self._set_aside)
            refused = await self._publish(batch)
            self._set_aside = [*self._set_aside[len(batch) :], *refused]
            self._acknowledge(batch, refused)

    def _acknowledge(self, batch: Sequence[Rejection], refused: Sequence[Rejection]) -> None:
        still = {id(rejection) for rejection in refused}
        done = [rejection for rejection in batch if id(rejection) not in still]
        if done:
            self._buffer(-sum(map(_size, done)))
            self.published(done)

    async def _publish(self, batch: Sequence[Rejection]) -> list[Rejection]:
        """Publish `batch` together, or else one by one. Returns the rejections that the log did not acknowledge."""
        reason = await self._attempt(batch)
        if reason is None:
            return []
        reasons = [reason] if len(batch) == 1 else await asyncio.gather(*(self._attempt([one]) for one in batch))
        refused = [one for one, why in zip(batch, reasons, strict=True) if why is not None]
        if refused:
            reason = next(why for why in reasons if why is not None)
            self.trouble = f"dead letters cannot be published: {reason}"
            structlog.get_logger().warning(
                "dead letters not published", action="retry", letters=len(refused), reason=reason
            )
        return refused

    async def _attempt(self, batch: Sequence[Rejection]) -> str | None:
        """Record and publish `batch`. Returns `None`, or the reason why the log has not acknowledged all of it."""
        verdicts = [as_asked(verdict, letter.headers) for verdict, letter in batch]
        letters = [letter for _, letter in batch]
        try:
            async with asyncio.timeout(self.request_timeout_s):
                await self.verdicts.record_rejections([recorded_rejection_of(rejection) for rejection in batch])
                await self.verdicts.publish_verdicts(verdicts, letters)
        except (Unavailable, OutcomeUnknown, TimeoutError) as error:
            return str(error) or "no answer in time"
        return None

    async def _pause(self) -> None:
        await asyncio.sleep(jittered_s(self.retry_s, self.environment.jitter()))

    def _buffer(self, more_bytes: int) -> None:
        self._buffered_bytes += more_bytes
        self.buffered(more_bytes)


def _first_of(waiting: Sequence[Rejection]) -> Sequence[Rejection]:
    """The next batch from the front of the queue, at least one."""
    size = 0
    for count, rejection in enumerate(waiting[:_AT_ONCE_MAX]):
        size += _size(rejection)
        if count > 0 and size > _BYTES_AT_ONCE_MAX:
            return waiting[:count]
    return waiting[:_AT_ONCE_MAX]


def _size(rejection: Rejection) -> int:
    return size_of(rejection[1])
