"""All views of a table agree, in every state: a log on a real broker."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from rootline.adapters.kafka.writer_log import KafkaWriterLog
from rootline.coordinator.app import CoordinatorService
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.intent import Intent
from tests.cli.conftest import Run
from tests.cli.conftest import run as run
from tests.coordinator.hooked_ports import HookedStore
from tests.kafka.coordinating import coordinating
from tests.kafka.shared_log import SharedLog, in_environment
from tests.services.kafka_service import KafkaService
from tests.support.table_views import PATIENCE_S, VIEWS, Walk

pytestmark = pytest.mark.services


@dataclass
class KafkaLog:
    """As `WalkedLog`."""

    folder: Path
    shared: SharedLog
    writer: KafkaWriterLog
    parks: bool = True

    @property
    def words(self) -> tuple[str, ...]:
        return self.shared.words

    @contextlib.asynccontextmanager
    async def coordinated(self, store: HookedStore) -> AsyncIterator[CoordinatorService]:
        async with coordinating(self.shared.settings, store, parking_after_s=1.0) as service:
            yield service

    async def publish(self, intent: Intent) -> Callable[[], Awaitable[str]]:
        [position] = await self.writer.publish_many([(intent.table.encode(), encode_intent(intent))])

        async def verdict() -> str:
            found = await self.writer.wait_verdict(position, timeout_s=PATIENCE_S)
            return "" if found is None else found.kind.value

        return verdict


async def test_every_view_says_the_same_of_a_table_on_kafka(
    kafka_service: KafkaService, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = SharedLog(tmp_path / "lake", kafka_service.with_topics(partitions=1))
    shared.folder.mkdir()
    in_environment(shared.settings, monkeypatch)
    writer = KafkaWriterLog(shared.settings)
    walk = Walk(KafkaLog(shared.folder, shared, writer), run)
    try:
        await walk.through_all_states()
    finally:
        await writer.close()
    assert set(walk.seen) == set(VIEWS)
