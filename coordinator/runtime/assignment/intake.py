"""The intake of an assignment: each record of the log becomes an intent, or is rejected with a dead letter.

A record is *suspect* if it may have crashed the process that read it last.

Owns: decoding, trying suspect records in a child process, rejections that an earlier owner recorded, re-reading the
log, publishing rejections until the log has acknowledged them.
Does not own: the content of a rejection (`records`), the table that gets an intent (`partition_assignment`), the
progress of partitions (`frontier`, which is notified of every rejected record and every published rejection).
Invariants: A rejection is recorded in the log before it is published, because a later owner may have a version that can
read the record. No rejection is dropped. The caller never waits, but must check for room first. A rejection that is not
acknowledged blocks the frontier of its partition only. No record alone can fill the outbox.

Theory. Rejections are published in batches, in the order of the log. If the log refuses a batch, each rejection is
published alone. Those that are refused again are set aside and retried by another task, so that one bad record does not
delay the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rootline.coordinator.runtime.assignment.frontier import Frontier
from rootline.coordinator.runtime.records import (
    DecodingTrial,
    Principals,
    Rejection,
    decoded,
    of_lake,
    poison_rejection,
    recorded_rejection_of,
    with_recorded_rejection,
)
from rootline.library_log import library_logger
from rootline.ports.environment import Environment
from rootline.ports.intent_feed import IntentFeed, RecordedRejection, RecordingSink, Reread
from rootline.ports.retry_policy import jittered_s
from rootline.schemas.bytes.record_headers import Lake
from rootline.schemas.errors import Fenced, OutcomeUnknown, Unavailable
from rootline.schemas.identifiers import LogId, LogPosition, LogRecord
from rootline.schemas.intent_rules import IntentLimits
from rootline.schemas.parts.log import PartitionOffset
from rootline.schemas.verdict import Verdict, as_asked, coordinates_only, size_of
from rootline.tree.draft.batch import Record

_READ_MAX: Final = 256
_AT_ONCE_MAX: Final = 256
_BYTES_AT_ONCE_MAX: Final = 4_000_000
_WAITING_MAX: Final = 4_096
_LARGE_LETTERS: Final = 8
"""The number of dead letters that always fit into the outbox. Of a larger letter only the coordinates are kept."""

OnPublished = Callable[[Sequence[Verdict], bool], None]
"""Called with acknowledged verdicts on records without a table, and whether they had been published before."""


@dataclass(frozen=True, slots=True)
class AssignmentSettings:
    """The limits of an assignment.

    * `queue_bytes_max`: the most bytes of records in memory, all tables together.
    * `table_idle_s`: the idle time after which a table is closed.
    * `parking_after_s`: the time without a decision after which a table is parked.
    * `parked_bytes_max`: the most parked bytes of a table and partition.
    """

    limits: IntentLimits
    queue_bytes_max: int
    table_idle_s: float
    retry_s: float
    request_timeout_s: float
    parking_after_s: float = 600.0
    parked_bytes_max: int = 67_108_864
    principals: Principals | None = None
    """The writers and their permissions, or `None` if everybody who can publish may write."""
    lake: Lake | None = None
    """This lake. Records for another lake are rejected. `None` if it is unknown."""


@dataclass(slots=True)
class RejectionOutbox:
    """The outbox of rejections and dead letters.

    * `recorded` has the positions of rejections that an earlier owner recorded, and perhaps published.
    * `trouble` is the reason why some rejections cannot be published at present, or an empty string.
    * `buffered_bytes` is the size of all rejections that are not published.
    """

    verdicts: RecordingSink
    environment: Environment
    frontier: Frontier
    on_published: OnPublished
    recorded: Container[LogPosition]
    bytes_max: int
    request_timeout_s: float
    retry_s: float
    trouble: str = ""
    buffered_bytes: int = 0
    _waiting: list[Rejection] = field(default_factory=list)
    _set_aside: list[Rejection] = field(default_factory=list)
    _refused: asyncio.Event = field(default_factory=asyncio.Event)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _stopping: bool = False

    @property
    def is_full(self) -> bool:
        """Whether the caller must pause until rejections are published."""
        return self.waiting >= _WAITING_MAX or self.buffered_bytes >= self.bytes_max

    @property
    def waiting(self) -> int:
        """The number of rejections that are not published."""
        return len(self._waiting) + len(self._set_aside)

    def reject(self, rejections: Sequence[Rejection]) -> None:
        """Queue rejections. Each blocks its partition's frontier until the log has acknowledged it.

        The dead letter of a very large record has only its log, partition and offset.
        """
        for verdict, _ in rejections:
            self.frontier.rejected((LogId(verdict.log), verdict.partition), verdict.offset)
        letter_bytes_max = self.bytes_max // _LARGE_LETTERS
        kept = [
            (verdict, letter if size_of(letter) <= letter_bytes_max else coordinates_only(letter))
            for verdict, letter in rejections
        ]
        self._waiting.extend(kept)
        self.buffered_bytes += sum(map(_size, kept))
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
            self.buffered_bytes -= sum(map(_size, done))
            self._note_published(done)

    def _note_published(self, rejections: Sequence[Rejection]) -> None:
        fresh, again = list[Verdict](), list[Verdict]()
        for verdict, _ in rejections:
            position = LogPosition(LogId(verdict.log), verdict.partition, verdict.offset)
            (again if position in self.recorded else fresh).append(verdict)
            self.frontier.rejection_published(position[:2], verdict.offset)
        self.on_published(fresh, False)
        self.on_published(again, True)

    async def _publish(self, batch: Sequence[Rejection]) -> list[Rejection]:
        """Publish `batch` together. If that fails, publish each rejection alone. Returns those not acknowledged."""
        reason = await self._attempt(batch)
        if reason is None:
            return []
        reasons = [reason] if len(batch) == 1 else await asyncio.gather(*(self._attempt([one]) for one in batch))
        refused = [one for one, why in zip(batch, reasons, strict=True) if why is not None]
        if refused:
            reason = next(why for why in reasons if why is not None)
            self.trouble = f"dead letters cannot be published: {reason}"
            library_logger().warning("dead letters not published", action="retry", letters=len(refused), reason=reason)
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


def _first_of(waiting: Sequence[Rejection]) -> Sequence[Rejection]:
    """The next batch from the front of the queue, at least one rejection."""
    size = 0
    for count, rejection in enumerate(waiting[:_AT_ONCE_MAX]):
        size += _size(rejection)
        if count > 0 and size > _BYTES_AT_ONCE_MAX:
            return waiting[:count]
    return waiting[:_AT_ONCE_MAX]


def _size(rejection: Rejection) -> int:
    return size_of(rejection[1])


@dataclass(slots=True)
class Intake:
    """The intake of one assignment. Pass records to `examine` before `decoded`. `read_again` has done so already.

    * `recorded`: the rejections that an earlier owner of these partitions recorded.
    * `poison_candidates`: the partitions whose last reader crashed, each with the end of its suspect records.
    """

    log: IntentFeed
    frontier: Frontier
    settings: AssignmentSettings
    recorded: Mapping[LogPosition, RecordedRejection]
    poison_candidates: Sequence[PartitionOffset]
    _poison: dict[LogPosition, str] = field(default_factory=dict)
    _trial: DecodingTrial = field(init=False)

    def __post_init__(self) -> None:
        self._trial = DecodingTrial(self.settings.limits)

    async def close(self) -> None:
        """End the process that decodes records, if there is one."""
        await self._trial.close()

    async def examine(self, records: Sequence[LogRecord]) -> None:
        """Decode suspect records in a child process first, and note the records that crash it."""
        if not self.poison_candidates:
            return
        ends = {(log, partition): end for log, partition, end in self.poison_candidates}
        poison_candidates = [raw for raw in records if raw.position.offset < ends.get(raw.position[:2], 0)]
        if poison_candidates:
            self._poison |= await self._trial.poison_among(poison_candidates)
        elif all(self.frontier.next_offset(place) >= end for place, end in ends.items()):
            await self._trial.close()  # a separate reader that is behind starts the trial again

    async def read_again(self, reader: str, start: PartitionOffset) -> Reread | None:
        """Read the log from `start` on, and examine the records. Returns `None` if the log cannot be read now."""
        try:
            found = await self.log.read_again(reader, start, limit=_READ_MAX)
            await self.examine(found.records)
            return found
        except (Unavailable, OutcomeUnknown, Fenced) as error:  # the main reader detects fencing too
            library_logger().warning("log unreadable", action="retry", reader=reader, reason=str(error))
            return None

    def decoded(self, raw: LogRecord) -> Record | Rejection:
        """The intent in `raw`, or its rejection. A rejection that an earlier owner recorded is repeated."""
        how = self._poison.get(raw.position) if self._poison else None
        found = decoded(raw, self.settings.limits) if how is None else poison_rejection(raw, how)
        if self.settings.principals is not None and isinstance(found, Record):
            found = self.settings.principals.judged(raw, found)
        if self.settings.lake is not None and raw.headers and isinstance(found, Record):
            found = of_lake(raw, found, self.settings.lake)
        if self.recorded and (answer := self.recorded.get(raw.position)) is not None:
            return with_recorded_rejection(raw, found, answer.code, answer.message, answer.table)
        return found
