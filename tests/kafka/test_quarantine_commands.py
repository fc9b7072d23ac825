"""`rootline quarantine list` and `lift` over a real broker: what coordinators wrote, and what they will find."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from rootline.adapters.kafka.frontier_codec import ParkingRecord, parking_outgoing
from rootline.adapters.kafka.frontiers import frontier_publisher, read_frontiers
from rootline.adapters.kafka.topics import topic_identity
from rootline.adapters.settings import KafkaSettings
from rootline.ports.intent_feed import Lift, ParkedRun, ParkedTable
from rootline.schemas.identifiers import LogId, TableName
from tests.cli.conftest import Run
from tests.cli.conftest import run as run
from tests.kafka.shared_log import in_environment
from tests.services.kafka_service import KafkaService

pytestmark = pytest.mark.services

STUCK = TableName("q.q")


@pytest.fixture
def named(kafka_service: KafkaService, monkeypatch: pytest.MonkeyPatch) -> KafkaSettings:
    """Topics named by the environment."""
    return in_environment(kafka_service.with_topics(partitions=2), monkeypatch)


def parked(log: LogId, partition: int, records: int) -> ParkedTable:
    runs = (ParkedRun("w", 0, records - 1),) if records else ()
    return ParkedTable(STUCK, log, partition, 9, 1_000, "quarantined: bad bytes", 3, records, 70, 2_000, runs)


async def write(settings: KafkaSettings, *records: ParkingRecord) -> None:
    publisher = frontier_publisher(settings)
    await publisher.publish([parking_outgoing(settings, record) for record in records])
    await publisher.close()


def test_what_is_parked_is_listed_and_a_lift_is_written_for_each_partition_of_the_table(
    named: KafkaSettings, run: Run
) -> None:
    words = ("--log", named.url, "--json")
    assert run("quarantine", "list", *words).records == []
    assert run("quarantine", "lift", STUCK, *words).code == 1
    log = topic_identity(named, named.intents_topic).log
    old = ParkingRecord(log, 0, "before", 3, {STUCK: parked(log, 0, 1)})
    now = ParkingRecord(log, 0, "now", 4, {STUCK: parked(log, 0, 5)})
    other = ParkingRecord(log, 1, "other", 1, {STUCK: parked(log, 1, 0)})
    asyncio.run(write(named, now, other, old))

    listed = run("quarantine", "list", *words)
    assert [(found["table"], found["partition"], found["records"]) for found in listed.records] == [
        (STUCK, 0, 5),
        (STUCK, 1, 0),
    ]
    assert listed.records[0]["since"] == "1970-01-01T00:00:01.000+00:00"
    assert listed.records[0]["why"] == "quarantined: bad bytes"
    assert "quarantined: bad bytes" in run("quarantine", "list", "--log", named.url).out

    tried = run("quarantine", "lift", STUCK, "--dry-run", *words)
    assert [found["lifted"] for found in tried.records] == [False, False]
    assert asyncio.run(read_frontiers(named, log)).lifts == ()
    said = run("quarantine", "lift", STUCK, "--without-missing", "--log", named.url)
    assert "5 parked intents (70 bytes) are decided first, then the log continues at offset 9" in said.out
    lifts = asyncio.run(read_frontiers(named, log)).lifts
    assert {replace(lift, name="") for lift in lifts} == {
        Lift(STUCK, log, 0, without_missing=True, first_offset=3),
        Lift(STUCK, log, 1, without_missing=True, first_offset=3),
    }
    assert len({lift.name for lift in lifts}) == 2
