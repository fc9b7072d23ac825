"""Publishes one table's verdicts to the log, in the order of their roots, and records the spans of their intents.

Owns: the queue, publishing the verdicts of several roots together, retries until the log has acknowledged, the spans
and their start and end. Does not own: the earliest time of a publication (`rootline.coordinator.protocol`), the
consequences of its acknowledgement, the export of spans (`rootline.ports.environment`).
Invariants: order is preserved and nothing is dropped. The caller that publishes never waits. A root whose verdicts the
log does not take delays later roots, never earlier ones. Of a committed record only the verdict stays in memory. Spans
are made only for records whose writer records a trace, are bounded, and delay nothing. A process traces at most
`TRACES_PER_S_MAX` intents a second, because a span takes a noticeable part of the time of a commit.

Theory. An acknowledgement takes as many turns of the event loop as a commit does. So verdicts that have accumulated
are published together, just as intents are committed together. Otherwise verdicts would accumulate faster than a table
at full speed publishes them. An intent takes many times the memory of its verdict, so it is released as soon as it is
decided.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from rootline.coordinator.protocol.messages import Decided, PublishVerdicts
from rootline.library_log import library_logger
from rootline.ports.environment import Environment, Tracer
from rootline.ports.intent_feed import RecordedRejection, RecordingSink
from rootline.ports.retry_policy import RetryPolicy
from rootline.schemas.bytes.record_headers import TraceContext, trace_of
from rootline.schemas.errors import OutcomeUnknown, Unavailable
from rootline.schemas.identifiers import LogPosition, TableName, Version
from rootline.schemas.parts.log import PartitionOffset
from rootline.schemas.verdict import DeadLetter, Verdict, VerdictKind, as_asked, letter_of
from rootline.tree.draft.batch import Record

_ROOTS_AT_ONCE_MAX: Final = 16
_VERDICT_BYTES: Final = 1_500


@dataclass(frozen=True, slots=True)
class Publication:
    """The verdicts to publish, without their records.

    * `appended_ms`: append time of each record.
    * `letters`: dead letters of the rejected records.
    * `version`: the root that decided the records, `None` if it is not known or there is none.
    * `answers`: rejections that no root records, so the log must record them before it publishes them.
    * `is_repeated`: a root had recorded these verdicts before this process read their records.
    """

    verdicts: tuple[Verdict, ...]
    appended_ms: tuple[int, ...]
    letters: tuple[DeadLetter, ...]
    up_to: tuple[PartitionOffset, ...]
    version: Version | None
    buffered_bytes: int
    answers: tuple[RecordedRejection, ...] = ()
    is_repeated: bool = False
    traces: tuple[TraceContext | None, ...] = ()
    """The trace context of each verdict's record. Empty if no record has one."""

    @staticmethod
    def of(effect: PublishVerdicts, table: TableName) -> Publication:
        """The publication that `effect` asks for."""
        rejected = [item for item in effect.decided if item.verdict.kind is VerdictKind.REJECTED]
        traces = [trace_of(item.record.headers) if item.record.headers else None for item in effect.decided]
        return Publication(
            verdicts=tuple([_told(item) for item in effect.decided]),
            appended_ms=tuple([item.record.appended_ms for item in effect.decided]),
            letters=tuple([_letter(item) for item in rejected]),
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
    """The queue of publications. `published` is called with each publication that the log has acknowledged, in order.

    `trouble`: the reason why verdicts cannot be published, or empty. Publishing is retried. `buffered_bytes`: the
    approximate memory of all unacknowledged publications.
    """

    table: TableName
    verdicts: RecordingSink
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
        """The append time of the oldest record that is being published, in ms. `None` when nothing is."""
        return next(chain.from_iterable(publication.appended_ms for publication in self._publishing), None)

    def publish(self, effect: PublishVerdicts) -> None:
        """Enqueue verdicts behind the earlier ones."""
        publication = Publication.of(effect, self.table)
        self.buffered_bytes += publication.buffered_bytes
        self._waiting.put_nowait(publication)

    async def drained(self) -> None:
        """Wait until every verdict is acknowledged."""
        await self._waiting.join()

    async def run(self) -> None:
        """Publish until cancelled."""
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
        """Publish together. Returns whether the log has acknowledged all publications."""
        verdicts = [verdict for publication in publications for verdict in publication.verdicts]
        letters = [letter for publication in publications for letter in publication.letters]
        answers = [answer for publication in publications for answer in publication.answers]
        try:
            async with asyncio.timeout(self.timeout_s):
                if answers:
                    await self.verdicts.record_rejections(answers)
                await self.verdicts.publish_verdicts(verdicts, letters)
        except (Unavailable, OutcomeUnknown, TimeoutError) as error:
            reason = str(error) or "no answer in time"
            self.trouble = f"{self.table}: verdicts cannot be published: {reason}"
            library_logger().warning("verdicts not published", action="retry", table=self.table, reason=reason)
            return False
        self.trouble = ""
        return True


def _told(item: Decided) -> Verdict:
    headers = item.record.headers
    return as_asked(item.verdict, headers) if headers else item.verdict


def _answer(item: Decided, table: TableName) -> RecordedRejection:
    return RecordedRejection(item.record.position, item.verdict.code or "", item.verdict.message or "", table)


def _letter(item: Decided) -> DeadLetter:
    record = item.record
    return letter_of(item.verdict, record.key, record.value, record.headers)


TRACES_PER_S_MAX: Final = 100
_WAITING_MAX: Final = 10_000
_ROOTS_MAX: Final = 1_000


@dataclass(slots=True)
class TraceBudget:
    """Limits the intents whose traces a process records in one second, all tables together."""

    per_s_max: int = TRACES_PER_S_MAX
    _since_ns: int = 0
    _spent: int = 0

    def spend(self, now_ns: int) -> bool:
        """Whether the trace of one more intent may be recorded. Counts the intent."""
        if now_ns - self._since_ns >= 1_000_000_000 or now_ns < self._since_ns:
            self._since_ns, self._spent = now_ns, 0
        self._spent += 1
        return self._spent <= self.per_s_max


@dataclass(slots=True)
class CommitTraces:
    """Records the spans of one table's sampled intents. Call each method at the moment of its event."""

    table: TableName
    tracer: Tracer
    budget: TraceBudget
    _arrived_ns: dict[LogPosition, int] = field(default_factory=dict)
    _put_ns: dict[Version, int] = field(default_factory=dict)
    _landed_ns: dict[Version, int] = field(default_factory=dict)

    def arrived(self, records: Iterable[Record]) -> None:
        """Note that the table received these records."""
        now_ns = time.time_ns()
        for record in records:
            context = trace_of(record.headers) if record.headers else None
            if context is None or not context.is_sampled or len(self._arrived_ns) >= _WAITING_MAX:
                continue
            if self.budget.spend(now_ns):
                self._arrived_ns[record.position] = now_ns

    def putting(self, version: Version) -> None:
        """Note that the PUT of the root of `version` begins, perhaps as a retry."""
        if self._arrived_ns:
            self._put_ns[version] = time.time_ns()

    def landed(self, version: Version) -> None:
        """Note that the root of `version` is confirmed."""
        if version in self._put_ns:
            self._landed_ns[version] = time.time_ns()
            while len(self._landed_ns) > _ROOTS_MAX:
                self._forget(next(iter(self._landed_ns)))

    def on_published(self, publication: Publication) -> None:
        """Note that the log has acknowledged these verdicts. Ends the spans of their intents."""
        version = publication.version
        if publication.traces and self._arrived_ns:
            self._record(publication)
        if version is not None:
            for older in [known for known in self._put_ns if known <= version]:
                self._forget(older)

    def _record(self, publication: Publication) -> None:
        told_ns, version = time.time_ns(), publication.version
        put_ns = None if version is None else self._put_ns.get(version)
        landed_ns = None if version is None else self._landed_ns.get(version)
        for verdict, context in zip(publication.verdicts, publication.traces, strict=True):
            position = LogPosition(verdict.log, verdict.partition, verdict.offset)  # type: ignore[arg-type]
            arrived_ns = self._arrived_ns.pop(position, None)
            if context is None or arrived_ns is None:
                continue
            facts: dict[str, str | int] = {
                "rootline.table": self.table,
                "rootline.intent_id": verdict.intent_id,
                "rootline.verdict": verdict.kind.value,
                "messaging.destination.partition.id": verdict.partition,
                "messaging.kafka.offset": verdict.offset,
            }
            if verdict.code:
                facts["rootline.code"] = verdict.code
            if version is not None:
                facts["rootline.version"] = version
            if put_ns is None or landed_ns is None:  # not decided by a root of this process
                self.tracer.record("rootline decide", context, arrived_ns, told_ns, facts)
                continue
            begun_ns = max(put_ns, arrived_ns)
            self.tracer.record("rootline decide", context, arrived_ns, begun_ns, facts)
            self.tracer.record("rootline put root", context, begun_ns, landed_ns, facts)
            self.tracer.record("rootline tell verdict", context, landed_ns, told_ns, facts)

    def _forget(self, version: Version) -> None:
        self._put_ns.pop(version, None)
        self._landed_ns.pop(version, None)
