"""`rootline dlq replay` and `rootline trace` over a real broker, with a coordinator that decides."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.identifiers import LogId, LogPosition
from rootline.schemas.intent import Intent
from tests.cli.conftest import Result, Run
from tests.cli.conftest import run as run
from tests.kafka.reading import records_on
from tests.kafka.shared_log import SharedLog, in_environment
from tests.services.kafka_service import KafkaService
from tests.support.decided import verdict_on
from tests.support.small_intents import TABLE, adding, removing

pytestmark = pytest.mark.services
SCHEMA = pa.schema([("id", pa.int64())])


class Lake:
    """A lake on Kafka, commands on it, and producers that are not ours."""

    def __init__(self, log: SharedLog, run: Run) -> None:
        self.log = log
        self._run = run

    def command(self, *words: object) -> Result:
        return self._run(*words, *self.log.words, "--json")

    def one(self, *words: object) -> dict[str, Any]:
        result = self.command("trace", *words)
        assert len(result.records) == 1, result.out + result.err
        record: dict[str, Any] = result.records[0]
        return record

    def produce(self, intent: Intent, **headers: bytes) -> LogPosition:
        """As a foreign producer does."""
        settings = self.log.settings
        producer = Producer({"bootstrap.servers": settings.servers(), "partitioner": "murmur2_random", "log_level": 0})
        placed: list[Any] = []
        producer.produce(
            settings.intents_topic,
            encode_intent(intent),
            intent.table.encode(),
            headers=list(headers.items()),
            on_delivery=lambda _, message: placed.append(message),
        )
        assert producer.flush(30) == 0
        return LogPosition(LogId(""), placed[0].partition(), placed[0].offset())

    def create_table(self) -> None:
        with self.log.open() as lake:
            lake.create_table(TABLE, SCHEMA)

    def commit(self, *intents: Intent) -> list[Any]:
        with self.log.open() as lake, lake.producer() as producer:
            return [receipt.verdict(30) for receipt in [producer.publish(intent) for intent in intents]]


@pytest.fixture
def lake(kafka_service: KafkaService, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> Lake:
    log = SharedLog(tmp_path / "lake", kafka_service.with_topics())
    log.folder.mkdir()
    in_environment(log.settings, monkeypatch)
    return Lake(log, run)


@pytest.fixture
def coordinated(lake: Lake) -> Iterator[Lake]:
    with lake.log.coordinated():
        yield lake


def test_a_rejected_intent_keeps_its_headers_and_is_replayed_once(coordinated: Lake) -> None:
    lake = coordinated
    place = lake.produce(adding("one", writer_id="ingest-7", writer_sequence=3), traceparent=b"00-4bf9", tag=b"\xff")
    lake.commit(removing("two"))  # of the same partition: the first one is decided too
    named = f"{place.partition}/{place.offset}"

    (shown,) = lake.command("dlq", "show", named).records
    assert (shown["code"], shown["headers"]) == ("table-unknown", [["traceparent", "00-4bf9"], ["tag", "ff"]])
    lake.create_table()
    first, again = lake.command("dlq", "replay", named), lake.command("dlq", "replay", "one")

    assert [(record["kind"], record["version"]) for record in (*first.records, *again.records)] == [
        ("committed", 1),
        ("duplicate", 1),
    ]
    everything = lake.command("dlq", "replay", "--table", TABLE, "--yes")
    assert [record["kind"] for record in everything.records] == ["duplicate", "rejected"]
    assert everything.code == 1
    assert not {"one", "no-two"} & {record["intent_id"] for record in everything.records}


def test_what_was_decided_is_traced_with_its_verdict(coordinated: Lake) -> None:
    lake = coordinated
    lake.create_table()
    first, again, refused, _ = lake.commit(
        *[adding("one", writer_id="w", writer_sequence=0)] * 2,
        removing("nothing").model_copy(update={"writer_id": "w", "writer_sequence": 1}),
        adding("two"),
    )

    for words in (("--intent", "one"), ("--intent", "one", "--table", TABLE)):
        found = lake.one(*words)
        assert (found["state"], found["version"]) == ("duplicate", first.version)
        assert (found["partition"], found["offset"], found["log"]) == (again.partition, again.offset, again.log)
    rejected = lake.one("--intent", "no-nothing")
    assert (rejected["state"], rejected["code"]) == ("rejected", "file-not-live")
    assert rejected["dead_letter"] == f"{refused.partition}/{refused.offset}"
    written = lake.one("--writer", "w", "--sequence", 0, "--table", TABLE)
    assert (written["state"], written["source"], written["version"]) == ("committed", "ledger", first.version)
    assert lake.one("--file", "data/two.parquet")["state"] == "live"
    assert lake.command("trace", "--intent", "nobody's").records == [
        {"state": "nowhere", "records_searched": 5, "whole_log": True}
    ]


def test_what_nobody_decided_is_pending_until_its_verdict_comes(lake: Lake) -> None:
    with lake.log.coordinated():
        lake.create_table()
    place = lake.produce(adding("one"))
    elsewhere = lake.produce(adding("two").model_copy(update={"table": "demo.nothing"}))

    pending = lake.one("--intent", "one")
    assert (pending["state"], pending["partition"], pending["offset"]) == ("pending", place.partition, place.offset)
    assert lake.one("--intent", "two")["state"] == "pending"

    position = elsewhere._replace(log=LogId(pending["log"]))
    lake.log.decide([verdict_on(position, table="demo.nothing", message="there is no table demo.nothing")])
    decided = lake.one("--intent", "two")
    assert (decided["state"], decided["code"], decided["source"]) == ("rejected", "row-conflict", "verdict")


def test_without_a_broker_it_says_so_and_ends_with_three(lake: Lake, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOTLINE_KAFKA__REQUEST_TIMEOUT_S", "0.5")
    words = ("--warehouse", str(lake.log.folder), "--log", "kafka://127.0.0.1:1")
    for command in (("trace", "--intent", "one"), ("dlq", "list")):
        result = run(*command, *words)
        assert (result.code, "kafka://127.0.0.1:1" in result.err) == (3, True)
    assert records_on(lake.log.settings, lake.log.settings.intents_topic) == []
