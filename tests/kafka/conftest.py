"""Topics of one test on a real broker, and decided intents."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rootline.adapters.kafka.coordinator_log import KafkaVerdictSink
from rootline.adapters.kafka.writer_log import KafkaIntentSink, KafkaWriterLog
from rootline.adapters.settings import KafkaSettings
from tests.services.kafka_service import KafkaService


@pytest.fixture
def settings(kafka_service: KafkaService) -> KafkaSettings:
    # a member here that falls silent is one of a busy machine, not a dead one
    return kafka_service.with_topics(delivery_timeout_s=60, session_timeout_s=60)


@pytest.fixture
async def sink(settings: KafkaSettings) -> AsyncIterator[KafkaIntentSink]:
    made = KafkaIntentSink(settings)
    yield made
    await made.close()


@pytest.fixture
async def writer(settings: KafkaSettings) -> AsyncIterator[KafkaWriterLog]:
    made = KafkaWriterLog(settings)
    yield made
    await made.close()


@pytest.fixture
async def verdicts(settings: KafkaSettings) -> AsyncIterator[KafkaVerdictSink]:
    made = KafkaVerdictSink(settings)
    yield made
    await made.close()
