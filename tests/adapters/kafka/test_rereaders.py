"""What an empty answer of a second reading means: the consumer asks ahead, so its next answer may be an old one."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka import ConsumerRecord, TopicPartition

from rootline.adapters.kafka import intent_feed as rereaders
from rootline.adapters.kafka.intent_feed import KafkaRereaders
from rootline.adapters.settings import KafkaSettings
from rootline.schemas.identifiers import LogId
from rootline.schemas.parts.log import PartitionOffset

LOG = LogId("cluster/topic")
SETTINGS = KafkaSettings(bootstrap_servers="127.0.0.1:1")


class Asking:
    """A consumer that asks ahead. `answers`: of the broker, one for each look: how many records the log had then."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.looks = 0
        self.at, self.end = 0, 0
        self.heard_ms: int | None = None

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.heard_ms = None

    def seek(self, at: TopicPartition, offset: int) -> None:
        self.at = offset

    async def getmany(self, **_: Any) -> dict[TopicPartition, list[ConsumerRecord[bytes, bytes]]]:
        self.looks += 1
        self.heard_ms, self.end = (self.heard_ms or 0) + 1, self.answers.pop(0)
        found = [record_at(offset) for offset in range(self.at, self.end)]
        self.at = self.end
        return {TopicPartition(SETTINGS.intents_topic, 0): found} if found else {}

    async def position(self, at: TopicPartition) -> int:
        return self.at

    def last_poll_timestamp(self, at: TopicPartition) -> int | None:
        return self.heard_ms

    def last_stable_offset(self, at: TopicPartition) -> int:
        return self.end


def record_at(offset: int) -> ConsumerRecord[bytes, bytes]:
    return ConsumerRecord(SETTINGS.intents_topic, 0, offset, 0, 0, b"key", b"%d" % offset, None, 3, 1, ())


class Standing:
    """All that reading again asks of the membership."""

    async def identity(self) -> LogId:
        return LOG


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Any:
    async def started(*_: object, **__: object) -> None:
        """There is no broker."""

    def make(*answers: int) -> tuple[KafkaRereaders, Asking]:
        consumer = Asking(*answers)
        monkeypatch.setattr(rereaders, "make_consumer", lambda *_, **__: consumer)
        monkeypatch.setattr(rereaders, "start_consumer", started)
        return KafkaRereaders(SETTINGS, Standing()), consumer  # type: ignore[arg-type]

    return make


async def read_from(offset: int, reader: KafkaRereaders) -> list[int]:
    found = await reader.read("r", PartitionOffset(LOG, 0, offset), limit=10)
    return [record.position.offset for record in found.records]


async def test_an_answer_that_was_under_way_when_the_read_began_is_not_taken_for_the_end(reading: Any) -> None:
    reader, _ = reading(3, 3, 4)  # the second answer was sent before record 3 was appended
    assert await read_from(0, reader) == [0, 1, 2]
    assert await read_from(3, reader) == [3]


async def test_the_first_answer_of_a_new_reader_was_asked_for_by_its_read(reading: Any) -> None:
    reader, consumer = reading(3)
    assert await read_from(3, reader) == []
    assert consumer.looks == 1
