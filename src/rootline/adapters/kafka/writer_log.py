"""A writer's side of a log on Kafka: publishing, and waiting for verdicts.

Owns: that reading verdicts begins before the first record is published. Does not own: either side (`intent_sink`,
`verdict_source`).
Invariants: no verdict on a record of this process is missed, however early it comes; a position of another log is
refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from rootline.adapters.kafka.intent_sink import KafkaIntentSink
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.adapters.kafka.verdict_source import KafkaVerdictSource
from rootline.ports.intent_log import NewRecord, check_identity
from rootline.schemas.bytes.record_headers import Lake
from rootline.schemas.identifiers import LogPosition
from rootline.schemas.verdict import Verdict


class KafkaWriterLog:
    """Connects with the first record or wait; for one event loop."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._sink = KafkaIntentSink(settings)
        self._verdicts = KafkaVerdictSource(settings)

    async def introduce(self, lake: Lake) -> None:
        """Name the lake in every record from now on. The coordinators reject records for another lake."""
        self._sink.lake = lake

    async def publish(self, key: bytes, value: bytes, *, oldest_file_ms: int | None = None) -> LogPosition:
        """As `KafkaIntentSink.publish`."""
        await self._verdicts.start()
        return await self._sink.publish(key, value, oldest_file_ms=oldest_file_ms)

    async def publish_many(
        self, records: Sequence[NewRecord], *, oldest_file_ms: int | None = None
    ) -> list[LogPosition]:
        """As `KafkaIntentSink.publish_many`."""
        await self._verdicts.start()
        return await self._sink.publish_many(records, oldest_file_ms=oldest_file_ms)

    async def wait_verdict(self, position: LogPosition, *, timeout_s: float) -> Verdict | None:
        """The verdict on the record at `position`; `None` when none came in `timeout_s` seconds.

        Raises:
            Fenced: `log-replaced`. Unavailable: `log-unavailable`.

        """
        check_identity(self._sink.known_identity or await self._sink.identity(), position.log)
        return await self._verdicts.wait_verdict(position, timeout_s=timeout_s)

    async def close(self) -> None:
        """Wait for pending records, then close the connections."""
        try:
            await self._sink.close()
        finally:
            await self._verdicts.close()
