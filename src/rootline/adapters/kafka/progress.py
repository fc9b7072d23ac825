"""The offsets that a member has the group remember.

Owns: that offsets only move forward, and when the bookmark is written. Does not own: how they are written
(`group_offsets`), which partitions the member has (`membership`).
Invariants: an offset is committed only for a partition of this member, under the membership in which the member got it;
an offset that is not above the remembered one is not sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from rootline.adapters.kafka.group_offsets import Stage, commit_offsets, write_bookmark
from rootline.adapters.kafka.membership import KafkaMembership
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.schemas.log_position import LogId
from rootline.schemas.root_header import PartitionOffset

_BOOKMARK_AGE_S: Final = 3_600.0  # a group forgets offsets of a topic that it does not read, after days


class KafkaProgress:
    """For one event loop."""

    def __init__(self, settings: KafkaSettings, membership: KafkaMembership) -> None:
        self._settings = settings
        self._membership = membership
        self._turn = asyncio.Lock()
        self._bookmarked_at_s = -_BOOKMARK_AGE_S

    async def decided(self, up_to: Sequence[PartitionOffset]) -> None:
        """As `IntentFeed.decided`."""
        await self._tell(up_to, Stage.READING)

    async def concluded(self, up_to: Sequence[PartitionOffset]) -> None:
        """As `IntentFeed.concluded`."""
        await self._tell(up_to, Stage.CONCLUDED)

    async def _tell(self, up_to: Sequence[PartitionOffset], stage: Stage) -> None:
        async with self._turn:
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
        try:
            async with asyncio.timeout(self._settings.request_timeout_s):
                await commit_offsets(consumer, moved, log, generation=generation, stage=stage)
        except (KafkaError, TimeoutError) as error:
            raise membership.translated(error) from None
        if membership.generation == generation:
            for at, offset in moved.items():
                membership.places[at].committed = offset
            membership.frontiers.note(log, {at.partition: offset for at, offset in moved.items()})
            if stage is Stage.CONCLUDED:
                await membership.frontiers.flush()
        now_s = asyncio.get_running_loop().time()
        if now_s - self._bookmarked_at_s > _BOOKMARK_AGE_S and await write_bookmark(
            self._settings, consumer, log, generation=generation
        ):
            self._bookmarked_at_s = now_s
