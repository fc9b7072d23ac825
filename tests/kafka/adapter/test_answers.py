"""Records of rejections that no root records: which of them count, and who may still write one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rootline.adapters.kafka.frontier_codec import (
    ANSWER_RECORD_BYTES_MAX,
    AnswerRecord,
    answers_to_bytes,
    next_record,
    record_key,
)
from rootline.adapters.kafka.frontiers import FrontierReading
from rootline.adapters.settings import KafkaSettings
from rootline.ports.intent_feed import RecordedRejection
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import LogId, LogPosition
from tests.kafka.feeding import append, member_of, numbered
from tests.services.kafka_service import KafkaService
from tests.support.feed_driver import together

LOG = LogId("cluster/topic")
SETTINGS = KafkaSettings()


def answer(
    offset: int, message: str = "there is no table a.b", log: LogId = LOG, partition: int = 3
) -> RecordedRejection:
    return RecordedRejection(LogPosition(log, partition, offset), "table-unknown", message)


def record(name: str, epoch: int, *offsets: int, message: str = "there is no table a.b") -> AnswerRecord:
    return AnswerRecord(LOG, 3, name, epoch, {offset: answer(offset, message) for offset in offsets})


def test_a_record_is_read_as_it_was_written_and_by_no_other_group_or_log() -> None:
    written = record("one", 7, 1, 2, 3, 9)
    key, value = record_key(SETTINGS, written), answers_to_bytes(written)
    assert read_back(SETTINGS.group_id, LOG, key, value) == (written,)
    assert read_back(SETTINGS.group_id, LogId("cluster/other"), key, value) == ()
    assert read_back("other", LOG, key, value) == ()
    assert read_back(SETTINGS.group_id, LOG, key, None) == ()


def read_back(group_id: str, log: LogId, key: bytes, value: bytes | None) -> tuple[AnswerRecord, ...]:
    reading = FrontierReading(group_id, log)
    reading.take(SimpleNamespace(topic="frontiers", partition=0, offset=0, key=key, value=value))
    return reading.recorded().answers


def test_a_hundred_thousand_answers_in_a_row_fit_because_they_share_a_run() -> None:
    assert len(answers_to_bytes(record("one", 1, *range(100_000)))) < 100
    apart = AnswerRecord(LOG, 3, "one", 1, {offset: answer(offset, f"no {offset}") for offset in range(10_000)})
    assert len(answers_to_bytes(apart)) > ANSWER_RECORD_BYTES_MAX


def test_an_assignment_carries_on_what_counts_from_its_start_on() -> None:
    mine, gone = next_record([record("one", 4, 1, 5, 6)], LOG, 3, "two", 5)
    assert mine == record("two", 5, 5, 6)
    assert [old.name for old in gone] == ["one"]
    assert next_record([record("one", 4, 1)], LOG, 2, "two", 0) == (AnswerRecord(LOG, 2, "two", 1, {}), [])


def test_what_a_stalled_owner_writes_after_the_next_one_began_counts_for_no_one() -> None:
    stalled = record("one", 4, 1)
    owner, _ = next_record([stalled], LOG, 3, "two", 0)
    late = stalled.with_more({8: answer(8, "told to no one")}, start=0)
    third, _ = next_record([late, owner], LOG, 3, "three", 0)
    assert third.answers == {1: answer(1)}


@pytest.mark.services
async def test_who_lost_the_partitions_holds_nothing(kafka_service: KafkaService) -> None:
    settings = kafka_service.with_topics(rebalance_deadline_s=0.3)
    append(settings, 0, numbered(0, 10))
    async with member_of(settings, answers=False) as owner, member_of(settings) as other:
        await owner.until(lambda: len(owner.records) == 10)
        log = owner.log
        await owner.feed.record_rejections([answer(0, log=log, partition=0)])
        await together(owner, other, done=lambda: len(owner.starts) == len(other.starts) == 2)
        lost = next(iter(other.starts))
        with pytest.raises(Unavailable, match="does not belong to this coordinator"):
            await owner.feed.record_rejections([answer(1, log=log, partition=lost)])


@pytest.mark.services
async def test_what_the_group_does_not_confirm_is_not_held(kafka_service: KafkaService) -> None:
    """A process that stood still believes that it has the partitions; only the brokers know better."""
    settings = kafka_service.with_topics()
    append(settings, 0, numbered(0, 10))
    async with member_of(settings) as owner:
        await owner.until(lambda: len(owner.records) == 10)
        consumer = owner.feed._membership.consumer
        assert consumer is not None
        consumer._coordinator.generation += 1  # as if the others had gone on without it
        owner.feed._membership.generation += 1
        with pytest.raises(Unavailable):
            await owner.feed.record_rejections([answer(0, log=owner.log, partition=0)])


@pytest.mark.services
async def test_over_the_limit_nothing_more_is_held_until_the_offset_moves(kafka_service: KafkaService) -> None:
    settings = kafka_service.with_topics()
    append(settings, 0, numbered(0, 1_000))
    async with member_of(settings) as owner:
        await owner.until(lambda: len(owner.records) == 1_000)
        log = owner.log
        await owner.feed.record_rejections([answer(n, f"{n}" * 60, log=log, partition=0) for n in range(900)])
        more = [answer(n, f"{n}" * 200, log=log, partition=0) for n in range(900, 1_000)]
        big = [answer(n, f"{n}" * 1_000, log=log, partition=0) for n in range(900, 1_000)]
        with pytest.raises(Unavailable, match="wait for the offset of their partition to pass"):
            await owner.feed.record_rejections(big)
        await owner.decided(0, 900)
        await owner.feed.record_rejections(more)
