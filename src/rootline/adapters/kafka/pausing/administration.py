"""What an operator does with pauses on Kafka: see them, begin one, end one.

Owns: these calls. Does not own: the records (`pause_record`), carrying them out (coordinators follow the topic).
Invariants: what is begun or ended is durable before the call returns; it works whether or not coordinators run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rootline.adapters.kafka.frontier.pause_record import pause_outgoing
from rootline.adapters.kafka.frontier.records import frontier_publisher
from rootline.adapters.kafka.log_errors import log_unavailable
from rootline.adapters.kafka.pausing.follower import PauseFollower
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.adapters.kafka.topics import complete_topics
from rootline.ports.intent_feed import Pause
from rootline.schemas.errors import OutcomeUnknown


class KafkaPauses:
    """For one event loop. Each method raises `Unavailable` (`log-unavailable`)."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings

    async def pauses(self) -> Sequence[Pause]:
        """Those in force."""
        follower = PauseFollower(self._settings)
        try:
            return await follower.pauses()
        finally:
            await follower.close()

    async def pause(self, pause: Pause) -> None:
        """It begins."""
        await asyncio.to_thread(complete_topics, self._settings)
        await self._write(pause, over=False)

    async def resume(self, pause: Pause) -> None:
        """It ends."""
        await self._write(pause, over=True)

    async def close(self) -> None:
        """Nothing stays open."""

    async def _write(self, pause: Pause, *, over: bool) -> None:
        publisher = frontier_publisher(self._settings)
        try:
            await publisher.publish([pause_outgoing(self._settings, pause, over=over)])
        except OutcomeUnknown as error:
            raise log_unavailable(self._settings, error.message, topic=self._settings.frontiers_topic) from None
        finally:
            await publisher.close()
