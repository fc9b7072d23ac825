"""On a real broker: every verdict is told, counted and logged once, whatever path it took and whatever died."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from rootline.adapters.kafka.administration import KafkaTopics
from rootline.adapters.kafka.pauses import KafkaPauses
from rootline.adapters.kafka.topics import topic_identity
from rootline.ports.intent_feed import Pause
from rootline.schemas.identifiers import LogPosition, TableName, Version
from rootline.schemas.object_keys import root_key
from rootline.schemas.verdict import Verdict
from tests.coordinator.running_service import append_intent
from tests.kafka.accounts.paths import DROPPED, MAIN, OLD, records, stored_page
from tests.kafka.accounts.three_accounts import balance
from tests.kafka.accounts.watched_process import WatchedProcess
from tests.kafka.coordinating import SharedTable, elapsed, sharing, until
from tests.kafka.feeding import set_limit
from tests.kafka.hostile_batches import MEBIBYTE, ZSTD, batch_of, compressed, put, record_of_zeros
from tests.kafka.judge import Told, judge_topics
from tests.kafka.kafka_lake import KafkaLake
from tests.kafka.rootline_process import RootlineProcess, ending
from tests.services.kafka_service import KafkaService
from tests.services.s3_service import S3Service

pytestmark = [pytest.mark.services, pytest.mark.slow]
PATIENCE_S = 300.0
"""A busy machine needs long to start a process, and that is no fault."""
PAUSED, STUCK = TableName("p.p"), TableName("q.q")
OTHERS = tuple(TableName(f"t.t{number}") for number in range(4))
SETTINGS = {
    "ROOTLINE_COORDINATOR__PROBE_ROUNDS": "0",
    "ROOTLINE_COORDINATOR__POLL_WAIT_S": "0.1",
    "ROOTLINE_COORDINATOR__OFFSETS_COMMIT_INTERVAL_S": "0.2",
    "ROOTLINE_COORDINATOR__PARKING_AFTER_S": "1",
    "ROOTLINE_COORDINATOR__PARKED_BYTES_MAX": "600",
    "ROOTLINE_COORDINATOR__VERDICTS_LOGGED_PER_S": "100000",
}
RARELY = {**SETTINGS, "ROOTLINE_COORDINATOR__OFFSETS_COMMIT_INTERVAL_S": "600"}


class World:
    """Coordinators one after the other, and side by side, on one log and one store."""

    def __init__(self, lake: KafkaLake, shared: SharedTable, folder: Path) -> None:
        self.lake, self.shared = lake, shared
        words = ("coordinator", "--http-port", "0")
        self.forgetful, self.second, self.third = (
            WatchedProcess(RootlineProcess(name, words, {**lake.environment(), **settings}, folder))
            for name, settings in (("forgetful", RARELY), ("second", SETTINGS), ("third", SETTINGS))
        )

    @property
    def processes(self) -> tuple[WatchedProcess, ...]:
        return self.forgetful, self.second, self.third

    async def publish(self, *intents: tuple[str, TableName]) -> list[LogPosition]:
        return await self.shared.publish(*(append_intent(name, table) for name, table in intents))

    async def told(self, positions: Sequence[LogPosition]) -> list[Verdict]:
        """Their verdicts."""
        return await self.shared.verdicts(positions, patience_s=PATIENCE_S)

    async def begin(self, watched: WatchedProcess) -> None:
        """Start it, and wait until it has partitions."""
        watched.start()
        await until(lambda: watched.has_said("partitions assigned"), f"{watched.process.name} has joined", PATIENCE_S)

    async def on_all(self, what: str) -> None:
        """Every table that goes on takes an intent, on every partition."""
        await self.told(await self.publish(*((f"{what}-{table}", table) for table in (MAIN, *OTHERS))))

    async def going_on(self, what: str, holds: Callable[[], bool | Awaitable[bool]]) -> None:
        """Others commit until it holds: a table is parked only while others go on."""
        number = 0

        async def looked() -> bool:
            nonlocal number
            number += 1
            await self.on_all(f"{what}-{number}")
            await elapsed(0.3)
            found = holds()
            return found if isinstance(found, bool) else await found

        await until(looked, what, PATIENCE_S)

    async def sampled(self) -> bool:
        """Look at the topics; nothing that the group has passed is undecided. `False`: a busy broker did not answer."""
        try:
            await self.shared.sample()
        except KafkaException:
            return False
        return True

    async def drained(self) -> None:
        """Until the group's offsets are at the ends."""

        async def passed() -> bool:
            return await self.sampled() and self.shared.watch.behind == 0

        await until(passed, "the group has passed every record", PATIENCE_S)


@asynccontextmanager
async def world_of(kafka: KafkaService, s3: S3Service, folder: Path) -> AsyncIterator[World]:
    settings = kafka.with_topics(partitions=2, delivery_timeout_s=60)
    lake = KafkaLake(s3, settings)
    store = lake.store()
    async with sharing(settings, store) as shared:
        world = World(lake, shared, folder)
        with ending(*(watched.process for watched in world.processes)):
            yield world
    await store.close()


async def test_every_verdict_is_told_counted_and_logged_once_whatever_path_it_took(
    kafka_service: KafkaService, s3_service: S3Service, tmp_path: Path
) -> None:
    async with world_of(kafka_service, s3_service, tmp_path) as world:
        await world.begin(world.forgetful)
        for table in (MAIN, DROPPED, OLD, PAUSED, STUCK, *OTHERS):
            await world.shared.create(table)
        await every_path(world)
        await killed_between_put_and_verdict(world)
        await paused_and_quarantined(world)
        await rebalanced(world)
        await world.drained()
        for watched in (world.second, world.third):
            await asyncio.to_thread(watched.stop)
        await asyncio.to_thread(world.shared.watch.catch_up)

    watch = world.shared.watch
    lives = [life for watched in world.processes for life in watched.lives]
    log = (await asyncio.to_thread(topic_identity, watch.settings, watch.settings.intents_topic)).log
    judge_topics(watch, log, Told(verdicts=world.shared.told))
    found = balance(watch.verdicts, lives)
    print(found)
    for life in lives:
        print(life.name, "killed" if life.was_killed else "ended", dict(life.own), "again", dict(life.again))
    assert not found.wrong, "\n".join(found.wrong)
    assert found.unlogged == ()
    kills = [life for life in lives if life.was_killed]
    assert [life.name for life in kills] == ["forgetful.1", "second.2"]
    assert sum(life.again.total() for life in lives) > 0, "nothing was told again: the kill came too late"


async def every_path(world: World) -> None:
    """Records for each verdict, by the first coordinator."""
    writer, settings = world.shared.writer, world.lake.kafka
    other: list[str] = []
    for sent in records(await stored_page(world.shared.store)):
        if sent.key is None:
            [at] = await put_without_key(world, sent.value)
        else:
            record = (sent.key, sent.value, sent.content)
            [at] = await writer.publish_many([record], oldest_file_ms=sent.oldest_file_ms)
        [verdict] = await world.told([at])
        if (verdict.code or verdict.kind.value) != sent.expected:
            other.append(f"{sent.expected} was expected: {verdict}")
    assert not other, "\n".join(other)
    bomb = compressed(ZSTD, record_of_zeros(40 * MEBIBYTE, key=MAIN.encode()))
    large = compressed(ZSTD, record_of_zeros(3 * MEBIBYTE, key=MAIN.encode()))
    offsets = await put(settings, (batch_of(ZSTD, bomb), 1), (batch_of(ZSTD, large), 1))
    log = topic_identity(settings, settings.intents_topic).log
    verdicts = await world.told([LogPosition(log, 0, offset) for offset in offsets])
    assert [verdict.code for verdict in verdicts] == ["batch-unreadable", "intent-too-large"]


async def put_without_key(world: World, value: bytes) -> list[LogPosition]:
    settings = world.lake.kafka
    record = b"\x0c\x00\x00\x00\x01\x00\x00"  # no key, an empty value, no headers
    assert value == b""
    [offset] = await put(settings, (batch_of(0, record), 1), partition=1)
    return [LogPosition(topic_identity(settings, settings.intents_topic).log, 1, offset)]


async def killed_between_put_and_verdict(world: World) -> None:
    """Roots are on the store, and the log takes no verdicts: then the coordinator is killed, and another comes."""
    settings, shared = world.lake.kafka, world.shared
    versions = await shared.versions(MAIN)
    await asyncio.to_thread(set_limit, settings, settings.verdicts_topic, 60)
    at = await shared.publish(append_intent("put-1", MAIN), append_intent("put-2", MAIN, location="../y"))
    at += await shared.publish(append_intent("put-3", "no.such"))

    async def is_put() -> bool:
        return await shared.versions(MAIN) > versions

    await until(is_put, "the root is on the store", PATIENCE_S)
    await asyncio.to_thread(world.forgetful.kill)
    await asyncio.to_thread(set_limit, settings, settings.verdicts_topic, None)
    await world.begin(world.second)
    await world.told(at)
    await world.on_all("after-the-kill")


async def paused_and_quarantined(world: World) -> None:
    """Both are parked, and what finds no room is rejected; then the one is resumed and the other is lifted."""
    shared, settings = world.shared, world.lake.kafka
    await world.drained()
    await asyncio.to_thread(world.second.stop)
    folder = world.lake.s3.folder
    assert folder is not None, "this test damages an object: unset ROOTLINE_TEST_S3"
    root = folder / world.lake.prefix / root_key(STUCK, Version(0))
    whole = root.read_bytes()
    root.write_bytes(whole[:-3])
    pauses, pause = KafkaPauses(settings), Pause(PAUSED, int(time.time() * 1000), "for a test")
    await pauses.pause(pause)
    await world.begin(world.second)
    held = await world.publish(*((f"held-{number}", table) for table in (PAUSED, STUCK) for number in range(2)))

    def are_parked() -> bool:
        return all(world.second.has_said("table parked", table=table) for table in (PAUSED, STUCK))

    await world.going_on("both tables are parked", are_parked)
    later = await world.publish(*((f"later-{number}", table) for table in (PAUSED, STUCK) for number in range(6)))

    async def are_over() -> bool:
        return await world.sampled() and any(
            verdicts[0].code == "table-parked" for verdicts in shared.watch.verdicts.values()
        )

    await world.going_on("some find no room", are_over)
    await world.drained()
    root.write_bytes(whole)
    assert await asyncio.to_thread(KafkaTopics(settings).lift, STUCK)
    await pauses.resume(pause)
    told = await world.told([*held, *later])
    assert {verdict.code for verdict in told} == {None, "table-parked"}
    await world.going_on("parked records are forgotten", lambda: are_forgotten(world))


async def are_forgotten(world: World) -> bool:
    return not await asyncio.to_thread(KafkaTopics(world.lake.kafka).parked)


async def rebalanced(world: World) -> None:
    """A member comes while writers write, the other leaves and comes again."""
    is_over = asyncio.Event()

    async def write(number: int) -> None:
        count = 0
        while not is_over.is_set():
            count += 1
            names = [(f"w{number}-{count}-{table}", table) for table in OTHERS]
            at = await world.publish(*names)
            at.append(await world.shared.writer.publish(OTHERS[number].encode(), b"junk"))
            await world.told(at)
            await elapsed(0.3)

    writers = [asyncio.ensure_future(write(number)) for number in range(2)]
    try:
        await world.begin(world.third)
        await world.on_all("two members")
        await asyncio.to_thread(world.second.kill)
        await world.on_all("the other one was killed")
        await world.begin(world.second)
        await world.on_all("it is back")
    finally:
        is_over.set()
        await asyncio.gather(*writers)
