"""One record stops nothing but itself, whatever its size or compression: end to end (decision 0108)."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from rootline.adapters.kafka.topics import topic_identity
from rootline.adapters.settings import KafkaSettings
from rootline.schemas.identifiers import LogPosition, TableName
from rootline.schemas.verdict import VerdictKind
from tests.coordinator.running_service import TABLE, append_intent
from tests.kafka.coordinating import PATIENCE_S, SharedTable, coordinating, sharing, until
from tests.kafka.feeding import append, set_limit
from tests.kafka.hostile_batches import (
    CODECS,
    MEBIBYTE,
    batch_of,
    compressed,
    put,
    record_of_zeros,
    record_with_a_header_name,
)
from tests.kafka.kafka_lake import KafkaLake
from tests.kafka.reading import dead_letters_on
from tests.kafka.rootline_process import RootlineProcess, ending
from tests.services.kafka_service import KafkaService
from tests.services.s3_service import S3Service

pytestmark = pytest.mark.services
OTHERS = tuple(TableName(f"demo.other-{number}") for number in range(6))
MORE_MEMORY_MB = 256
"""What the largest batch that is still decompressed takes, several times over; a bomb takes 2 to 5 times its size."""


def position_of(settings: KafkaSettings, offset: int) -> LogPosition:
    return LogPosition(topic_identity(settings, settings.intents_topic).log, 0, offset)


async def committed_on_all(shared: SharedTable) -> None:
    """Every table takes an intent, on every partition."""
    verdicts = await shared.commit(*(append_intent(f"{random.random()}", table) for table in (TABLE, *OTHERS)))
    assert {verdict.kind for verdict in verdicts} == {VerdictKind.COMMITTED}


def peak_mb(process: RootlineProcess) -> int:
    """The most memory that the process ever had."""
    lines = Path(f"/proc/{process.running.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1_024 for line in lines if line.startswith("VmHWM"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("codec", "bomb_mib"), [("zstd", 2_000), ("gzip", 200), ("lz4", 200), ("snappy", 200)], ids=lambda value: value
)
async def test_a_bomb_gets_a_verdict_and_a_letter_and_takes_no_memory(
    kafka_service: KafkaService, s3_service: S3Service, tmp_path: Path, codec: str, bomb_mib: int
) -> None:
    settings = kafka_service.with_topics(partitions=2, delivery_timeout_s=20)
    lake = KafkaLake(s3_service, settings)
    store = lake.store()
    environment = {**lake.environment(), "ROOTLINE_COORDINATOR__PROBE_ROUNDS": "0"}
    process = RootlineProcess("coordinator", ("coordinator", "--http-port", "0"), environment, tmp_path)
    bomb = compressed(CODECS[codec], record_of_zeros(bomb_mib * MEBIBYTE, key=TABLE.encode()))
    if codec != "zstd":
        limit = len(bomb) + MEBIBYTE
        for topic, size in ((settings.intents_topic, limit), (settings.dead_letters_topic, 2 * limit)):
            await asyncio.to_thread(set_limit, settings, topic, size)
    async with sharing(settings, store) as shared:
        with ending(process):
            process.start()
            for table in (TABLE, *OTHERS):
                await shared.create(table)
            await committed_on_all(shared)
            before_mb = peak_mb(process)

            [offset] = await put(settings, (batch_of(CODECS[codec], bomb), 1))
            verdict = await shared.writer.wait_verdict(position_of(settings, offset), timeout_s=PATIENCE_S)
            await committed_on_all(shared)

            more_mb = peak_mb(process) - before_mb
            assert more_mb < MORE_MEMORY_MB
            assert verdict is not None
            assert (verdict.kind, verdict.code) == (VerdictKind.REJECTED, "batch-unreadable")
            [letter] = await dead_letters_on(settings)
            assert (letter.offset, letter.partition, letter.value) == (offset, 0, b"")
            assert f"a batch of {len(bomb) + 61} bytes ({codec})" in letter.message
            assert f"offsets {offset} to {offset}, sha256 " in letter.message
    await store.close()


async def test_a_record_that_another_codec_cannot_make_small_stops_nothing_and_is_kept_whole(
    kafka_service: KafkaService,
) -> None:
    settings = kafka_service.with_topics(partitions=1, delivery_timeout_s=20)
    async with sharing(settings) as shared, coordinating(settings, shared.store):
        for table in (TABLE, *OTHERS):
            await shared.create(table)
        value = random.randbytes(64_000) * 40  # zstd makes 70 KB of it, gzip looks back 32 KB only and makes nothing
        options = {"compression.type": "zstd", "message.max.bytes": "99000000"}
        await asyncio.to_thread(append, settings, 0, [value], **options)
        await committed_on_all(shared)
        await shared.judge(TABLE, *OTHERS)
        [letter] = await dead_letters_on(settings)
        assert (letter.value, letter.code) == (value, "intent-too-large")


async def test_a_record_that_fills_the_memory_does_not_stop_the_reading(kafka_service: KafkaService) -> None:
    settings = kafka_service.with_topics(partitions=2, delivery_timeout_s=20)
    limits = {"queue_bytes_max": 20_000_000, "table_queue_bytes_max": 20_000_000}
    async with sharing(settings) as shared, coordinating(settings, shared.store, **limits):
        for table in (TABLE, *OTHERS):
            await shared.create(table)
        value = random.randbytes(64_000) * 400
        options = {"compression.type": "zstd", "message.max.bytes": "99000000"}
        await asyncio.to_thread(append, settings, 0, [value] * 3, **options)
        await committed_on_all(shared)
        await shared.judge(TABLE, *OTHERS)
        letters = await dead_letters_on(settings)
        assert [(letter.value, letter.code) for letter in letters] == [(b"", "intent-too-large")] * 3
        assert all(f"{len(value)} bytes, sha256 " in letter.message for letter in letters)


async def test_a_record_that_the_client_library_cannot_read_costs_its_batch_and_nothing_else(
    kafka_service: KafkaService,
) -> None:
    settings = kafka_service.with_topics(partitions=1, delivery_timeout_s=20)
    async with sharing(settings) as shared, coordinating(settings, shared.store):
        for table in (TABLE, *OTHERS):
            await shared.create(table)
        odd = batch_of(0, record_with_a_header_name(b"\xff\xfe") + record_with_a_header_name(b"fine", 1), 2)
        [offset] = await put(settings, (odd, 2))
        await committed_on_all(shared)

        async def has_letters() -> bool:
            return len(await dead_letters_on(settings)) >= 2

        await until(has_letters, "the letters of both records of the batch")
        letters = await dead_letters_on(settings)
        assert [(letter.offset, letter.code) for letter in letters] == [
            (offset, "batch-unreadable"),
            (offset + 1, "batch-unreadable"),
        ]
