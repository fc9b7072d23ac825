"""A lake on S3 and Kafka that an older version wrote, on real services, under this version.

Its group has offsets and a bookmark, its control topic a parked table and a paused one, its log intents that no
coordinator has decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from rootline.adapters.kafka.administration import KafkaTopics
from rootline.adapters.kafka.pauses import KafkaPauses
from tests.kafka.coordinating import coordinating, ready, until
from tests.kafka.kafka_lake import KafkaLake
from tests.kafka.topic_watch import Place, Watch
from tests.services.s3_service import S3Service
from tests.stored.stored_kafka import on_services
from tests.stored.stored_lake import (
    Facts,
    append_to_all,
    assert_as_stored,
    assert_sound,
    assert_told_as_before,
    intent_of,
    shown,
)
from tests.stored.story import FEED, PAUSED, STUCK

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def facts() -> Facts:
    return Facts.of("kafka")


@pytest.fixture(scope="module")
def stored(s3_service: S3Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaLake]:
    with on_services(s3_service, tmp_path_factory.mktemp("stored")) as lake:
        yield lake


@pytest.fixture
def watch(stored: KafkaLake) -> Iterator[Watch]:
    """What is on its topics."""
    watching = Watch(stored.kafka)
    yield watching
    watching.close()


def test_its_rows_are_read_from_s3_and_it_is_sound(stored: KafkaLake, facts: Facts) -> None:
    with stored.client() as lake:
        assert_as_stored(lake, facts, lambda versions: (min(versions),))  # those between are read from a folder
        assert_sound(lake)


async def test_a_coordinator_goes_on_where_the_older_one_stopped_and_every_table_grows(
    stored: KafkaLake, facts: Facts, watch: Watch
) -> None:
    before = {(partition, offset) for partition, offset, _ in facts.more["decided"]}
    await asyncio.to_thread(watch.sample)
    assert set(watch.verdicts) == before
    read_to = dict(watch.committed)
    [parked] = await asyncio.to_thread(KafkaTopics(stored.kafka).parked)
    assert (parked.table, parked.records) == (STUCK, len(facts.more["parked"]))
    pauses, store = KafkaPauses(stored.kafka), stored.store()
    [pause] = await pauses.pauses()
    assert (pause.table, pause.why) == (PAUSED, "to be stored")
    try:
        async with coordinating(stored.kafka, store) as service:
            await ready(service)

            async def decided() -> bool:
                await asyncio.to_thread(watch.sample)
                return len(watch.verdicts) >= len(before) + len(facts.undecided) + parked.records

            await until(decided, "what waited is decided, and what was parked")
            assert_decided_once(watch, before, read_to)
            fresh = [watch.verdicts[place][0] for place in sorted(watch.verdicts) if place not in before]
            assert [(verdict.kind.value, verdict.code) for verdict in fresh if verdict.table == FEED] == [
                ("committed", None),
                ("committed", None),
                ("rejected", "file-already-live"),
                ("committed", None),
            ]
            assert {verdict.kind.value for verdict in fresh if verdict.table != FEED} == {"committed"}
            assert {verdict.table for verdict in fresh} == {FEED, STUCK}, "one table is paused"
            await pauses.resume(pause)
            await asyncio.to_thread(grow, stored, facts)
            await asyncio.to_thread(watch.sample)
            assert_decided_once(watch, before, read_to)
    finally:
        await pauses.close()
        await store.close()


def assert_decided_once(watch: Watch, before: set[Place], read_to: dict[int, int]) -> None:
    """Every record has one outcome. What the group had passed is not told again."""
    for (partition, offset), verdicts in watch.verdicts.items():
        assert len({shown(verdict) for verdict in verdicts}) == 1, (partition, offset)
        if (partition, offset) in before and offset < read_to[partition]:
            assert len(verdicts) == 1, (partition, offset)


def grow(stored: KafkaLake, facts: Facts) -> None:
    """Every table grows; what waited was decided when it was let through; what was decided before stays so."""
    with stored.client() as lake:
        heads = {table: lake.table(table).head().version for table in facts.versions}
        assert heads == {table: max(versions) for table, versions in facts.versions.items()}
        append_to_all(lake)
        with lake.producer() as producer:
            for held in (*facts.more["parked"], *facts.more["paused"]):
                assert producer.publish(intent_of(held)).verdict(timeout_s=60).kind.value == "duplicate"
        assert_told_as_before(lake, facts)
        assert_sound(lake, "listed")
