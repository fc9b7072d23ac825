"""One table's verdicts on their way to the log, in the order of their roots.

Owns: the queue, publishing those of several roots at once, and trying again until the log has acknowledged.
Does not own: when a verdict may be published (`rootline.coordinator.protocol`), what follows from its acknowledgement.
Invariants: order is kept and nothing is dropped; who publishes never waits; a root whose verdicts the log does not take
holds back those behind it, never those before it; of a record that was committed only the verdict is kept.

Theory. An acknowledgement takes as many turns of the event loop as a commit does. So what has come together meanwhile
is published at once, as intents are committed; else verdicts would pile up behind a table that commits as fast as it
can. And an intent takes many times the memory of its verdict, so it goes as soon as it is decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import structlog

from rootline.coordinator.protocol.effects import Decided, PublishVerdicts
from rootline.ports.environment import Environment
from rootline.ports.intent_feed import Answer, AnsweringSink
from rootline.ports.retry_policy import RetryPolicy
from rootline.schemas.bytes.record_headers import TraceContext, trace_of
from rootline.schemas.errors import OutcomeUnknown, Unavailable
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.root_header import PartitionOffset
from rootline.schemas.verdict import DeadLetter, Verdict, VerdictKind, as_asked

_ROOTS_AT_ONCE_MAX: Final = 16
_VERDICT_BYTES: Final = 1_500


@dataclass(frozen=True, slots=True)
class Publication:
    """What is left of `PublishVerdicts`: when each record was appended (ms), dead letters of those that were rejected.

    `buffered_bytes`: about what it takes in memory. `answers`: those that no root records. `is_repeated`: a root had
    recorded them before this process came to them.
    """

    verdicts: tuple[Verdict, ...]
    appended_ms: tuple[int, ...]
    letters: tuple[DeadLetter, ...]
    up_to: tuple[PartitionOffset, ...]
    version: Version | None
    buffered_bytes: int
    answers: tuple[Answer, ...] = ()
    is_repeated: bool = False
    traces: tuple[TraceContext | None, ...] = ()
    """Of each verdict's record; empty if none has one."""

    @staticmethod
    def of(effect: PublishVerdicts, table: TableName) -> Publication:
        """For `table`."""
        rejected = [item for item in effect.decided if item.verdict.kind is VerdictKind.REJECTED]
        traces = [trace_of(item.record.headers) if item.record.headers else None for item in effect.decided]
        return Publication(
            verdicts=tuple([_told(item) for item in effect.decided]),
            appended_ms=tuple([item.record.appended_ms for item in effect.decided]),
            letters=tuple([_letter(item, table) for item in rejected]),
            up_to=effect.up_to,
            version=effect.version,
            buffered_bytes=len(effect.decided) * _VERDICT_BYTES + sum([item.record.size_in_bytes for item in rejected]),
            answers=tuple([_answer(item, table) for item in rejected]) if effect.is_unrecorded else (),
            is_repeated=effect.version is None and not effect.is_unrecorded,
            traces=tuple(traces) if any(traces) else (),
        )


Published = Callable[[Publication], None]


@dataclass(slots=True)
class VerdictOutbox:
    """`published` is called with each publication that the log has acknowledged, in order.

    `trouble`: why what was decided cannot be said, if it cannot; it is retried. `buffered_bytes`: about what
    all that is not acknowledged takes in memory.
    """

    table: TableName
    verdicts: AnsweringSink
    environment: Environment
    retry: RetryPolicy
    timeout_s: float
    published: Published
    trouble: str = ""
    buffered_bytes: int = 0
    _waiting: asyncio.Queue[Publication] = field(default_factory=asyncio.Queue)
    _publishing: Sequence[Publication] = ()

    @property
    def oldest_ms(self) -> int | None:
        """When the first record of what is being published was appended, ms; `None`: nothing is."""
        return next(chain.from_iterable(publication.appended_ms for publication in self._publishing), None)

    def publish(self, effect: PublishVerdicts) -> None:
        """Behind those before."""
        publication = Publication.of(effect, self.table)
        self.buffered_bytes += publication.buffered_bytes
        self._waiting.put_nowait(publication)

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
            for publication in tuple(self._publishing):
                await self._publish(publication)
                self._acknowledged(1)

    def _acknowledged(self, count: int) -> None:
        done, self._publishing = self._publishing[:count], self._publishing[count:]
        for publication in done:
            self.buffered_bytes -= publication.buffered_bytes
            self.published(publication)
            self._waiting.task_done()

    async def _publish(self, publication: Publication) -> None:
        failures = 0
        while not await self._attempt([publication]):
            failures += 1
            await asyncio.sleep(self.retry.after_failure(failures, self.environment.jitter()))

    async def _attempt(self, publications: Sequence[Publication]) -> bool:
        """Whether the log has acknowledged all of it."""
        verdicts = [verdict for publication in publications for verdict in publication.verdicts]
        letters = [letter for publication in publications for letter in publication.letters]
        answers = [answer for publication in publications for answer in publication.answers]
        try:
            async with asyncio.timeout(self.timeout_s):
                if answers:
                    await self.verdicts.hold(answers)
                await self.verdicts.publish_verdicts(verdicts, letters)
        except (Unavailable, OutcomeUnknown, TimeoutError) as error:
            reason = str(error) or "no answer in time"
            self.trouble = f"{self.table}: verdicts cannot be published: {reason}"
            structlog.get_logger().warning("verdicts not published", action="retry", table=self.table, reason=reason)
            return False
        self.trouble = ""
        return True


def _told(item: Decided) -> Verdict:
    headers = item.record.headers
    return as_asked(item.verdict, headers) if headers else item.verdict


def _answer(item: Decided, table: TableName) -> Answer:
    return Answer(item.record.position, item.verdict.code or "", item.verdict.message or "", table)


def _letter(item: Decided, table: TableName) -> DeadLetter:
    return DeadLetter(
        log=item.verdict.log,
        partition=item.verdict.partition,
        offset=item.verdict.offset,
        intent_id=item.verdict.intent_id,
        table=table,
        code=item.verdict.code or "",
        message=item.verdict.message or "",
        key=item.record.key,
        value=item.record.value,
        headers=item.record.headers,
    )
