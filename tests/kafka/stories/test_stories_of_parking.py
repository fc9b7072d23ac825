"""A quarantined table leaves its partition: the offset passes its records, and a lift decides them later."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from confluent_kafka import TopicPartition as AdminPartition
from confluent_kafka.admin import OffsetSpec

from rootline.adapters.kafka.administration import KafkaTopics
from rootline.adapters.memory import MemoryObjectStore
from rootline.adapters.settings import KafkaSettings
from rootline.coordinator.app import CoordinatorService
from rootline.coordinator.protocol.machine_state import Phase
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.object_keys import root_key
from rootline.schemas.verdict import VerdictKind
from tests.coordinator.running_service import append_intent
from tests.kafka.coordinating import SharedTable, coordinator_of, sharing, until
from tests.kafka.feeding import admin_of, committed, remove_before
from tests.services.kafka_service import KafkaService

pytestmark = pytest.mark.services

STUCK, FREE = TableName("q.q"), TableName("t.t")


@contextlib.asynccontextmanager
async def running(settings: KafkaSettings, store: MemoryObjectStore) -> AsyncIterator[CoordinatorService]:
    """A coordinator that parks soon; it stops cleanly."""
    service = coordinator_of(settings, store, parking_after_s=1.0)
    task = asyncio.ensure_future(service.run())
    try:
        yield service
        service.request_stop()
        await task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def damaged(store: MemoryObjectStore, table: TableName) -> bytes:
    """The table's first root, cut off; what it was."""
    key = root_key(table, Version(0))
    found = await store.get(key)
    assert found is not None
    store.place(key, found.body[:-3])
    return found.body


async def until_passed(shared: SharedTable, offset: int) -> None:
    """Others commit until the group's offset has passed `offset`."""
    number = 0

    async def passed() -> bool:
        nonlocal number
        number += 1
        [verdict] = await shared.commit(append_intent(f"go-on-{offset}-{number}", FREE))
        assert verdict.kind is VerdictKind.COMMITTED
        await shared.sample()
        return await asyncio.to_thread(committed, shared.settings, 0) > offset

    await until(passed, f"the offset passes {offset}")


def parked_span(settings: KafkaSettings) -> tuple[int, int]:
    """The first and the last offset of the parked topic's partition."""
    admin, place = admin_of(settings), AdminPartition(settings.parked_topic, 0)
    begin = admin.list_offsets({place: OffsetSpec.earliest()})[place].result().offset
    return begin, admin.list_offsets({place: OffsetSpec.latest()})[place].result().offset


async def test_after_retention_a_quarantined_table_stops_no_other_and_its_records_are_decided_once_it_is_lifted(
    kafka_service: KafkaService,
) -> None:
    settings = kafka_service.with_topics(partitions=1)
    store = MemoryObjectStore()
    async with sharing(settings, store) as shared:
        async with running(settings, store):
            await shared.create(STUCK)
            await shared.create(FREE)
        whole = await damaged(store, STUCK)
        async with running(settings, store) as first:
            stuck = await shared.publish(*(append_intent(f"stuck-{number}", STUCK) for number in range(3)))
            await until_passed(shared, stuck[-1].offset)
            stuck += await shared.publish(append_intent("later", STUCK))
            await until_passed(shared, stuck[-1].offset)
            await until(lambda: first.tables()[STUCK][0] is Phase.QUARANTINED, "it is quarantined, not tried just now")
        await asyncio.to_thread(shared.watch.catch_up)
        assert {(place.partition, place.offset) for place in stuck} <= shared.watch.parked
        await asyncio.to_thread(remove_before, settings, 0, committed(settings, 0))
        async with running(settings, store) as second:
            await until_passed(shared, committed(settings, 0))
            stuck += await shared.publish(append_intent("last", STUCK))
            await until(lambda: second.tables().get(STUCK, (None, ""))[0] is Phase.QUARANTINED, "it is tried again")
            [held] = await asyncio.to_thread(KafkaTopics(settings).parked)
            assert held.table == STUCK
            assert held.records >= 4
            assert held.why.startswith("quarantined")
            store.place(root_key(STUCK, Version(0)), whole)
            assert await asyncio.to_thread(KafkaTopics(settings).lift, STUCK)
            verdicts = await shared.verdicts(stuck)
            assert [verdict.kind for verdict in verdicts] == [VerdictKind.COMMITTED] * 5
            numbers = [verdict.sequence_number or 0 for verdict in verdicts]
            assert numbers == sorted(numbers)
            assert len(await shared.live_files(STUCK)) == 5
            [again] = await shared.commit(append_intent("and on", STUCK))
            assert again.kind is VerdictKind.COMMITTED

            async def forgotten() -> bool:
                begin, end = await asyncio.to_thread(parked_span, settings)
                return begin == end > 0 and not await asyncio.to_thread(KafkaTopics(settings).parked)

            await until(forgotten, "what was parked is removed")
        async with running(settings, store):
            await until_passed(shared, committed(settings, 0))
        assert len(await shared.live_files(STUCK)) == 6
