"""Publishing with a Kafka client and an Avro library that know nothing of Rootline but `intent.avsc`."""

from __future__ import annotations

import io
import json
import struct
import uuid
from pathlib import Path

import fastavro
import pytest
from confluent_kafka import Producer

from rootline.adapters.kafka_settings import KafkaSettings
from rootline.schemas.intent_codec import decode_intent
from tests.kafka.decided import APPEND
from tests.kafka.reading import records_on

pytestmark = pytest.mark.services
SCHEMA = Path(__file__).parents[2] / "schemas" / "avro" / "intent.avsc"


def crc_64_avro(text: bytes) -> int:
    """The fingerprint as the Avro specification writes it out."""
    empty = 0xC15D213AA4D7A795
    table = []
    for number in range(256):
        value = number
        for _ in range(8):
            value = (value >> 1) ^ (empty & -(value & 1))
        table.append(value)
    found = empty
    for byte in text:
        found = (found >> 8) ^ table[(found ^ byte) & 0xFF]
    return found


def publish(settings: KafkaSettings, value: bytes, headers: list[tuple[str, bytes]]) -> None:
    producer = Producer(
        {"bootstrap.servers": settings.servers(), "partitioner": "murmur2_random", "acks": "all", "log_level": 0}
    )
    producer.produce(settings.intents_topic, value, b"demo.flights", headers=headers)
    assert producer.flush(30) == 0


def test_avro_by_the_published_schema_alone(settings: KafkaSettings) -> None:
    schema = json.loads(SCHEMA.read_text())
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), APPEND)
    canonical = fastavro.schema.to_parsing_canonical_form(schema)
    publish(settings, b"\xc3\x01" + struct.pack("<Q", crc_64_avro(canonical.encode())) + body.getvalue(), [])

    (found,) = records_on(settings, settings.intents_topic)
    intent = decode_intent(found.value, found.headers)
    assert (intent.intent_id, intent.table) == ("a-job-of-somebody/17", "demo.flights")
    assert [file.location for file in intent.add_data_files] == ["data/part-0.parquet"]


def test_json_with_its_content_type(settings: KafkaSettings) -> None:
    intent = APPEND | {"intent_id": str(uuid.uuid4())}
    publish(settings, json.dumps(intent).encode(), [("content-type", b"application/json")])

    (found,) = records_on(settings, settings.intents_topic)
    assert found.headers == {"content-type": b"application/json"}
    assert decode_intent(found.value, found.headers).intent_id == intent["intent_id"]
