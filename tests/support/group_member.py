"""One reader of a group log: the port of a coordinator's log over memory.

Owns: what this reader believes to have, and how far it has read. Does not own: who is given what
(`consumer_group`), the records (`partitioned_log`).
Invariants: those of the port; and nothing may be remembered past a record whose verdict, or dead letter, is not on the
log: that fails the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from rootline.ports.intent_feed import (
    Assigned,
    Delivered,
    FeedEvent,
    Partition,
    Pause,
    RecordedRejection,
    Reread,
    Revoked,
)
from rootline.schemas.errors import Fenced, Unavailable
from rootline.schemas.identifiers import LogId, LogRecord, TableName
from rootline.schemas.parts.log import PartitionOffset
from rootline.schemas.verdict import DeadLetter, Verdict
from tests.support.consumer_group import NOBODY, ConsumerGroup
from tests.support.group_parking import GroupParking
from tests.support.partitioned_log import PartitionedLog

Hook = Callable[[str, str], Awaitable[None]]
"""Called with the operation and the reader.

Operations: next, released, decided, concluded, record_rejections, read_again, end_offset, lag, verdicts, letters. What
fails before `letters` has kept verdicts, and no dead letters. And those of parking: park, read_parked, unpark, lifts,
lifted.
"""
READ_MAX: Final = 1_024


async def nothing(operation: str, reader: str) -> None:
    """The hook that does nothing."""


class _Stage(Enum):
    """What a reader believes: that it has nothing, that it reads, or that it has yet to say what it let go of."""

    AWAY = "away"
    READING = "reading"
    LETTING_GO = "letting go"


@dataclass(slots=True)
class Hooks:
    """What a test does before and after each operation, and how many records one read brings at most.

    `wary`: whether readers are told of records that may have ended the one before; they try those in a real process.
    `retention_s`: how long the log says that it keeps records; without it, nothing is parked.
    """

    before: Hook = nothing
    after: Hook = nothing
    read_max: int = READ_MAX
    wary: bool = False
    retention_s: float | None = None


HELD_CHARS_MAX: Final = 200_000
"""Of the reasons of answers that are held of a partition."""


@dataclass(slots=True)
class GroupMember:
    """One process's connection. `hears`: cleared while the process, or its connection to the group, stops."""

    reader: str
    contents: PartitionedLog
    group: ConsumerGroup
    hooks: Hooks
    hears: asyncio.Event = field(default_factory=asyncio.Event)
    is_dead: bool = False
    positions: dict[int, int] = field(default_factory=dict)
    _log: LogId | None = None
    _stage: _Stage = _Stage.AWAY
    _generation: int = NOBODY
    _let_go_until_s: float = 0.0
    _told_end: bool = False
    _turn: int = 0
    _full: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.hears.set()

    @property
    def parking(self) -> GroupParking:
        """As the port says."""
        return GroupParking(self.contents, self.group.parked, self._owns, self._heard, self._after)

    def _owns(self, log: LogId, partition: int) -> bool:
        is_owner = self.group.is_owner(self.reader, self._generation)
        return is_owner and log == self._log and partition in self.positions

    async def _after(self, operation: str) -> None:
        await self.hooks.after(operation, self.reader)

    async def next(self, *, wait_s: float, deliver: bool = True) -> FeedEvent:
        """As the port says."""
        await self._heard("next")
        until_s = _now_s() + wait_s
        while True:
            event = self._membership_event()
            may_read = self._stage is _Stage.READING and deliver
            if event is None and may_read:
                event = self._delivered()
            if event is not None:
                return event
            left_s = until_s - _now_s()
            if left_s <= 0:
                return Delivered((), at_end=may_read and self._is_at_end)
            if self._stage is _Stage.LETTING_GO:
                left_s = min(left_s, max(0.0, self._let_go_until_s - _now_s()))
            await self.contents.changes.wait(left_s)
            await self.hears.wait()

    async def released(self) -> None:
        """As the port says."""
        await self._heard("released")
        if self._stage is _Stage.LETTING_GO:
            self._lose_all()
            self.group.let_go(self.reader)

    async def decided(self, up_to: Sequence[PartitionOffset]) -> None:
        """As the port says."""
        await self._tell("decided", up_to)

    async def concluded(self, up_to: Sequence[PartitionOffset]) -> None:
        """As the port says."""
        await self._tell("concluded", up_to)

    async def _tell(self, operation: str, up_to: Sequence[PartitionOffset]) -> None:
        await self._heard(operation)
        is_owner = self.group.is_owner(self.reader, self._generation)
        strange = [
            item.partition
            for item in up_to
            if not is_owner or item.log != self._log or item.partition not in self.positions
        ]
        for log, partition, offset in up_to:
            if partition not in strange:
                self._remember(log, partition, offset)
                if operation == "concluded":
                    self.group.in_hand.discard(partition)
        if strange:
            raise Unavailable("log-unavailable", f"partitions {strange} are not this reader's: not remembered")
        await self.hooks.after(operation, self.reader)

    async def record_rejections(self, rejections: Sequence[RecordedRejection]) -> None:
        """As the port says."""
        await self._heard("record_rejections")
        is_owner = self.group.is_owner(self.reader, self._generation)
        for partition in sorted({answer.position.partition for answer in rejections}):
            self._check_room(partition, [answer for answer in rejections if answer.position.partition == partition])
        for answer in rejections:
            log, partition, offset = answer.position
            if not is_owner or log != self._log or partition not in self.positions:
                raise Unavailable("log-unavailable", f"{answer.position} is not this reader's: not held")
            self.group.answered.setdefault((log, partition), {})[offset] = answer
        await self.hooks.after("record_rejections", self.reader)

    def _check_room(self, partition: int, answers: Sequence[RecordedRejection]) -> None:
        """Raise `Unavailable` if they are too many, unless all are below one that is held. A row counts once."""
        held = self.group.answered.get((self.contents.log_id, partition), {})
        known = {**held, **{answer.position.offset: answer for answer in answers}}
        size, before = 0, None
        for offset in sorted(offset for offset in known if offset >= self._passed(partition)):
            said = (known[offset].code, known[offset].message)
            size += len(known[offset].message) if before != (offset - 1, said) else 0
            before = (offset, said)
        highest = max((answer.position.offset for answer in answers if answer.position.offset not in held), default=-1)
        if size > HELD_CHARS_MAX and highest > max(held, default=-1):
            self._full[partition] = self._passed(partition)
            raise Unavailable("log-unavailable", f"partition {partition}: there is no room for more answers")

    async def confirm(self, generation: int) -> None:
        """As the port says."""
        await self._heard("confirm")
        if not self.group.is_owner(self.reader, generation):
            raise Unavailable("log-unavailable", "the partitions were assigned to other coordinators")
        await self.hooks.after("confirm", self.reader)

    def paused(self) -> Sequence[Partition]:
        """As the port says."""
        self._full = {number: passed for number, passed in self._full.items() if self._passed(number) == passed}
        return [(self.contents.log_id, number) for number in sorted(self._full) if number in self.positions]

    def _passed(self, partition: int) -> int:
        return self.group.remembered.get(partition, (None, 0))[1]

    async def pauses(self) -> Sequence[Pause]:
        """As the port says."""
        return tuple(self.group.paused)

    async def read_again(self, reader: str, start: PartitionOffset, *, limit: int) -> Reread:
        """As the port says."""
        await self.hooks.before("read_again", self.reader)
        self._check_log(start.log)
        self._check_range(start.partition, start.next_offset)
        found, position = self.contents.read(start.partition, start.next_offset, min(limit, self.hooks.read_max))
        await self.hooks.after("read_again", self.reader)
        return Reread(tuple(found), position)

    async def forget_reader(self, reader: str) -> None:
        """Nothing is kept of one."""

    async def end_offset(self, log: LogId, partition: int) -> int | None:
        """As the port says."""
        await self.hooks.before("end_offset", self.reader)
        if log != self.contents.log_id or partition >= self.contents.partitions:
            return None
        return self.contents.span(partition)[1]

    async def confirmed_version(self, table: TableName) -> int | None:
        """Unknown, as on Kafka."""
        return None

    async def lag(self) -> Mapping[Partition, int]:
        """As the port says."""
        await self.hooks.before("lag", self.reader)
        log = self._log
        if log is None:
            return {}
        ends = {partition: self.contents.span(partition)[1] for partition in self.positions}
        found = {(log, partition): max(0, end - self.positions[partition]) for partition, end in ends.items()}
        await self.hooks.after("lag", self.reader)
        return found

    async def publish_verdicts(self, verdicts: Sequence[Verdict], dead_letters: Sequence[DeadLetter]) -> None:
        """As the port says; a zombie may as well, because it says the same."""
        await self.hooks.before("verdicts", self.reader)
        self.contents.keep_verdicts(verdicts, [])
        if dead_letters:
            await self.hooks.before("letters", self.reader)
            self.contents.keep_verdicts([], dead_letters)
        await self.hooks.after("verdicts", self.reader)

    async def close(self) -> None:
        """Leave, unless this process has died."""
        if not self.is_dead:
            self.group.leave(self.reader)
        self._lose_all()

    @property
    def _is_at_end(self) -> bool:
        return all(offset >= self.contents.span(partition)[1] for partition, offset in self.positions.items())

    async def _heard(self, operation: str) -> None:
        await self.hears.wait()
        await self.hooks.before(operation, self.reader)
        await self.hears.wait()

    def _membership_event(self) -> FeedEvent | None:
        """What happened to this reader since it last asked."""
        group = self.group
        if self._stage is _Stage.READING:
            if group.is_owner(self.reader, self._generation) and not group.is_rebalancing:
                return None
            self._stage, self._let_go_until_s = _Stage.LETTING_GO, _now_s() + group.deadline_s
            return Revoked(group.deadline_s)
        if self._stage is _Stage.LETTING_GO:
            if _now_s() < self._let_go_until_s:
                return None
            self._lose_all()  # it did not answer, and loses them all the same
            group.let_go(self.reader)
        if not group.has_seat(self.reader):
            group.join(self.reader)
        if group.is_rebalancing and group.given_to(self.reader) is not None:
            group.let_go(self.reader)  # what it was given goes again before it ever had it
        given = group.given_to(self.reader)
        return None if given is None or group.is_rebalancing else self._assigned(given)

    def _assigned(self, given: Sequence[int]) -> Assigned:
        contents, group = self.contents, self.group
        log = contents.log_id
        self._check_log(group.bookmark)
        starts = []
        for partition in given:
            offset = self._start(partition)
            self._check_range(partition, offset)
            starts.append(PartitionOffset(log, partition, offset))
            group.recorded[log, partition] = offset
        group.bookmark = log
        self._log, self._generation, self._stage, self._told_end = log, group.generation, _Stage.READING, False
        self.positions = {partition: offset for _, partition, offset in starts}
        ends = [PartitionOffset(log, partition, contents.span(partition)[1]) for _, partition, _ in starts]
        poison_candidates = [
            end for start, end in zip(starts, ends, strict=True) if end > start and end.partition in group.in_hand
        ]
        group.in_hand.update(given)
        answered = [
            answer
            for log, partition, start in starts
            for offset, answer in sorted(group.answered.get((log, partition), {}).items())
            if offset >= start or group.parked.of(log, partition)
        ]
        parked = [item for log, partition, _ in starts for item in group.parked.of(log, partition)]
        suspects = tuple(poison_candidates) if self.hooks.wary else ()
        return Assigned(
            tuple(starts),
            suspects,
            tuple(answered),
            tuple(parked),
            self.hooks.retention_s,
            self._generation,
            paused=tuple(self.group.paused),
        )

    def _start(self, partition: int) -> int:
        """The greater of what the group remembers and what is recorded; without either, the beginning, if it is 0."""
        log, begin = self.contents.log_id, self.contents.span(partition)[0]
        known, remembered = self.group.remembered.get(partition, (None, None))
        self._check_log(known)
        recorded = self.group.recorded.get((log, partition))
        offset = max((found for found in (remembered, recorded) if found is not None), default=None)
        if offset is None and begin > 0:
            raise Fenced("offset-out-of-range", f"partition {partition} begins at {begin}, and nothing is known of it")
        return offset or 0

    def _delivered(self) -> Delivered | None:
        """What there is, from each partition in turn; once that there is no more; else `None`."""
        self._check_log(self._log)
        paused = {number for _, number in self.paused()}
        places = [number for number in sorted(self.positions) if number not in paused]
        self._turn += 1
        records: list[LogRecord] = []
        passed: list[PartitionOffset] = []
        for place in range(len(places)):
            partition = places[(place + self._turn) % len(places)]
            before = self.positions[partition]
            self._check_range(partition, before)
            found, position = self.contents.read(partition, before, self.hooks.read_max - len(records))
            records += found
            if position > (found[-1].position.offset + 1 if found else before):
                passed.append(PartitionOffset(self.contents.log_id, partition, position))
            self.positions[partition] = position
        is_news = self._is_at_end and not self._told_end
        self._told_end = self._is_at_end
        if not (records or passed or is_news):
            return None
        return Delivered(tuple(records), at_end=self._told_end, passed=tuple(passed))

    def _remember(self, log: LogId, partition: int, offset: int) -> None:
        contents, group = self.contents, self.group
        begin, end = contents.span(partition)
        _, before = group.remembered.get(partition, (log, begin))
        contents.must(offset <= end, f"partition {partition}: {offset} is remembered, but the log ends at {end}")
        if offset <= before:
            return
        for record in contents.read(partition, before, offset - before)[0]:
            if record.position.offset < offset:
                contents.must(
                    contents.is_settled(record.position) or group.parked.has(record),
                    f"{self.reader} has {offset} remembered, past {record.position}, "
                    "which has no acknowledged verdict and is not parked",
                )
        group.remembered[partition] = (log, offset)
        group.recorded[log, partition] = max(offset, group.recorded.get((log, partition), 0))

    def _check_log(self, known: LogId | None) -> None:
        if known is not None and known != self.contents.log_id:
            raise Fenced("log-replaced", f"offsets are known of {known}, but the log is {self.contents.log_id} now")

    def _check_range(self, partition: int, offset: int) -> None:
        begin, end = self.contents.span(partition)
        if offset > end:
            raise Fenced("log-behind-root", f"partition {partition}: {offset} was decided, the log ends at {end}")
        if offset < begin:
            raise Fenced("offset-out-of-range", f"partition {partition} lost offsets {offset} to {begin - 1}")

    def _lose_all(self) -> None:
        self._stage, self._generation, self.positions = _Stage.AWAY, NOBODY, {}


def _now_s() -> float:
    return asyncio.get_running_loop().time()
