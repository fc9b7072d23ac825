"""Much at once: a backlog that must not feed itself, and a thousand tables in one process (docs/invariants.md)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from rootline.adapters.settings import KafkaSettings
from rootline.coordinator.app import CoordinatorService
from rootline.coordinator.runtime.records import decoded
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.identifiers import LogId, LogPosition, LogRecord, TableName
from rootline.schemas.intent_rules import IntentLimits
from rootline.schemas.verdict import VerdictKind
from rootline.tree.draft.batch import Record
from tests.coordinator.running_service import TABLE, append_intent, create_intent
from tests.kafka.coordinating import SharedTable, coordinating, elapsed, ready, sharing
from tests.services.kafka_service import KafkaService

pytestmark = [pytest.mark.services, pytest.mark.slow]
BACKLOG = 10_000
QUEUE = 1_024
TABLES = 1_000


@pytest.fixture
def settings(kafka_service: KafkaService) -> KafkaSettings:
    return kafka_service.with_topics(partitions=4, session_timeout_s=6, delivery_timeout_s=60)


@pytest.fixture
async def shared(settings: KafkaSettings) -> AsyncIterator[SharedTable]:
    async with sharing(settings) as made:
        yield made


async def buffered_bytes(service: CoordinatorService, stop: asyncio.Event) -> int:
    """The most that the service held in memory until `stop`, as its metrics say."""
    most = 0.0
    while not stop.is_set():
        await service.measure()
        most = max(most, service.metrics.registry.get_sample_value("rootline_queue_bytes") or 0.0)
        await elapsed(0.05)
    return round(most)


async def test_a_backlog_of_ten_thousand_intents_is_bounded_in_memory_and_drains_in_few_roots(
    shared: SharedTable,
) -> None:
    """redpanda 30958 and 16361: a backlog that costs more the longer it is."""
    async with coordinating(shared.settings, shared.store):
        await shared.create()
    backlog = [append_intent(f"{number}") for number in range(BACKLOG)]
    kept = decoded(
        LogRecord(LogPosition(LogId("l"), 0, 0), TABLE.encode(), encode_intent(backlog[-1]), 0), IntentLimits()
    )
    assert isinstance(kept, Record)
    for first in range(0, BACKLOG, 1_000):
        await shared.publish(*backlog[first : first + 1_000])
    stop = asyncio.Event()
    async with coordinating(shared.settings, shared.store, table_queue_intents_max=QUEUE) as service:
        watching = asyncio.ensure_future(buffered_bytes(service, stop))
        await ready(service)
        judged = await shared.judge(patience_s=240)
        stop.set()
        most = await watching

    assert judged.kinds[VerdictKind.COMMITTED] == BACKLOG + 1
    assert len(await shared.live_files()) == BACKLOG
    assert await shared.versions() <= 2 + 2 * BACKLOG // 512
    assert 0 < most <= 3 * QUEUE * kept.buffered_bytes, "a queue, and two reads of about a thousand before it was full"


async def test_a_thousand_tables_in_one_process_are_all_served(shared: SharedTable) -> None:
    tables = [TableName(f"many.t{number}") for number in range(TABLES)]
    async with coordinating(shared.settings, shared.store) as service:
        created = await shared.commit(*(create_intent(table) for table in tables))
        assert {verdict.kind for verdict in created} == {VerdictKind.COMMITTED}
        for turn in range(2):
            verdicts = await shared.commit(*(append_intent(f"{turn}", table=table) for table in tables))
            assert {verdict.kind for verdict in verdicts} == {VerdictKind.COMMITTED}
        assert len(service.tables()) == TABLES
        await ready(service)
        await shared.judge(*tables[::100])

    for table in tables[::10]:
        assert await shared.live_files(table) == ["data/0.parquet", "data/1.parquet"]


async def test_one_table_in_a_hurry_and_a_thousand_names_that_do_not_exist_delay_nobody(shared: SharedTable) -> None:
    async with coordinating(shared.settings, shared.store) as service:
        await shared.create()
        strange = [append_intent(f"s{number}", table=f"no.t{number}") for number in range(1_000)]
        hasty = [append_intent(f"{number}") for number in range(1_000)]
        mixed = [intent for pair in zip(strange, hasty, strict=True) for intent in pair]
        verdicts = await shared.commit(*mixed)
        judged = await shared.judge()
        await ready(service)

    assert {verdict.code for verdict in verdicts[::2]} == {"table-unknown"}
    assert {verdict.kind for verdict in verdicts[1::2]} == {VerdictKind.COMMITTED}
    assert judged.kinds[VerdictKind.REJECTED] == 1_000
    assert len(await shared.live_files(TABLE)) == 1_000
