"""One table's verdicts on their way to the log, in the order of their roots.

Owns: the queue, publishing those of several roots at once, and trying again until the log has acknowledged.
Does not own: when a verdict may be published (`rootline.coordinator.protocol`), what follows from its acknowledgement.
Invariants: order is kept and nothing is dropped; who publishes never waits; a root whose verdicts the log does not take
holds back those behind it, never those before it.

Theory. An acknowledgement takes as many turns of the event loop as a commit does. So what has come together meanwhile
is published at once, as intents are committed; else verdicts, with the records that they are about, would pile up
behind a table that commits as fast as it can.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from rootline.coordinator.protocol.effects import Decided, PublishVerdicts
from rootline.coordinator.protocol.retry_policy import RetryPolicy
from rootline.ports.environment import Environment
from rootline.ports.intent_log import VerdictSink
from rootline.schemas.dead_letter import DeadLetter
from rootline.schemas.errors import OutcomeUnknown, Unavailable
from rootline.schemas.identifiers import TableName
from rootline.schemas.verdict import VerdictKind

_ROOTS_AT_ONCE_MAX: Final = 16

Published = Callable[[PublishVerdicts], None]


@dataclass(slots=True)
class VerdictOutbox:
    """`published` is told of each publication that the log has acknowledged, in order.

    `trouble`: why what was decided cannot be said, if it cannot; it is tried again and again.
    """

    table: TableName
    verdicts: VerdictSink
    environment: Environment
    retry: RetryPolicy
    timeout_s: float
    published: Published
    trouble: str = ""
    _waiting: asyncio.Queue[PublishVerdicts] = field(default_factory=asyncio.Queue)
    _publishing: Sequence[PublishVerdicts] = ()

    @property
    def oldest_ms(self) -> int | None:
        """When the first record of what is being published was appended, ms; `None`: nothing is."""
        return next((item.record.appended_ms for item in _decided(self._publishing)), None)

    def publish(self, effect: PublishVerdicts) -> None:
        """Behind those before."""
        self._waiting.put_nowait(effect)

    async def drained(self) -> None:
        """Until all is acknowledged."""
        await self._waiting.join()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            together = [await self._waiting.get()]
            while len(together) < _ROOTS_AT_ONCE_MAX and not self._waiting.empty():
                together.append(self._waiting.get_nowait())
            self._publishing = together
            if len(together) > 1 and await self._attempt(together):
                self._acknowledged(len(together))
            for effect in together[len(together) - len(self._publishing) :]:
                await self._publish(effect)
                self._acknowledged(1)

    def _acknowledged(self, count: int) -> None:
        done, self._publishing = self._publishing[:count], self._publishing[count:]
        for effect in done:
            self.published(effect)
            self._waiting.task_done()

    async def _publish(self, effect: PublishVerdicts) -> None:
        failures = 0
        while not await self._attempt([effect]):
            failures += 1
            await asyncio.sleep(self.retry.after_failure(failures, self.environment.jitter()))

    async def _attempt(self, effects: Iterable[PublishVerdicts]) -> bool:
        """Whether the log has acknowledged all of it."""
        decided = _decided(effects)
        verdicts = [item.verdict for item in decided]
        letters = [self._letter(item) for item in decided if item.verdict.kind is VerdictKind.REJECTED]
        try:
            async with asyncio.timeout(self.timeout_s):
                await self.verdicts.publish_verdicts(verdicts, letters)
        except (Unavailable, OutcomeUnknown, TimeoutError) as error:
            reason = str(error) or "no answer in time"
            self.trouble = f"{self.table}: verdicts cannot be published: {reason}"
            structlog.get_logger().warning("verdicts not published", action="retry", table=self.table, reason=reason)
            return False
        self.trouble = ""
        return True

    def _letter(self, item: Decided) -> DeadLetter:
        return DeadLetter(
            log=item.verdict.log,
            partition=item.verdict.partition,
            offset=item.verdict.offset,
            intent_id=item.verdict.intent_id,
            table=self.table,
            code=item.verdict.code or "",
            message=item.verdict.message or "",
            key=item.record.key,
            value=item.record.value,
            headers=item.record.headers,
        )


def _decided(effects: Iterable[PublishVerdicts]) -> list[Decided]:
    return [item for effect in effects for item in effect.decided]
