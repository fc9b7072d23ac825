"""The stored lake on S3 and Kafka, put on real services for one test.

A log is its cluster's id and its topic's id, and a broker gives a topic the id that it likes. So the broker's own data
is stored: topics, offsets, times, the group with its bookmark, and the ids.

Owns: the names of its topics, the services with its data. Does not own: its facts (`stored_lake`), making it (`make`).
Invariants: the bucket's copy has a fresh prefix of its own; the broker is one for this lake alone.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rootline.adapters.settings import KafkaSettings
from rootline.schemas.identifiers import ObjectKey
from tests.kafka.kafka_lake import KafkaLake
from tests.services.kafka_service import KafkaService, running_movable_kafka
from tests.services.s3_service import S3Service
from tests.stored.stored_lake import unpack

PARTITIONS: Final = 2
PREFIX: Final = "stored-lake"


def topics_of(kafka: KafkaService) -> KafkaSettings:
    """Settings with the names of its topics and its group."""
    topics = {f"{name}_topic": f"stored.{name}" for name in ("intents", "verdicts", "frontiers", "parked")}
    return kafka.settings(**topics, dead_letters_topic="stored.dead-letters", group_id="stored", delivery_timeout_s=20)


@contextmanager
def on_services(s3: S3Service, folder: Path) -> Iterator[KafkaLake]:
    """The lake, its objects in the store, its log on a broker that ends with the block."""
    stored = unpack("kafka", folder)
    with running_movable_kafka(stored / "broker") as kafka:
        lake = KafkaLake(s3, topics_of(kafka), prefix=f"test-{uuid.uuid4().hex}")
        objects = [path for path in (stored / "bucket").rglob("*") if path.is_file()]
        bodies = {ObjectKey(path.relative_to(stored / "bucket").as_posix()): path.read_bytes() for path in objects}
        asyncio.run(put_objects(lake, bodies))
        yield lake


async def put_objects(lake: KafkaLake, bodies: Mapping[ObjectKey, bytes]) -> None:
    """Store the objects, a few at a time."""
    store, few = lake.store(), asyncio.Semaphore(8)

    async def put(key: ObjectKey, body: bytes) -> None:
        async with few:
            await store.put_if_absent(key, body)

    try:
        async with asyncio.TaskGroup() as putting:
            for key, body in bodies.items():
                putting.create_task(put(key, body))
    finally:
        await store.close()
