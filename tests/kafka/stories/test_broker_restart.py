"""A broker that dies and comes back, and a network that loses replies, under load."""

from __future__ import annotations

import asyncio
import math
import time

import pytest

from rootline.adapters.kafka.coordinator_log import KafkaVerdictSink
from rootline.adapters.kafka.publisher import KafkaPublisher
from rootline.adapters.kafka.writer_log import KafkaIntentSink, KafkaWriterLog
from rootline.adapters.settings import KafkaSettings
from rootline.schemas.errors import OutcomeUnknown, Unavailable
from rootline.schemas.identifiers import LogPosition
from tests.kafka.feeding import set_limit
from tests.kafka.reading import Found, records_on
from tests.services.kafka_service import KafkaService
from tests.services.toxiproxy import Toxiproxy
from tests.support.decided import verdict_on

pytestmark = [pytest.mark.services, pytest.mark.slow]
WRITERS = 16
PATIENCE_S = 300.0
"""A broker may take long to start on a busy machine, and that is no fault."""


@pytest.fixture
def kafka_service(mortal_kafka: KafkaService) -> KafkaService:
    """Not the broker of the other files: the tests here kill it."""
    return mortal_kafka


class Writers:
    """Each publishes numbers under its own key, one after the other, until it is told to stop."""

    def __init__(self, sink: KafkaIntentSink) -> None:
        self._sink = sink
        self._stop = False
        self.acknowledged: dict[LogPosition, tuple[bytes, int]] = {}
        self.unknown: set[tuple[bytes, int]] = set()
        self._heard_s = time.monotonic()
        self._tasks = [asyncio.ensure_future(self._write(b"table-%d" % number)) for number in range(WRITERS)]

    async def several_more(self, count: int, *, at_most_s: float = math.inf) -> None:
        """Until `count` more records were acknowledged, or, through a bad network, so much time has passed."""
        wanted, end = len(self.acknowledged) + count, time.monotonic() + at_most_s
        while len(self.acknowledged) < wanted and time.monotonic() < end:
            await asyncio.wait(self._tasks, timeout=0.01)
            for task in self._tasks:
                assert not task.done() or task.exception() is None

    async def stop(self) -> None:
        self._stop = True
        await asyncio.gather(*self._tasks)

    async def _write(self, key: bytes) -> None:
        number = 0
        while not self._stop:
            try:
                self.acknowledged[await self._sink.publish(key, b"%d" % number)] = (key, number)
                self._heard_s = time.monotonic()
            except OutcomeUnknown:
                self.unknown.add((key, number))
            except Unavailable:
                assert time.monotonic() < self._heard_s + PATIENCE_S, "nothing is acknowledged any more"
                continue
            number += 1


def assert_nothing_is_lost(writers: Writers, held: list[Found], *, once: bool) -> None:
    places = {(found.partition, found.offset): (found.key, int(found.value)) for found in held}
    assert {place: places.get((place.partition, place.offset)) for place in writers.acknowledged} == (
        writers.acknowledged
    )
    for key in {found.key for found in held}:
        numbers = [int(found.value) for found in held if found.key == key]
        told = [number for number in numbers if (key, number) not in writers.unknown]
        assert told == sorted(told)
        if once:
            assert len(set(numbers)) == len(numbers)


async def test_nothing_acknowledged_is_lost_or_doubled_when_the_broker_is_killed_under_load(
    kafka_service: KafkaService,
) -> None:
    settings = kafka_service.with_topics(delivery_timeout_s=PATIENCE_S)
    broker = kafka_service.own()
    sink = KafkaIntentSink(settings)
    writers = Writers(sink)
    await writers.several_more(500)
    broker.kill()
    await asyncio.to_thread(broker.start_again)
    await writers.several_more(500)
    await writers.stop()
    await sink.close()

    assert_nothing_is_lost(writers, records_on(settings, settings.intents_topic), once=True)
    assert not writers.unknown


async def test_while_the_broker_is_away_a_deadline_says_what_is_not_known(kafka_service: KafkaService) -> None:
    settings = kafka_service.with_topics(delivery_timeout_s=0.5, request_timeout_s=1)
    broker = kafka_service.own()
    sink = KafkaIntentSink(settings)
    writers = Writers(sink)
    await writers.several_more(200)
    broker.kill()
    await asyncio.to_thread(broker.start_again)
    await writers.several_more(200)
    await writers.stop()
    await sink.close()

    assert writers.unknown
    assert_nothing_is_lost(writers, records_on(settings, settings.intents_topic), once=True)


async def test_verdicts_go_on_after_the_broker_was_away(kafka_service: KafkaService) -> None:
    settings = kafka_service.with_topics(delivery_timeout_s=PATIENCE_S)
    broker = kafka_service.own()
    writer, verdicts = KafkaWriterLog(settings), KafkaVerdictSink(settings)
    before, during = await writer.publish_many([(b"k", b"1"), (b"k", b"2")])
    await verdicts.publish_verdicts([verdict_on(before)], [])
    waiting = asyncio.ensure_future(writer.wait_verdict(during, timeout_s=PATIENCE_S))
    await asyncio.sleep(0)

    broker.kill()
    publishing = asyncio.ensure_future(verdicts.publish_verdicts([verdict_on(during)], []))
    await asyncio.to_thread(broker.start_again)
    await publishing
    after = await writer.publish(b"k", b"3")
    await verdicts.publish_verdicts([verdict_on(after)], [])

    assert await waiting == verdict_on(during)
    assert await writer.wait_verdict(after, timeout_s=PATIENCE_S) == verdict_on(after)
    assert await writer.wait_verdict(before, timeout_s=0) == verdict_on(before)
    await writer.close()
    await verdicts.close()


async def test_closing_while_the_broker_is_away_ends(kafka_service: KafkaService) -> None:
    settings = kafka_service.with_topics(delivery_timeout_s=0.5, request_timeout_s=0.5)
    broker = kafka_service.own()
    writer = KafkaWriterLog(settings)
    while True:  # a broker that has much to do may need longer, too
        try:
            await writer.publish(b"k", b"1")
        except (OutcomeUnknown, Unavailable):
            continue
        break
    broker.kill()
    try:
        with pytest.raises(OutcomeUnknown) as failure:
            await writer.publish(b"k", b"2")
        await writer.close()
    finally:
        await asyncio.to_thread(broker.start_again)

    assert failure.value.code == "publish-unknown"


@pytest.mark.parametrize("fault", ["replies cut off", "connections reset"])
async def test_a_network_that_loses_replies_doubles_and_loses_nothing(
    kafka_service: KafkaService, toxiproxy: Toxiproxy, fault: str
) -> None:
    direct = kafka_service.with_topics(delivery_timeout_s=PATIENCE_S, request_timeout_s=1)
    with kafka_service.proxied(toxiproxy, direct) as (settings, proxy):
        sink = KafkaIntentSink(settings)
        writers = Writers(sink)
        await writers.several_more(100)
        if fault == "replies cut off":
            proxy.add("limit_data", stream="downstream", bytes=20_000)
        else:
            proxy.add("reset_peer", stream="downstream", share=0.5, timeout=100)
        await writers.several_more(1_000, at_most_s=10)
        proxy.mend()
        await writers.several_more(100)
        await writers.stop()
        await sink.close()

    assert_nothing_is_lost(writers, records_on(direct, direct.intents_topic), once=True)


async def test_a_producer_that_was_refused_is_replaced_and_keeps_the_order(settings: KafkaSettings) -> None:
    from rootline.adapters.kafka.publisher import Outgoing, RecordTooLarge

    set_limit(settings, settings.intents_topic, 20_000)
    publisher = KafkaPublisher(settings, lambda: 1_000_000)

    async def write(size: int) -> str:
        try:
            await publisher.publish([Outgoing(settings.intents_topic, b"k", bytes(size))])
        except (RecordTooLarge, OutcomeUnknown, Unavailable) as error:
            return type(error).__name__
        return "appended"

    outcomes = [await write(30_000 if number % 5 == 4 else 10) for number in range(20)]
    await publisher.close()

    assert outcomes == ["RecordTooLarge" if number % 5 == 4 else "appended" for number in range(20)]
    assert len(records_on(settings, settings.intents_topic)) == 16
