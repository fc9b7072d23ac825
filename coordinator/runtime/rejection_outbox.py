"""Records that are no intents of any table: their rejections and dead letters, published in the order of the log.

Owns: the queue, and trying again until the log has acknowledged. Does not own: what a rejection says
(`record_decoding`), how far a partition is decided (`frontier`, which counts every published rejection).
Invariants: nothing is dropped; the caller that rejects never waits, but asks first whether there is room; a rejection
that is not acknowledged holds its partition's frontier back, and no table.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from rootline.coordinator.runtime.record_decoding import Rejection
from rootline.ports.environment import Environment
from rootline.ports.intent_log import VerdictSink
from rootline.schemas.errors import OutcomeUnknown, Unavailable

_AT_ONCE_MAX: Final = 256
_BYTES_AT_ONCE_MAX: Final = 4_000_000
_WAITING_MAX: Final = 4_096

Published = Callable[[Sequence[Rejection]], None]


@dataclass(slots=True)
class RejectionOutbox:
    """One for each partition assignment.

    `published` is called with rejections that the log has acknowledged, `held` with the bytes that are kept.

    `trouble`: why they cannot be published, if they cannot; it is tried again and again.
    """

    verdicts: VerdictSink
    environment: Environment
    published: Published
    held: Callable[[int], None]
    bytes_max: int
    request_timeout_s: float
    retry_s: float
    trouble: str = ""
    _waiting: list[Rejection] = field(default_factory=list)
    _held_bytes: int = 0
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _stopping: bool = False

    @property
    def is_full(self) -> bool:
        """Whether the reading should pause until some are published."""
        return len(self._waiting) >= _WAITING_MAX or self._held_bytes >= self.bytes_max

    @property
    def waiting(self) -> int:
        """How many are not published yet."""
        return len(self._waiting)

    def reject(self, rejections: Sequence[Rejection]) -> None:
        """Publish these after those before."""
        for verdict, _ in rejections:
            structlog.get_logger().warning(
                "intent rejected",
                action="dead-letter",
                partition=verdict.partition,
                offset=verdict.offset,
                reason=verdict.message,
            )
        self._waiting.extend(rejections)
        self._hold(sum(map(_size, rejections)))
        self._arrived.set()

    def request_stop(self) -> None:
        """Publish what waits; `run` returns then."""
        self._stopping = True
        self._arrived.set()

    async def run(self) -> None:
        """Until `request_stop`."""
        while self._waiting or not self._stopping:
            if not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
                continue
            batch = self._batch()
            await self._publish(batch)
            del self._waiting[: len(batch)]
            self._hold(-sum(map(_size, batch)))
            self.published(batch)

    def _batch(self) -> list[Rejection]:
        """The first of those that wait, at least one."""
        size = 0
        for count, rejection in enumerate(self._waiting[:_AT_ONCE_MAX]):
            size += _size(rejection)
            if count > 0 and size > _BYTES_AT_ONCE_MAX:
                return self._waiting[:count]
        return self._waiting[:_AT_ONCE_MAX]

    def _hold(self, more_bytes: int) -> None:
        self._held_bytes += more_bytes
        self.held(more_bytes)

    async def _publish(self, batch: Sequence[Rejection]) -> None:
        verdicts, letters = [verdict for verdict, _ in batch], [letter for _, letter in batch]
        while True:
            try:
                async with asyncio.timeout(self.request_timeout_s):
                    await self.verdicts.publish_verdicts(verdicts, letters)
                self.trouble = ""
                return
            except (Unavailable, OutcomeUnknown, TimeoutError) as error:
                reason = str(error) or "no answer in time"
                self.trouble = f"dead letters cannot be published: {reason}"
                structlog.get_logger().warning("dead letters not published", action="retry", reason=reason)
                await asyncio.sleep(self.retry_s * (0.5 + 0.5 * self.environment.jitter()))


def _size(rejection: Rejection) -> int:
    _, letter = rejection
    headers = sum(len(name) + len(value or b"") for name, value in letter.headers)
    return len(letter.key or b"") + len(letter.value) + headers
