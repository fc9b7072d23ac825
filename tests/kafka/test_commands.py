"""`rootline topics` and `rootline dlq` against a real broker, and a lake whose log is on it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rootline.adapters.kafka.coordinator_log import KafkaVerdictSink
from rootline.adapters.settings import KafkaSettings
from rootline.connect import connect
from rootline.schemas.bytes.intent_codec import decode_intent, encode_intent
from rootline.schemas.errors import OutcomeUnknown
from rootline.schemas.identifiers import LogId, LogPosition
from rootline.schemas.intent import Intent
from tests.cli.conftest import Run
from tests.cli.conftest import run as run
from tests.kafka.reading import records_on
from tests.kafka.shared_log import in_environment
from tests.services.kafka_service import KafkaService
from tests.support.decided import APPEND, letter_on

pytestmark = pytest.mark.services


@pytest.fixture
def named(kafka_service: KafkaService, monkeypatch: pytest.MonkeyPatch) -> KafkaSettings:
    """Topics that do not exist, named by the environment."""
    return in_environment(kafka_service.settings(), monkeypatch)


def test_topics_are_missing_then_made_then_right(run: Run, named: KafkaSettings) -> None:
    words = ("--log", named.url)
    before = run("topics", "check", *words, "--json")
    assert (before.code, [record["found"] for record in before.records]) == (1, ["missing"] * 5)

    made = run("topics", "create", *words, "--partitions", 2, "--replication-factor", 1, "--json")
    assert made.code == 0
    assert [record["partitions"] for record in made.records] == [2, 2, 2, 1, 2]
    assert "all topics exist" in run("topics", "create", *words).out

    after = run("topics", "check", *words, "--json")
    assert after.code == 0
    assert {record["weight"] for record in after.records[:5]} == {"advised"}
    assert [record["partitions"] for record in after.records[5:]] == [2, 2, 2, 1, 2]


def test_a_log_that_is_not_kafka_is_told_what_would_be_right(run: Run) -> None:
    result = run("topics", "check", "--log", "sqlite:///somewhere")
    assert result.code == 2
    assert "kafka://host:port" in result.err


async def published(settings: KafkaSettings, value: bytes) -> None:
    sink = KafkaVerdictSink(settings)
    try:
        await sink.publish_verdicts([], [letter_on(LogPosition(LogId("cluster/topic"), 1, 5), value)])
    finally:
        await sink.close()


def test_a_rejected_record_is_listed_and_shown(run: Run, named: KafkaSettings) -> None:
    words = ("--log", named.url)
    assert run("topics", "create", *words, "--partitions", 2, "--replication-factor", 1).code == 0
    assert run("dlq", "list", *words).out == "no dead letters\n"
    intent = Intent.model_validate(APPEND)
    asyncio.run(published(named, encode_intent(intent)))

    listed = run("dlq", "list", *words, "--json").records
    assert [(record["record"], record["code"], record["table"]) for record in listed] == [
        ("1/5", "undecodable", "demo.flights")
    ]
    assert run("dlq", "list", *words, "--code", "row-conflict").out == "no dead letters\n"
    (shown,) = run("dlq", "show", "1/5", *words, "--json").records
    assert decode_intent(shown["intent"].encode()) == intent
    assert shown["key"] == "demo.flights"
    assert run("dlq", "show", "intent-5", *words).code == 0
    missing = run("dlq", "show", "7/7", *words)
    assert (missing.code, "rootline dlq list" in missing.err) == (2, True)


def test_a_lake_on_kafka_publishes_there_and_says_when_nobody_decides(
    named: KafkaSettings, run: Run, tmp_path: Path
) -> None:
    assert run("topics", "create", "--log", named.url, "--partitions", 2, "--replication-factor", 1).code == 0
    with connect(tmp_path / "lake", log=named.url) as lake, lake.producer() as producer:
        receipt = producer.publish(Intent.model_validate(APPEND))
        with pytest.raises(OutcomeUnknown) as failure:
            receipt.verdict(timeout_s=0.1)

    assert failure.value.code == "verdict-timeout"
    (found,) = records_on(named, named.intents_topic)
    assert found.key == b"demo.flights"
    assert decode_intent(found.value, found.headers).intent_id == APPEND["intent_id"]
