"""Batches that no well-behaved client sends: far larger when decompressed, or with records that cannot be read.

Owns: making their bytes, and putting them on a topic as they are. Does not own: the adapters under test.
Invariants: what is made takes little memory here; headers and checksums are right, so that brokers accept it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import cramjam
from aiokafka import AIOKafkaProducer
from aiokafka.record.util import calc_crc32c

from rootline.adapters.kafka.record_batches import GZIP, LZ4, SNAPPY, ZSTD
from rootline.adapters.settings import KafkaSettings

MEBIBYTE = 1 << 20
CODECS = {"gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
_XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def varint(number: int) -> bytes:
    """Kafka's signed one."""
    number = number << 1 if number >= 0 else (-number << 1) - 1
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def record_of_zeros(size: int, offset: int = 0, key: bytes = b"key") -> Iterator[bytes]:
    """A record whose value is `size` zeros, in portions."""
    head = b"\x00" + varint(0) + varint(offset) + varint(len(key)) + key + varint(size)
    yield varint(len(head) + size + 1) + head
    portion = bytes(MEBIBYTE)
    for start in range(0, size, MEBIBYTE):
        yield portion[: min(MEBIBYTE, size - start)]
    yield varint(0)


def record_with_a_header_name(name: bytes, offset: int = 0) -> bytes:
    """One whose header's name is these bytes; the library takes names for UTF-8."""
    body = b"\x00" + varint(0) + varint(offset) + varint(-1) + varint(1) + b"v" + varint(1)
    body += varint(len(name)) + name + varint(0)
    return varint(len(body)) + body


def compressed(codec: int, portions: Iterable[bytes]) -> bytes:
    """With bounded memory."""
    if codec == ZSTD:
        zstd = cramjam.zstd.Compressor(level=3)
        for portion in portions:
            zstd.compress(portion)
        return bytes(zstd.finish())
    if codec == LZ4:
        lz4 = cramjam.lz4.Compressor(level=1, content_checksum=False, block_linked=False)
        for portion in portions:
            lz4.compress(portion)
        return bytes(lz4.finish())
    if codec == SNAPPY:
        blocks = [bytes(cramjam.snappy.compress_raw(portion)) for portion in portions]
        return _XERIAL + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)
    if codec == GZIP:
        stream = zlib.compressobj(level=1, wbits=31)
        return b"".join([*(stream.compress(portion) for portion in portions), stream.flush()])
    return b"".join(portions)


def batch_of(codec: int, data: bytes, records: int = 1, *, first: int = 0, timestamp_ms: int = 7) -> bytes:
    """A batch of `records` records, in `data` as the codec wrote them."""
    checked = struct.pack(">hiqqqhii", codec, records - 1, timestamp_ms, timestamp_ms, -1, -1, -1, records) + data
    body = struct.pack(">ibI", 0, 2, calc_crc32c(checked)) + checked
    return struct.pack(">qi", first, len(body)) + body


class _Raw:
    """What the library's producer takes for a finished builder."""

    def __init__(self, batch: bytes, records: int) -> None:
        self._batch, self._records = batch, records

    def _build(self) -> bytearray:
        return bytearray(self._batch)

    def size(self) -> int:
        return len(self._batch)

    def record_count(self) -> int:
        return self._records

    def append(self, **_: Any) -> None:
        """There is no room."""

    def closed(self) -> bool:
        return True


async def put(settings: KafkaSettings, *batches: tuple[bytes, int], partition: int = 0) -> list[int]:
    """(bytes, records) each onto the intents' topic as they are; their first offsets."""
    producer = AIOKafkaProducer(
        bootstrap_servers=settings.servers(), enable_idempotence=False, acks="all", request_timeout_ms=120_000
    )
    await producer.start()
    try:
        found = []
        for batch, records in batches:
            sent = await producer.send_batch(_Raw(batch, records), settings.intents_topic, partition=partition)
            found.append((await sent).offset)
        return found
    finally:
        await producer.stop()
