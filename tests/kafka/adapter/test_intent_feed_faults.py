"""Brokers that die, networks that break, and failures that the library would swallow."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rootline.adapters.kafka.coordinator_log import KafkaCoordinatorLog
from rootline.adapters.settings import KafkaSettings
from rootline.ports.intent_feed import Delivered
from rootline.schemas.errors import Invalid, Unavailable
from rootline.schemas.parts.log import PartitionOffset
from tests.kafka.feeding import Member, append, committed, member_of, numbered
from tests.services.kafka_service import PASSWORD, KafkaBroker, KafkaService
from tests.services.service_process import HOST, free_port
from tests.services.toxiproxy import Toxiproxy
from tests.support.decided import verdict_on
from tests.support.feed_driver import PATIENCE_S, together

pytestmark = [pytest.mark.services, pytest.mark.slow]
CLOSING_S = 15
"""More than any deadline of a request here, and less than what waits for the other side's last word."""


@pytest.fixture
def kafka_service(mortal_kafka: KafkaService) -> KafkaService:
    """Not the broker of the other files: the tests here kill it, and have it hang."""
    return mortal_kafka


async def decided_in_the_end(member: Member, partition: int, next_offset: int) -> None:
    """Said until it is remembered, as coordinators do."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await member.decided(partition, next_offset)
            except Unavailable:
                await member.step()
            else:
                return


async def test_reading_goes_on_after_the_broker_was_killed(kafka_service: KafkaService) -> None:
    settings = kafka_service.with_topics(request_timeout_s=2)
    broker = kafka_service.own()
    append(settings, 0, numbered(0, 1_000))
    async with member_of(settings) as member:
        await member.until(lambda: len(member.records) == 1_000)
        await decided_in_the_end(member, 0, 400)
        broker.kill()
        restarting = asyncio.ensure_future(asyncio.to_thread(broker.start_again))
        await member.until(restarting.done)
        await restarting
        append(settings, 0, numbered(1_000, 2_000))
        await member.until(lambda: member.values[-1:] == [b"1999"])
        first = member.offsets(0)[0]
        assert first <= 400
        assert member.offsets(0) == list(range(first, 2_000))
        await decided_in_the_end(member, 0, 800)
        assert committed(settings, 0) == 800


async def test_while_the_broker_is_away_it_is_said_and_nothing_hangs(kafka_service: KafkaService) -> None:
    settings = kafka_service.with_topics(request_timeout_s=0.5)
    broker = kafka_service.own()
    append(settings, 0, numbered(0, 10))
    async with member_of(settings) as member:
        await member.until(lambda: len(member.records) == 10)
        broker.kill()
        try:
            await member.until(lambda: len(member.failures) >= 3)
            for call in (
                lambda: member.decided(0, 5),
                lambda: member.feed.end_offset(member.log, 0),
                member.feed.lag,
                lambda: member.feed.read_again("r", PartitionOffset(member.log, 0, 0), limit=1),
            ):
                await said_to_be_unavailable(call)
            await asyncio.wait_for(member.feed.close(), CLOSING_S)
        finally:
            await asyncio.to_thread(broker.start_again)
    assert {failure.code for failure in member.failures} == {"log-unavailable"}
    assert settings.url in str(member.failures[0])


async def read_again(member: Member, offset: int) -> list[bytes]:
    answer = await member.feed.read_again("r", PartitionOffset(member.log, 0, offset), limit=5)
    return [record.value for record in answer.records]


async def read_again_in_the_end(member: Member, offset: int) -> list[bytes]:
    """Asked until it is answered: a busy broker may need longer than the deadline of a request here."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await read_again(member, offset)
            except Unavailable:
                await member.step()


async def test_reading_again_goes_on_after_the_broker_was_away(kafka_service: KafkaService) -> None:
    settings = kafka_service.with_topics(request_timeout_s=1)
    broker = kafka_service.own()
    append(settings, 0, numbered(0, 10))
    async with member_of(settings) as member:
        await member.until(lambda: len(member.records) == 10)
        assert len(await read_again_in_the_end(member, 0)) == 5
        broker.kill()
        try:
            failures = 0
            while not failures:  # what the reader has already is no failure
                try:
                    await read_again(member, 9)
                    await member.feed.forget_reader("r")
                except Unavailable:
                    failures += 1
        finally:
            await asyncio.to_thread(broker.start_again)
        found: list[bytes] = []
        while len(found) < 10:
            found += await read_again_in_the_end(member, len(found))
        assert found == numbered(0, 10)


async def said_to_be_unavailable(call: Callable[[], Awaitable[object]]) -> None:
    with pytest.raises(Unavailable) as failure:
        await asyncio.wait_for(call(), PATIENCE_S / 2)
    assert failure.value.code == "log-unavailable"


async def test_a_broker_that_was_never_there_is_named() -> None:
    settings = KafkaSettings(bootstrap_servers=f"{HOST}:{free_port()}", request_timeout_s=0.3)
    async with member_of(settings) as member:
        await member.until(lambda: len(member.failures) >= 2)
    assert settings.servers() in str(member.failures[0])


async def test_a_silent_network_is_noticed(kafka_service: KafkaService, toxiproxy: Toxiproxy) -> None:
    direct = kafka_service.with_topics(request_timeout_s=1)
    with kafka_service.proxied(toxiproxy, direct) as (settings, proxy):
        append(direct, 0, numbered(0, 10))
        async with member_of(settings) as member:
            await member.until(lambda: len(member.records) == 10)
            proxy.add("timeout", stream="downstream", timeout=0)
            await member.until(lambda: bool(member.failures))
            await asyncio.wait_for(member.feed.close(), CLOSING_S)


@pytest.mark.parametrize("security", ["plain", "encrypted"])
async def test_closing_does_not_wait_for_a_broker_that_hangs(kafka_service: KafkaService, security: str) -> None:
    settings = kafka_service.with_topics(request_timeout_s=1)
    if security == "encrypted":
        settings = kafka_service.secure(settings)
    before = watched_sockets()
    async with member_of(settings) as member:
        await member.until(lambda: member.at_end)
        await read_again_in_the_end(member, 0)
        with hanging(kafka_service.own()):
            await asyncio.wait_for(member.feed.close(), CLOSING_S)
            assert watched_sockets() == before


def watched_sockets() -> int:
    """How many sockets the running loop looks at."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, asyncio.SelectorEventLoop)
    return len(loop._selector.get_map())


@contextmanager
def hanging(broker: KafkaBroker) -> Iterator[None]:
    """It answers nobody, and keeps its connections."""
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


async def test_connections_that_break_all_the_time_lose_nothing(
    kafka_service: KafkaService, toxiproxy: Toxiproxy
) -> None:
    direct = kafka_service.with_topics(request_timeout_s=1)
    with kafka_service.proxied(toxiproxy, direct) as (settings, proxy):
        async with member_of(settings) as member:
            await member.until(lambda: member.at_end)
            proxy.add("limit_data", stream="downstream", bytes=50_000)
            for first in range(0, 1_000, 100):  # less than a connection carries
                append(direct, 0, [b"%d " % number * 50 for number in range(first, first + 100)])
                await member.until(lambda last=first + 99: member.values[-1:] == [b"%d " % last * 50])  # type: ignore[misc]
                await decided_in_the_end(member, 0, first + 100)
                start = member.offsets(0)[0]
                assert start <= first
                assert member.offsets(0) == list(range(start, first + 100))


async def test_records_that_rotted_on_a_broker_are_never_handed_out_and_delay_no_others(
    kafka_service: KafkaService,
) -> None:
    settings = kafka_service.with_topics()
    append(settings, 0, numbered(0, 10))
    append(settings, 1, [b"healthy before"])
    append(settings, 1, [b"rotten"])
    (segment,) = kafka_service.own().segments(settings.intents_topic, 1)
    held = segment.read_bytes()
    with segment.open("r+b") as file:
        file.seek(held.index(b"rotten"))
        file.write(b"r0tten")
    async with member_of(settings) as member:
        await member.until(lambda: len(member.records) == 11)
        append(settings, 0, numbered(10, 20))
        await member.until(lambda: len(member.records) == 21 and bool(member.failures))
        assert member.offsets(0) == list(range(20))
        assert member.offsets(1) == [0]
        assert not member.at_end
    assert "partition=1" in str(member.failures[0])


async def test_a_failure_in_the_background_of_an_assignment_is_raised(
    kafka_service: KafkaService, tmp_path: Path
) -> None:
    secret = tmp_path / "password"
    secret.write_text(PASSWORD)
    plain = kafka_service.with_topics()
    secure = kafka_service.secure(plain, sasl_password=None, sasl_password_file=secret)
    async with member_of(secure) as member, member_of(plain) as other:
        await member.until(lambda: member.at_end)
        secret.unlink()
        heard = len(member.events)
        with pytest.raises(ExceptionGroup) as failures:
            await together(member, other, done=lambda: False)
        (failure,) = failures.value.exceptions
        assert isinstance(failure, Invalid)
        assert "ROOTLINE_KAFKA__SASL_PASSWORD_FILE" in str(failure)
        assert len(member.events) > heard  # it was the assignment after the revocation


async def test_a_coordinators_log_reads_publishes_and_closes_both(settings: KafkaSettings) -> None:
    append(settings, 0, numbered(0, 3))
    log = KafkaCoordinatorLog(settings)
    records = []
    async with asyncio.timeout(PATIENCE_S):
        while len(records) < 3:
            event = await log.next(wait_s=1)
            if isinstance(event, Delivered):
                records += event.records
    await log.publish_verdicts([verdict_on(record.position) for record in records], [])
    start = PartitionOffset(records[0].position.log, 0, 0)
    await log.decided([start._replace(next_offset=3)])
    assert len((await log.read_again("r", start, limit=2)).records) == 2
    await log.forget_reader("r")
    assert (await log.end_offset(start.log, 0), set((await log.lag()).values())) == (3, {0})
    await log.released()
    await log.close()
    assert committed(settings, 0) == 3
