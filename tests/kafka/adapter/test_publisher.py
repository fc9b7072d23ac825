from __future__ import annotations

import asyncio

import pytest

from rootline.adapters.kafka.publisher import KafkaPublisher, Outgoing
from rootline.adapters.settings import KafkaSettings
from rootline.schemas.errors import Unavailable
from tests.services.service_process import HOST, free_port

pytestmark = pytest.mark.services


def record(settings: KafkaSettings, name: str) -> Outgoing:
    return Outgoing(settings.intents_topic, b"t.one", name.encode())


async def test_who_gives_up_while_the_producer_is_made_does_not_make_the_others_begin_anew(
    settings: KafkaSettings,
) -> None:
    asked = 0

    def record_bytes_max() -> int:
        nonlocal asked
        asked += 1
        return 1_000_000

    publisher = KafkaPublisher(settings, record_bytes_max)
    impatient = asyncio.ensure_future(publisher.publish([record(settings, "impatient")]))
    patient = asyncio.ensure_future(publisher.publish([record(settings, "patient")]))
    await asyncio.sleep(0)
    impatient.cancel()
    assert len(await patient) == 1
    assert asked == 1
    await publisher.close()


async def test_a_publisher_that_was_told_to_connect_and_is_closed_at_once_leaves_nothing_behind(
    settings: KafkaSettings,
) -> None:
    before = asyncio.all_tasks()
    publisher = KafkaPublisher(settings, lambda: 1_000_000)
    publisher.connect_soon()
    publisher.connect_soon()
    await publisher.close()
    assert asyncio.all_tasks() == before
    with pytest.raises(Unavailable, match="closed"):
        await publisher.publish([record(settings, "late")])


async def test_without_a_broker_whoever_waits_is_told_and_connecting_ahead_fails_in_silence(
    settings: KafkaSettings,
) -> None:
    nowhere = settings.model_copy(update={"bootstrap_servers": f"{HOST}:{free_port()}"})
    publisher = KafkaPublisher(nowhere, lambda: 1_000_000)
    publisher.connect_soon()
    with pytest.raises(Unavailable):
        await publisher.publish([record(settings, "one")])
    publisher.connect_soon()
    await publisher.close()
