"""Rejections that no root records: told once, they hold for every later owner."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.identifiers import TableName
from rootline.schemas.verdict import VerdictKind
from tests.coordinator.running_service import append_intent, create_intent
from tests.kafka.coordinating import coordinator_of, ready, sharing, until
from tests.kafka.feeding import add_partitions, committed
from tests.services.kafka_service import KafkaService

pytestmark = pytest.mark.services


async def test_what_was_told_rejected_is_not_committed_after_a_crash_although_a_partition_was_added(
    kafka_service: KafkaService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table's records are on two partitions: one writer has not heard of the second one yet."""
    monkeypatch.setattr("rootline.adapters.kafka.clients._METADATA_MAX_AGE_MS", 3_600_000)  # nor does it ask soon
    settings = kafka_service.with_topics(partitions=1, delivery_timeout_s=20)
    async with sharing(settings) as shared, sharing(settings) as old:
        await old.writer.publish(b"q.q", encode_intent(append_intent("warm", TableName("q.q"))))
        await asyncio.to_thread(add_partitions, settings, 2)
        tables = (TableName(f"m.t{number}") for number in range(99))
        for table in tables:
            [early] = await shared.publish(append_intent("x", table))
            if early.partition == 1:
                break
        first = coordinator_of(settings, shared.store, offsets_commit_interval_s=300.0)
        running = asyncio.ensure_future(first.run())
        [told] = await shared.verdicts([early])
        assert (told.kind, told.code) == (VerdictKind.REJECTED, "table-unknown")
        created = await old.writer.publish(table.encode(), encode_intent(create_intent(table)))
        assert created.partition == 0
        [verdict] = await shared.verdicts([created])
        assert verdict.kind is VerdictKind.COMMITTED
        running.cancel()  # nothing of the second partition was remembered
        with contextlib.suppress(asyncio.CancelledError):
            await running

        second = coordinator_of(settings, shared.store)
        running = asyncio.ensure_future(second.run())
        await ready(second)
        await until(lambda: committed(settings, 1) == early.offset + 1, "the record was passed")
        assert await shared.live_files(table) == []
        second.request_stop()
        await running
