"""A coordinator's side of a log on Kafka: reading intents, publishing verdicts.

Owns: both sides as one object. Does not own: either side (`intent_feed`, `verdict_sink`).
Invariants: closing ends both sides, even if one of them fails.
"""

from __future__ import annotations

from collections.abc import Sequence

from rootline.adapters.kafka.intent_feed import KafkaIntentFeed
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.adapters.kafka.verdict_sink import KafkaVerdictSink
from rootline.ports.intent_feed import FeedEvent
from rootline.schemas.verdict import DeadLetter, Verdict


class KafkaCoordinatorLog(KafkaIntentFeed):
    """The feed of intents that publishes verdicts too. Both sides connect with the first `next`."""

    def __init__(self, settings: KafkaSettings) -> None:
        super().__init__(settings)
        self._verdicts = KafkaVerdictSink(settings)

    async def next(self, *, wait_s: float, hold: bool = False) -> FeedEvent:
        """Return the next event of the feed. The first call starts to connect the side of verdicts too."""
        self._verdicts.connect_soon()
        return await super().next(wait_s=wait_s, hold=hold)

    async def publish_verdicts(self, verdicts: Sequence[Verdict], dead_letters: Sequence[DeadLetter]) -> None:
        """Publish verdicts and dead letters. They are durable when this returns."""
        await self._verdicts.publish_verdicts(verdicts, dead_letters)

    async def close(self) -> None:
        """Leave the group at once, wait for pending verdicts, close the connections."""
        try:
            await super().close()
        finally:
            await self._verdicts.close()
