"""The offsets that a member has the group remember, and the rejections that it has held before they are told.

Owns: that offsets only move forward, when the bookmark is written, the steps of holding. Does not own: how they are
written (`group_offsets`, `frontier/answers`), which partitions the member has (`membership`).
Invariants: an offset is committed only for a partition of this member, under the membership in which the member got it;
an offset that is not above the remembered one is not sent; a rejection is held only when its record is durable, *and*
the group has accepted a commit of the same generation after that, so that every later owner has read it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from rootline.adapters.kafka.frontier.answers import (
    ANSWER_RECORD_BYTES_MAX,
    ANSWERS_MAX,
    AnswerRecord,
    answers_to_bytes,
    outgoing,
)
from rootline.adapters.kafka.frontier.marks import mark_of_record
from rootline.adapters.kafka.group_offsets import Stage, commit_offsets, write_bookmark
from rootline.adapters.kafka.membership import KafkaMembership, Place
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.ports.intent_feed import Answer
from rootline.schemas.identifiers import LogId, LogPosition
from rootline.schemas.root_header import PartitionOffset

_RECORD_BYTES_MOST: Final = 900_000
_BOOKMARK_AGE_S: Final = 3_600.0  # a group forgets offsets of a topic that it does not read, after days


class KafkaProgress:
    """For one event loop."""

    def __init__(self, settings: KafkaSettings, membership: KafkaMembership) -> None:
        self._settings = settings
        self._membership = membership
        self.turn = asyncio.Lock()
        """Held for each commit, so that no older offset is sent after a newer one."""
        self._bookmarked_at_s = -_BOOKMARK_AGE_S
        self._asked = 0
        self._confirmed = (-1, 0)

    async def decided(self, up_to: Sequence[PartitionOffset]) -> None:
        """As `IntentFeed.decided`."""
        await self._tell(up_to, Stage.READING)

    async def concluded(self, up_to: Sequence[PartitionOffset]) -> None:
        """As `IntentFeed.concluded`."""
        await self._tell(up_to, Stage.CONCLUDED)

    async def confirm(self, term: int) -> None:
        """As `IntentFeed.confirm`. Calls that come while a commit is under way share the next one."""
        self._asked += 1
        number = self._asked
        async with self.turn:
            if self._confirmed[0] == term and self._confirmed[1] >= number:
                return
            covered = self._asked
            await self._confirm(term)
            self._confirmed = (term, covered)

    async def _confirm(self, term: int) -> None:
        membership = self._membership
        consumer, log = membership.consumer, membership.log
        at = min(membership.places, default=None)
        if consumer is None or log is None or at is None or membership.generation != term:
            raise membership.unavailable("the partitions went to others")
        place = membership.places[at]
        try:
            async with asyncio.timeout(self._settings.request_timeout_s):
                offset = max(place.committed, place.sent)  # it never goes back
                await commit_offsets(consumer, {at: offset}, log, generation=term)
        except (KafkaError, TimeoutError) as error:
            raise membership.translated(error) from None

    async def _tell(self, up_to: Sequence[PartitionOffset], stage: Stage) -> None:
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
                f"partitions {strange} do not belong to this member (any more), so nothing was remembered of them"
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
    """For one event loop. `committing`: held for each commit of this member."""

    def __init__(self, settings: KafkaSettings, membership: KafkaMembership, committing: asyncio.Lock) -> None:
        self._settings = settings
        self._membership = membership
        self._committing = committing
        self._turn = asyncio.Lock()
        self._waiting: dict[LogPosition, Answer] = {}
        self._full: dict[TopicPartition, tuple[Place, int]] = {}

    def without_room(self) -> frozenset[TopicPartition]:
        """The partitions whose record had no room for an answer, until their offset moves."""
        places = self._membership.places
        for at, (place, committed) in tuple(self._full.items()):
            if places.get(at) is not place or place.committed != committed:
                del self._full[at]
        return frozenset(self._full)

    async def hold(self, answers: Sequence[Answer]) -> None:
        """As `IntentFeed.hold`. Calls that come while one is under way share the next record."""
        wanted = {answer.position: answer for answer in answers}
        self._waiting |= wanted
        try:
            async with self._turn:
                missing = {place: answer for place, answer in wanted.items() if not self._is_held(answer)}
                if missing and not (await self._written(self._waiting | missing) or await self._written(missing)):
                    full = sorted({place.partition for place in missing})
                    raise self._membership.unavailable(
                        f"over {ANSWER_RECORD_BYTES_MAX} bytes or {ANSWERS_MAX} of rejections wait for the offset of "
                        f"their partition to pass them, among partitions {full}: it is not read until a table on it "
                        "goes on (see /readyz)"
                    )
        finally:
            for place in wanted:
                self._waiting.pop(place, None)

    def _is_held(self, answer: Answer) -> bool:
        _, partition, offset = answer.position
        place = self._membership.places.get(TopicPartition(self._settings.intents_topic, partition))
        return place is not None and place.held is not None and place.held.answers.get(offset) == answer

    async def _written(self, answers: Mapping[LogPosition, Answer]) -> bool:
        """Whether there was room; then they are held."""
        membership, settings = self._membership, self._settings
        consumer, log, generation = membership.consumer, membership.log, membership.generation
        more: dict[TopicPartition, dict[int, Answer]] = {}
        for (named, partition, offset), answer in answers.items():
            at = TopicPartition(settings.intents_topic, partition)
            place = membership.places.get(at)
            if consumer is None or place is None or place.held is None or named != log:
                raise membership.unavailable(f"partition {partition} does not belong to this member (any more)")
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
                offsets = {at: max(place.committed, place.sent) for at, place in known.items()}  # it never goes back
                await commit_offsets(consumer, offsets, log, generation=generation)
        except (KafkaError, TimeoutError) as error:
            raise membership.translated(error) from None
        if membership.generation != generation or len(offsets) < len(changed):
            raise membership.unavailable("the partitions went to others")
        for at, record in changed.items():
            membership.places[at].held = record
        return True


def _has_room(place: Place, record: AnswerRecord) -> bool:
    """Whether the record may be written.

    What lies below an answer that is held already always may, within what the topic takes: the offset cannot pass the
    one without the other.
    """
    if len(record.answers) > ANSWERS_MAX:
        return False
    size = len(answers_to_bytes(record))
    if size <= ANSWER_RECORD_BYTES_MAX:
        return True
    before = place.held.answers.keys() if place.held is not None else set()
    return size <= _RECORD_BYTES_MOST and bool(before) and max(record.answers.keys() - before, default=0) < max(before)
