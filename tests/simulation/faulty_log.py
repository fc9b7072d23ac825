"""The log as each simulated process sees it: late, lossy, and sometimes without an answer to what was carried out.

Owns: what happens between a process and the one true log. Does not own: who asks, the group (`rootline.testing`).
Invariants: every choice comes from the world's seed; nothing that was published or remembered is taken back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from rootline.ports.intent_feed import (
    Assigned,
    FeedEvent,
    Lift,
    ParkedTable,
    Partition,
    Pause,
    RecordedRejection,
    Reread,
    Revoked,
)
from rootline.ports.intent_log import NewRecord
from rootline.schemas.bytes.intent_codec import decode_intent
from rootline.schemas.errors import OutcomeUnknown, Unavailable
from rootline.schemas.identifiers import LogId, LogPosition, LogRecord, TableName
from rootline.schemas.intent import IntentKind
from rootline.schemas.intent_rules import IntentLimits
from rootline.schemas.parts.log import PartitionOffset
from rootline.schemas.verdict import DeadLetter, Verdict
from tests.simulation.faulty_world import World
from tests.support.group_member import GroupMember
from tests.support.group_parking import GroupParking

_READ_MAX = 40


@dataclass(slots=True)
class CoordinatorsLog:
    """One coordinator's connection. A paused process hears nothing until it is resumed."""

    world: World
    name: str
    running: asyncio.Event
    member: GroupMember
    has_answered: bool = False

    @property
    def parking(self) -> FaultyParking:
        return FaultyParking(self, self.member.parking)

    async def next(self, *, wait_s: float, deliver: bool = True) -> FeedEvent:
        await self.running.wait()
        if self.has_answered:  # a log that cannot be reached at first ends the service: nothing to be learnt
            self._perhaps_away(0.01)
        self.world.log.hooks.read_max = self.world.rng.randint(1, _READ_MAX)
        event = await self.member.next(wait_s=wait_s, deliver=deliver)
        self.has_answered = True
        if isinstance(event, Assigned | Revoked):
            self.world.trace.note(self.name, type(event).__name__, *map(str, getattr(event, "starts", ())))
        await self.running.wait()
        return event

    async def released(self) -> None:
        await self._travel()
        await self.member.released()

    async def decided(self, up_to: Sequence[PartitionOffset]) -> None:
        await self._tell("remembers", self.member.decided, up_to)

    async def concluded(self, up_to: Sequence[PartitionOffset]) -> None:
        await self._tell("concludes", self.member.concluded, up_to)

    async def record_rejections(self, rejections: Sequence[RecordedRejection]) -> None:
        await self._travel()
        self._perhaps_away(0.03)
        await self.member.record_rejections(rejections)
        self.world.trace.note(self.name, "holds", [tuple(answer.position[1:]) for answer in rejections])
        self._perhaps_away(0.03)

    async def _tell(
        self, word: str, tell: Callable[[Sequence[PartitionOffset]], Awaitable[None]], up_to: Sequence[PartitionOffset]
    ) -> None:
        await self._travel()
        self._perhaps_away(0.05)
        await tell(up_to)
        self.world.trace.note(self.name, word, [tuple(item[1:]) for item in up_to])
        self._perhaps_away(0.05)

    async def confirm(self, generation: int) -> None:
        await self._travel()
        self._perhaps_away(0.03)
        await self.member.confirm(generation)
        await self._travel()

    def paused(self) -> Sequence[Partition]:
        return self.member.paused()

    async def pauses(self) -> Sequence[Pause]:
        return await self.member.pauses()

    async def read_again(self, reader: str, start: PartitionOffset, *, limit: int) -> Reread:
        await self._travel()
        self._perhaps_away(0.05)
        self.world.rereads += 1
        self.world.log.hooks.read_max = self.world.rng.randint(1, _READ_MAX)
        found = await self.member.read_again(reader, start, limit=limit)
        await self._travel()
        return found

    async def forget_reader(self, reader: str) -> None:
        await self.member.forget_reader(reader)

    async def end_offset(self, log: LogId, partition: int) -> int | None:
        await self._travel()
        self._perhaps_away(0.02)
        return await self.member.end_offset(log, partition)

    async def confirmed_version(self, table: TableName) -> int | None:
        return await self.member.confirmed_version(table)

    async def lag(self) -> Mapping[Partition, int]:
        return await self.member.lag()

    async def publish_verdicts(self, verdicts: Sequence[Verdict], dead_letters: Sequence[DeadLetter]) -> None:
        await self._travel()
        self._perhaps_away(0.03)
        for verdict in verdicts:
            outcome = (verdict.kind.value, verdict.version, verdict.sequence_number, verdict.code)
            self.world.trace.note(self.name, "verdict", verdict.partition, verdict.offset, *outcome)
        if self.world.chance(0.03):
            await self.member.publish_verdicts(verdicts, [])
            raise OutcomeUnknown("publish-unknown", "some of it was published")
        await self.member.publish_verdicts(verdicts, dead_letters)
        await self._travel()
        self._perhaps_away(0.03)

    async def close(self) -> None:
        await self.member.close()

    async def _travel(self) -> None:
        await asyncio.sleep(self.world.delay_s())
        await self.running.wait()

    def _perhaps_away(self, probability: float) -> None:
        if self.world.chance(probability):
            raise Unavailable("log-unavailable", "the broker restarts, perhaps after it has done what was asked")


@dataclass(slots=True)
class FaultyParking:
    """Its lot of parked records."""

    log: CoordinatorsLog
    lot: GroupParking

    async def park(self, parked: ParkedTable, records: Sequence[LogRecord]) -> ParkedTable:
        await self._before()
        made = await self.lot.park(parked, records)
        offsets = [record.position.offset for record in records]
        self.log.world.trace.note(self.log.name, "parks", parked.table, parked.partition, offsets)
        self.log.world.parked += len(records)
        self.log._perhaps_away(0.05)
        return made

    async def parked_records(
        self, parked: ParkedTable, from_offset: int, *, without_missing: bool
    ) -> AsyncGenerator[Sequence[LogRecord], None]:
        await self._before()
        async for portion in self.lot.parked_records(parked, from_offset, without_missing=without_missing):
            yield portion
            await self._before()

    async def unpark(self, parked: ParkedTable) -> None:
        await self._before()
        await self.lot.unpark(parked)
        self.log.world.trace.note(self.log.name, "unparks", parked.table, parked.partition)
        self.log._perhaps_away(0.05)

    async def lifts(self) -> Sequence[Lift]:
        await self._before()
        return await self.lot.lifts()

    async def lifted(self, lift: Lift) -> None:
        await self._before()
        await self.lot.lifted(lift)

    async def _before(self) -> None:
        await self.log._travel()
        self.log._perhaps_away(0.05)


@dataclass(slots=True)
class WorkersLog:
    """A worker's two sides of the log."""

    world: World

    async def publish(self, key: bytes, value: bytes) -> LogPosition:
        needed = self.world.needed.get(TableName(key.decode()))
        intent = None if needed is None else decode_intent(value, {}, IntentLimits())
        if needed is not None and intent is not None and intent.kind is IntentKind.EXPIRE:
            await needed.asked(intent)
        return await self.world.log.publish(key, value)

    async def publish_many(self, records: Sequence[NewRecord]) -> list[LogPosition]:
        return await self.world.log.publish_many(records)

    async def wait_verdict(self, position: LogPosition, *, timeout_s: float) -> Verdict | None:
        return await self.world.log.wait_verdict(position, timeout_s=timeout_s)
