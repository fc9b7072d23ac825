"""The log and the bucket of a lake that the first release wrote, on a real broker and store, under this version.

Its records are in a topic with an id of its own, as after a log was restored: so every record is read again, and what
was told of it follows from the roots.
"""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer

from rootline.adapters.kafka.topics import topic_identity
from rootline.adapters.kafka.writer_log import KafkaWriterLog
from rootline.adapters.settings import KafkaSettings
from rootline.client.lake import Lake
from rootline.schemas.bytes.intent_codec import decode_intent
from rootline.schemas.identifiers import LogPosition, ObjectKey
from tests.kafka.coordinating import coordinating, ready
from tests.kafka.kafka_lake import KafkaLake
from tests.services.s3_service import S3Service
from tests.upgrade.released_lake import FLIGHTS, PLAIN, RELEASED, facts_of, unpack

PENDING: Final = {
    "append-third": ("committed", 6, None),
    "append-second1": ("duplicate", 2, None),
    "append-first1": ("rejected", None, "table-unknown"),
    "append-second2": ("rejected", None, "file-already-live"),
    "remove-second": ("committed", 6, None),
}


def records() -> list[dict[str, Any]]:
    held: list[dict[str, Any]] = json.loads((RELEASED / "kafka.json").read_text())["records"]
    return [{**record, "value": base64.b64decode(record["value"])} for record in held]


def write_log(settings: KafkaSettings) -> None:
    """Keys, values and headers, each to its partition, in order."""
    producer = Producer({"bootstrap.servers": settings.servers(), "log_level": 0, "enable.idempotence": True})
    for record in records():
        headers = [(name, base64.b64decode(value)) for name, value in record["headers"]]
        key = base64.b64decode(record["key"])
        producer.produce(settings.intents_topic, record["value"], key, partition=record["partition"], headers=headers)
    assert producer.flush(60) == 0


def objects_in(folder: Path) -> dict[ObjectKey, bytes]:
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {ObjectKey(str(path.relative_to(folder))): path.read_bytes() for path in found}


async def write_bucket(lake: KafkaLake, folder: Path) -> None:
    store = lake.store()
    try:
        for key, body in objects_in(folder).items():
            await store.put_if_absent(key, body)
    finally:
        await store.close()


@pytest.fixture
async def released(s3_service: S3Service, settings: KafkaSettings, tmp_path: Path) -> KafkaLake:
    lake = KafkaLake(s3_service, settings)
    await write_bucket(lake, unpack("kafka", tmp_path))
    await asyncio.to_thread(write_log, settings)
    return lake


def look(lake: Lake, rows: dict[str, list[list[int]]]) -> None:
    for table, versions in rows.items():
        for version, expected in enumerate(versions):
            found = lake.table(table).scan(version=version).to_arrow()["id"].to_pylist()
            assert sorted(found) == expected, (table, version)


async def test_every_record_of_the_first_release_is_told_what_it_was_told(
    released: KafkaLake, settings: KafkaSettings
) -> None:
    facts = facts_of("kafka")
    told = {(told.verdict.partition, told.verdict.offset): told.verdict for told in facts.told}
    log = (await asyncio.to_thread(topic_identity, settings, settings.intents_topic)).log
    store, writer = released.store(), KafkaWriterLog(settings)
    try:
        # this begins to read: it sees the verdicts that come from now on
        assert await writer.wait_verdict(LogPosition(log, 0, 0), timeout_s=0.01) is None
        async with coordinating(settings, store) as service:
            await ready(service)
            for record in records():
                at = (record["partition"], record["offset"])
                verdict = await writer.wait_verdict(LogPosition(log, *at), timeout_s=60)
                assert verdict is not None, at
                found = verdict.kind.value, verdict.version, verdict.code
                intent_id = decode_intent(record["value"]).intent_id
                if at in told:
                    kind = "duplicate" if told[at].kind == "committed" else told[at].kind.value
                    assert found == (kind, told[at].version, told[at].code), intent_id
                elif intent_id in PENDING:
                    assert found == PENDING[intent_id], intent_id
                else:
                    assert found[0] == "duplicate", "what made the tables was committed"
            with released.client() as lake:
                await asyncio.to_thread(look, lake, facts.rows)
    finally:
        await writer.close()
        await store.close()


async def test_it_is_altered_and_dropped_on_s3(released: KafkaLake, settings: KafkaSettings) -> None:
    store = released.store()

    def change(lake: Lake) -> None:
        with lake.table(PLAIN).alter(timeout_s=60) as altered:
            altered.add_column("more", "int")
        lake.drop_table(FLIGHTS, timeout_s=60)

    try:
        async with coordinating(settings, store) as service:
            await ready(service)
            with released.client() as lake:
                await asyncio.to_thread(change, lake)
                assert FLIGHTS not in await asyncio.to_thread(lake.list_tables)
    finally:
        await store.close()
