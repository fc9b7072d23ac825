"""The offsets, rejections and parked records that a member of the group has stored for its partitions.

Owns: that offsets never decrease, when the bookmark is written, the steps of recording a rejection and of parking
records. Does not own: how offsets are written (`group_offsets`), the records (`frontier_codec`, `parked_topic`), which
partitions the member has (`membership`).
Invariants: An offset is committed only for a partition of this member, in the generation in which the member received
it. An offset that is not above the committed one is not sent. The names of a partition (the list of its
parked tables) contain only records that are stored. Rejections and names count only when they are durable *and* the
group has accepted a later commit of the same generation. So every later owner has read them (decision 0043). Parked
records are removed only after names without them were confirmed in that way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from typing_extensions import override

from rootline.adapters.kafka.frontier_codec import (
    ANSWER_RECORD_BYTES_MAX,
    ANSWERS_MAX,
    PARKING_RECORD_BYTES_MAX,
    AnswerRecord,
    ParkingRecord,
    answers_to_bytes,
    lift_outgoing,
    outgoing,
    parking_outgoing,
)
from rootline.adapters.kafka.frontiers import mark_of_record, read_frontiers
from rootline.adapters.kafka.group_offsets import Stage, commit_offsets, write_bookmark
from rootline.adapters.kafka.membership import KafkaMembership, Place
from rootline.adapters.kafka.parked_topic import ParkedTopic
from rootline.adapters.settings import KafkaSettings
from rootline.ports.intent_feed import Lift, ParkedRun, ParkedStore, ParkedTable, RecordedRejection
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import LogId, LogPosition, LogRecord, TableName
from rootline.schemas.parts.log import PartitionOffset

_RECORD_BYTES_MOST: Final = 900_000
_BOOKMARK_AGE_S: Final = 3_600.0  # offsets of a topic that the group does not read expire after days


class KafkaProgress:
    """Commits the offsets of one member. For one event loop."""

    def __init__(self, settings: KafkaSettings, membership: KafkaMembership) -> None:
        self._settings = settings
        self._membership = membership
        self.turn = asyncio.Lock()
        """Acquired for each commit, so that no older offset is sent after a newer one."""
        self._bookmarked_at_s = -_BOOKMARK_AGE_S
        self._asked = 0
        self._confirmed = (-1, 0)

    async def decided(self, up_to: Sequence[PartitionOffset]) -> None:
        """Commit offsets, as `IntentFeed.decided` describes."""
        await self._commit(up_to, Stage.READING)

    async def concluded(self, up_to: Sequence[PartitionOffset]) -> None:
        """Commit the last offsets, as `IntentFeed.concluded` describes."""
        await self._commit(up_to, Stage.CONCLUDED)

    async def confirm(self, generation: int) -> None:
        """Confirm, as `IntentFeed.confirm` describes. Calls that arrive during a commit share the next commit."""
        self._asked += 1
        number = self._asked
        async with self.turn:
            if self._confirmed[0] == generation and self._confirmed[1] >= number:
                return
            covered = self._asked
            await self._confirm(generation)
            self._confirmed = (generation, covered)

    async def _confirm(self, generation: int) -> None:
        membership = self._membership
        consumer, log = membership.consumer, membership.log
        at = min(membership.places, default=None)
        if consumer is None or log is None or at is None or membership.generation != generation:
            raise membership.unavailable("the partitions were assigned to other coordinators")
        place = membership.places[at]
        try:
            async with asyncio.timeout(self._settings.request_timeout_s):
                offset = max(place.committed, place.sent)  # it never decreases
                await commit_offsets(consumer, {at: offset}, log, generation=generation)
        except (KafkaError, TimeoutError) as error:
            raise membership.translated(error) from None

    async def _commit(self, up_to: Sequence[PartitionOffset], stage: Stage) -> None:
        async with self.turn:
            membership = self._membership
            consumer, log, generation = membership.consumer, membership.log, membership.generation
            moved: dict[TopicPartition, int] = {}
            strange: list[int] = []
            for named, partition, offset in up_to:
                at = TopicPartition(self._settings.intents_topic, partition)
                place = membership.places.get(at)
                if place is None or named != log:
                    strange.append(partition)
                elif offset > place.committed or stage is Stage.CONCLUDED:
                    moved[at] = max(offset, place.committed)
            if moved and consumer is not None and log is not None:
                await self._remember(consumer, log, moved, generation, stage)
        if strange:
            raise membership.unavailable(
                f"partitions {strange} do not belong to this coordinator (any more), so they were not committed"
            )

    async def _remember(
        self, consumer: AIOKafkaConsumer, log: LogId, moved: Mapping[TopicPartition, int], generation: int, stage: Stage
    ) -> None:
        membership = self._membership
        for at, offset in moved.items():
            membership.places[at].sent = max(offset, membership.places[at].sent)
        try:
            async with asyncio.timeout(self._settings.request_timeout_s):
                await commit_offsets(consumer, moved, log, generation=generation, stage=stage)
        except (KafkaError, TimeoutError) as error:
            raise membership.translated(error) from None
        if membership.generation == generation:
            for at, offset in moved.items():
                membership.places[at].committed = offset
            read = {at.partition: membership.places[at].last for at in moved}
            marks = {number: mark for number, last in read.items() if last and (mark := mark_of_record(last))}
            membership.frontiers.note(log, {at.partition: offset for at, offset in moved.items()}, marks)
            if stage is Stage.CONCLUDED:
                await membership.frontiers.flush()
        now_s = asyncio.get_running_loop().time()
        if now_s - self._bookmarked_at_s > _BOOKMARK_AGE_S and await write_bookmark(
            self._settings, consumer, log, generation=generation
        ):
            self._bookmarked_at_s = now_s


class AnswerHolder:
    """Stores rejections in the frontiers topic, so that a later owner of the partition repeats them.

    Use it on one event loop. `committing`: a lock for the offset commits of this member.
    """

    def __init__(self, settings: KafkaSettings, membership: KafkaMembership, committing: asyncio.Lock) -> None:
        self._settings = settings
        self._membership = membership
        self._committing = committing
        self._turn = asyncio.Lock()
        self._waiting: dict[LogPosition, RecordedRejection] = {}
        self._full: dict[TopicPartition, tuple[Place, int]] = {}

    def without_room(self) -> frozenset[TopicPartition]:
        """The partitions whose record has no room for another rejection, until their offset advances."""
        places = self._membership.places
        for at, (place, committed) in tuple(self._full.items()):
            if places.get(at) is not place or place.committed != committed:
                del self._full[at]
        return frozenset(self._full)

    async def record_rejections(self, rejections: Sequence[RecordedRejection]) -> None:
        """Record rejections, as the port describes. Calls that arrive during a write share the next record."""
        wanted = {answer.position: answer for answer in rejections}
        self._waiting |= wanted
        try:
            async with self._turn:
                missing = {place: answer for place, answer in wanted.items() if not self._is_held(answer)}
                if missing and not (await self._written(self._waiting | missing) or await self._written(missing)):
                    full = sorted({place.partition for place in missing})
                    raise self._membership.unavailable(
                        f"partitions {full}: over {ANSWER_RECORD_BYTES_MAX} bytes or {ANSWERS_MAX} rejections wait for "
                        "the offset of their partition to pass them. These partitions are not read until a blocked "
                        "table continues. See /readyz for the table"
                    )
        finally:
            for place in wanted:
                self._waiting.pop(place, None)

    def _is_held(self, answer: RecordedRejection) -> bool:
        _, partition, offset = answer.position
        place = self._membership.places.get(TopicPartition(self._settings.intents_topic, partition))
        return place is not None and place.held is not None and place.held.answers.get(offset) == answer

    async def _written(self, answers: Mapping[LogPosition, RecordedRejection]) -> bool:
        """Record the rejections, and return whether there was room for them."""
        membership, settings = self._membership, self._settings
        consumer, log, generation = membership.consumer, membership.log, membership.generation
        more: dict[TopicPartition, dict[int, RecordedRejection]] = {}
        for (named, partition, offset), answer in answers.items():
            at = TopicPartition(settings.intents_topic, partition)
            place = membership.places.get(at)
            if consumer is None or place is None or place.held is None or named != log:
                raise membership.unavailable(f"partition {partition} does not belong to this coordinator (any more)")
            more.setdefault(at, {})[offset] = answer
        changed: dict[TopicPartition, AnswerRecord] = {}
        for at, added in more.items():
            place = membership.places[at]
            assert place.held is not None
            parked = () if place.parked is None else tuple(place.parked.tables.values())
            changed[at] = place.held.with_more(added, start=place.committed, parked=parked)
        over = [at for at, record in changed.items() if not _has_room(membership.places[at], record)]
        for at in over:
            self._full[at] = (membership.places[at], membership.places[at].committed)
        if over:
            return False
        await membership.frontiers.publish([outgoing(settings, record) for record in changed.values()])
        assert consumer is not None
        assert log is not None
        try:
            async with asyncio.timeout(settings.request_timeout_s), self._committing:
                known = {at: membership.places[at] for at in changed if at in membership.places}
                offsets = {at: max(place.committed, place.sent) for at, place in known.items()}  # it never decreases
                await commit_offsets(consumer, offsets, log, generation=generation)
        except (KafkaError, TimeoutError) as error:
            raise membership.translated(error) from None
        if membership.generation != generation or len(offsets) < len(changed):
            raise membership.unavailable("the partitions were assigned to other coordinators")
        for at, record in changed.items():
            membership.places[at].held = record
        return True


def _has_room(place: Place, record: AnswerRecord) -> bool:
    """Whether the record is small enough to be written.

    If all new rejections precede one that is recorded already, the limit is almost the topic's. Without them the
    committed offset could not pass the recorded one, and the record would never become smaller.
    """
    if len(record.answers) > ANSWERS_MAX:
        return False
    size = len(answers_to_bytes(record))
    if size <= ANSWER_RECORD_BYTES_MAX:
        return True
    before = place.held.answers.keys() if place.held is not None else set()
    return size <= _RECORD_BYTES_MOST and bool(before) and max(record.answers.keys() - before, default=0) < max(before)


class KafkaParkedStore(ParkedStore):
    """The parked store of one member. For one event loop. `committing`: a lock for its offset commits."""

    def __init__(self, settings: KafkaSettings, membership: KafkaMembership, committing: asyncio.Lock) -> None:
        self._settings = settings
        self._membership = membership
        self._committing = committing
        self._turn = asyncio.Lock()
        self._topic = ParkedTopic(settings)
        self._failed: set[tuple[TableName, LogId, int]] = set()

    @override
    async def park(self, parked: ParkedTable, records: Sequence[LogRecord]) -> ParkedTable:
        async with self._turn:
            place = self._place(parked)
            if records:
                name, attempt = place.parked.name, (parked.table, parked.log, parked.partition)
                begins_run = attempt in self._failed
                self._failed.add(attempt)  # until it succeeds, because a run has no records of an attempt that failed
                run = await self._topic.store(parked, records, name)
                parked = replace(
                    parked,
                    records=parked.records + len(records),
                    size_in_bytes=parked.size_in_bytes + sum(map(_size, records)),
                    oldest_ms=parked.oldest_ms if parked.records else records[0].appended_ms,
                    first_offset=parked.first_offset if parked.records else records[0].position.offset,
                    runs=(*parked.runs, run) if begins_run else _joined(parked.runs, run),
                )
            await self._write(parked, {**place.parked.tables, parked.table: parked})
            if records:
                self._failed.discard((parked.table, parked.log, parked.partition))
            return parked

    @override
    async def parked_records(
        self, parked: ParkedTable, from_offset: int, *, without_missing: bool
    ) -> AsyncGenerator[Sequence[LogRecord], None]:
        self._place(parked)
        portions = self._topic.read(parked, from_offset, without_missing=without_missing)
        try:
            async for portion in portions:
                yield portion
        finally:
            await portions.aclose()

    @override
    async def unpark(self, parked: ParkedTable) -> None:
        async with self._turn:
            tables = {table: held for table, held in self._place(parked).parked.tables.items() if table != parked.table}
            await self._write(parked, tables)
            if parked.runs:
                left = [run.first for held in tables.values() for run in held.runs]
                end = min([*left, 1 + max(run.last for run in parked.runs)])
                await self._topic.remove_before(parked.partition, end, log=parked.log)

    @override
    async def lifts(self) -> Sequence[Lift]:
        log = self._membership.log
        if log is None:
            return ()
        recorded = await read_frontiers(self._settings, log, warns=False)  # called repeatedly
        own = {at.partition for at in self._membership.places}
        return [lift for lift in recorded.lifts if lift.partition in own]

    @override
    async def lifted(self, lift: Lift) -> None:
        """Record that `lift` was carried out, if the group still accepts commits of this member."""
        await self._confirm(lift.log, lift.partition, self._membership.generation)
        await self._membership.frontiers.publish([lift_outgoing(self._settings, lift, done=True)])

    async def close(self) -> None:
        """Close the connection."""
        await self._topic.close()

    def _place(self, parked: ParkedTable) -> _Parking:
        membership = self._membership
        place = membership.places.get(TopicPartition(self._settings.intents_topic, parked.partition))
        if place is None or place.parked is None or membership.log != parked.log or membership.consumer is None:
            raise self._not_owned(parked.partition)
        return _Parking(place, place.parked)

    async def _write(self, parked: ParkedTable, tables: Mapping[TableName, ParkedTable]) -> None:
        membership = self._membership
        generation, held = membership.generation, self._place(parked)
        after = replace(held.parked, tables=dict(tables), began=True)
        outgoing = parking_outgoing(self._settings, after)
        if len(outgoing.value or b"") > PARKING_RECORD_BYTES_MAX:
            raise membership.unavailable(
                f"the list of the parked tables of partition {parked.partition} would exceed "
                f"{PARKING_RECORD_BYTES_MAX} bytes. Lift some of them: see `rootline quarantine list`"
            )
        await membership.frontiers.publish([outgoing])
        await self._confirm(parked.log, parked.partition, generation)
        held.place.parked = after

    async def _confirm(self, log: LogId, partition: int, generation: int) -> None:
        """Commit in this generation, so that later owners have read everything that was written before."""
        membership = self._membership
        consumer = membership.consumer
        at = TopicPartition(self._settings.intents_topic, partition)
        place = membership.places.get(at)
        if place is None or consumer is None or membership.log != log or membership.generation != generation:
            raise self._not_owned(partition)
        try:
            async with asyncio.timeout(self._settings.request_timeout_s), self._committing:
                offset = max(place.committed, place.sent)  # it never decreases
                await commit_offsets(consumer, {at: offset}, log, generation=generation)
        except (KafkaError, TimeoutError) as error:
            raise membership.translated(error) from None
        if membership.generation != generation or membership.places.get(at) is not place:
            raise self._not_owned(partition)

    def _not_owned(self, partition: int) -> Unavailable:
        return self._membership.unavailable(f"partition {partition} does not belong to this coordinator (any more)")


class _Parking:
    """A partition of this member, and its parked tables."""

    def __init__(self, place: Place, parked: ParkingRecord) -> None:
        self.place = place
        self.parked = parked


def _joined(runs: tuple[ParkedRun, ...], run: ParkedRun) -> tuple[ParkedRun, ...]:
    if runs and runs[-1].writer == run.writer and run.first > runs[-1].last:  # otherwise the topic was created again
        return (*runs[:-1], replace(runs[-1], last=run.last))
    return (*runs, run)


def _size(raw: LogRecord) -> int:
    return len(raw.key or b"") + len(raw.value) + sum(len(name) + len(value or b"") for name, value in raw.headers)
