"""A coordinator's side of a log on Kafka: reading intents, publishing verdicts.

Owns: both sides as one object. Does not own: either side (`intent_feed`, `verdict_sink`).
Invariants: closing ends both sides, even if one of them fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rootline.adapters.kafka.intent_feed import KafkaIntentFeed
from rootline.adapters.kafka.parking_lot.lot import KafkaParkedStore
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.adapters.kafka.verdict_sink import KafkaVerdictSink
from rootline.ports.intent_feed import Answer, FeedEvent, Partition, Reread
from rootline.ports.pausing import Pause
from rootline.schemas.bytes.log.lake_claim import Lake
from rootline.schemas.dead_letter import DeadLetter
from rootline.schemas.identifiers import TableName
from rootline.schemas.log_position import LogId
from rootline.schemas.root_header import PartitionOffset
from rootline.schemas.verdict import Verdict


class KafkaCoordinatorLog:
    """Both sides connect with the first `next`; for one event loop. Each method is as its port says."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._feed = KafkaIntentFeed(settings)
        self._verdicts = KafkaVerdictSink(settings)

    async def introduce(self, lake: Lake) -> None:
        """Note the lake that the caller works for. The group of another lake refuses it with the first `next`."""
        self._feed.introduce(lake)

    @property
    def parking(self) -> KafkaParkedStore:
        """As `CoordinatorLog.parking`."""
        return self._feed.parking

    async def next(self, *, wait_s: float, hold: bool = False) -> FeedEvent:
        """As `IntentFeed.next`."""
        self._verdicts.connect_soon()
        return await self._feed.next(wait_s=wait_s, hold=hold)

    async def released(self) -> None:
        """As `IntentFeed.released`."""
        await self._feed.released()

    async def decided(self, up_to: Sequence[PartitionOffset]) -> None:
        """As `IntentFeed.decided`."""
        await self._feed.decided(up_to)

    async def concluded(self, up_to: Sequence[PartitionOffset]) -> None:
        """As `IntentFeed.concluded`."""
        await self._feed.concluded(up_to)

    async def hold(self, answers: Sequence[Answer]) -> None:
        """As `IntentFeed.hold`."""
        await self._feed.hold(answers)

    async def confirm(self, term: int) -> None:
        """As `IntentFeed.confirm`."""
        await self._feed.confirm(term)

    def paused(self) -> Sequence[Partition]:
        """As `IntentFeed.paused`."""
        return self._feed.paused()

    async def pauses(self) -> Sequence[Pause]:
        """As `IntentFeed.pauses`."""
        return await self._feed.pauses()

    async def read_again(self, reader: str, start: PartitionOffset, *, limit: int) -> Reread:
        """As `IntentFeed.read_again`."""
        return await self._feed.read_again(reader, start, limit=limit)

    async def forget_reader(self, reader: str) -> None:
        """As `IntentFeed.forget_reader`."""
        await self._feed.forget_reader(reader)

    async def end_offset(self, log: LogId, partition: int) -> int | None:
        """As `IntentFeed.end_offset`."""
        return await self._feed.end_offset(log, partition)

    async def confirmed_version(self, table: TableName) -> int | None:
        """Unknown: the topic of verdicts would have to be searched."""
        return None

    async def lag(self) -> Mapping[Partition, int]:
        """As `IntentFeed.lag`."""
        return await self._feed.lag()

    async def publish_verdicts(self, verdicts: Sequence[Verdict], dead_letters: Sequence[DeadLetter]) -> None:
        """As `VerdictSink.publish_verdicts`."""
        await self._verdicts.publish_verdicts(verdicts, dead_letters)

    async def close(self) -> None:
        """Leave the group at once, wait for pending verdicts, close the connections."""
        try:
            await self._feed.close()
        finally:
            await self._verdicts.close()
