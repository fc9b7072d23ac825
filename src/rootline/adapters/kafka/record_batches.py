"""The batches in a broker's answer, measured before the client library decompresses them, and read as records.

Owns: the layout of a batch's header, bounds of decompressed sizes for the four codecs of Kafka, the choice of batches
that are passed on, replacements for the others, the only access to the client library's internals for fetching, the
limit of decompressed batches in a consumer, the translation into records of the log. Does not own: requests to brokers,
the verdict on an unread record.
Invariants: The library decompresses no batch over `DECODED_BYTES_MAX`. Large batches that it buffers are together no
larger than that, whatever the number of partitions. Measuring takes at most that much memory in addition to its input,
any bytes give an answer, and a trial runs on a thread, so that commits continue meanwhile. A batch is passed on byte
for byte, or it is replaced, offset by offset, by records that contain the reason. A batch with a wrong checksum is
passed on, because the client library fetches it again. The library sees no header with an impossible length, offset or
count, because it would end the process or skip records. A record's key, value and headers are the writer's bytes. A
record without a value has an empty one. An unread record has the reason and nothing else.

Theory. Headers bound the size from above at almost no cost: a block of zstd contains 128 KiB at most, lz4's frame names
its largest block, snappy's blocks name their size, deflate shrinks by a factor of 1032 at most. These bounds suffice
for ordinary batches. Only the others are decompressed on trial, in portions or into a buffer of a fixed size.

The header of a batch, which is never compressed, names its first and last offset. So each record of a batch that may
not be decompressed has its coordinates, and these are enough for a verdict and a dead letter. A replacement batch is
not compressed. It has the producer and the transaction of the original batch, so that records of an aborted
transaction are still skipped. Its records have a random key of this process, which no writer can know.

The library decompresses with its own codecs when a record is taken, without any limit. It sends requests to brokers
through `client.send`, so `guard` replaces that method of a consumer with one whose answers are checked (decision
0108).
"""

from __future__ import annotations

import asyncio
import math
import secrets
import struct
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, Final
from weakref import WeakKeyDictionary

import cramjam
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from rootline.schemas.identifiers import LogId, LogPosition, LogRecord

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4
NAMES: Final = {GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}

_DEFLATE_FACTOR_MAX: Final = 1_032
_GZIP_WINDOW: Final = 31
_PORTION: Final = 1 << 20
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE: Final = b"\x2a\x4d\x18"
_ZSTD_BLOCK_MAX: Final = 128 * 1024
_ZSTD_RAW, _ZSTD_RLE, _ZSTD_COMPRESSED = 0, 1, 2
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_FACTOR_MAX: Final = 255
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
_VARINT_BYTES_MAX: Final = 5


class _Unknown(Exception):
    """The headers do not bound the size."""


class TrialNeeded(Exception):
    """The headers do not bound the size, so only decompressing can determine it."""


def decoded_size(codec: int, data: bytes, bytes_max: int, *, tries: bool = True) -> int | None:
    """An upper bound of the decompressed size of `data`. `None`: over `bytes_max`, or it cannot be decompressed.

    Raises:
        TrialNeeded: the headers do not suffice, and `tries` is false. A trial takes tens of milliseconds.
    """
    bound = _BOUNDS.get(codec)
    if bound is None:
        return None
    try:
        most = bound(data, bytes_max)
    except (_Unknown, IndexError):
        most = math.inf
    if most <= bytes_max:
        return int(most)
    if codec == SNAPPY:  # its headers are exact
        return None
    if not tries:
        raise TrialNeeded
    return _on_trial(codec, data, bytes_max)


def _on_trial(codec: int, data: bytes, bytes_max: int) -> int | None:
    if codec == GZIP:
        return _gzip_on_trial(data, bytes_max)
    if codec == ZSTD:
        return _zstd_on_trial(data, bytes_max)
    try:
        return int(cramjam.lz4.decompress_into(data, bytearray(bytes_max)))
    except Exception:  # it does not fit, or is invalid: the library distinguishes these only by the message
        return None


def _zstd_on_trial(data: bytes, bytes_max: int) -> int | None:
    """In portions, because a buffer of `bytes_max` takes longer than the decompression. Clients write one frame. Others
    are decompressed in one call, because each would cost a context and a copy of what follows it.
    """
    size, stream = 0, zstd.ZstdDecompressor()
    try:
        while not stream.eof:
            if stream.needs_input and not data:
                return None
            size += len(stream.decompress(data, _PORTION))
            if size > bytes_max:
                return None
            data = b""
        if stream.unused_data:
            size += int(cramjam.zstd.decompress_into(stream.unused_data, bytearray(bytes_max - size)))
    except Exception:  # it does not fit, or is invalid: cramjam distinguishes these only by the message
        return None
    return size


def _gzip_on_trial(data: bytes, bytes_max: int) -> int | None:
    size = 0
    try:
        while data:
            stream = zlib.decompressobj(_GZIP_WINDOW)
            while not stream.eof:
                if not data:
                    return None
                size += len(stream.decompress(data, _PORTION))
                if size > bytes_max:
                    return None
                data = stream.unconsumed_tail
            data = stream.unused_data
    except zlib.error:
        return None
    return size


def _gzip_bound(data: bytes, _: int) -> float:
    return _DEFLATE_FACTOR_MAX * len(data)


def _snappy_bound(data: bytes, bytes_max: int) -> float:
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _varint(data, 0)
    size, at = 0, _XERIAL_HEADER_BYTES
    while at < len(data) and size <= bytes_max:
        length = int.from_bytes(data[at : at + 4], "big", signed=True)
        if length <= 0:
            raise _Unknown
        size += _varint(data, at + 4)
        at += 4 + length
    return size


def _varint(data: bytes, at: int) -> int:
    value = 0
    for shift in range(_VARINT_BYTES_MAX):
        byte = data[at + shift]
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return value
    raise _Unknown


def _lz4_bound(data: bytes, bytes_max: int) -> float:
    size, at = 0, 0
    while at < len(data) and size <= bytes_max:
        if data[at : at + 4] != _LZ4_MAGIC:
            raise _Unknown
        flags, block_max = data[at + 4], 1 << (8 + 2 * (data[at + 5] >> 4 & 7))
        at += 6
        if flags & 0x08:
            if int.from_bytes(data[at : at + 8], "little") > bytes_max:
                raise _Unknown
            at += 8
        at += 1 + (4 if flags & 0x01 else 0)
        while at < len(data) and size <= bytes_max:
            word = int.from_bytes(data[at : at + 4], "little")
            at += 4
            if word == 0:
                at += 4 if flags & 0x04 else 0
                break
            length = word & 0x7FFFFFFF
            size += length if word != length else min(block_max, _LZ4_FACTOR_MAX * length)
            at += length + (4 if flags & 0x10 else 0)
    return size


def _zstd_bound(data: bytes, bytes_max: int) -> float:
    size, at = 0, 0
    while at < len(data) and size <= bytes_max:
        magic = data[at : at + 4]
        at += 4
        if magic[1:] == _ZSTD_SKIPPABLE:
            at += 4 + int.from_bytes(data[at : at + 4], "little")
            continue
        if magic != _ZSTD_MAGIC:
            raise _Unknown
        descriptor = data[at]
        is_single, size_flag = descriptor >> 5 & 1, descriptor >> 6
        at += 1 + (not is_single) + (0, 1, 2, 4)[descriptor & 3]
        size_bytes = (is_single, 2, 4, 8)[size_flag]
        if int.from_bytes(data[at : at + size_bytes], "little") > bytes_max:
            raise _Unknown
        at += size_bytes
        is_last = False
        while not is_last and size <= bytes_max:
            header = int.from_bytes(data[at : at + 3], "little")
            if at + 3 > len(data):
                raise _Unknown
            is_last, kind, length = bool(header & 1), header >> 1 & 3, header >> 3
            if kind > _ZSTD_COMPRESSED:
                raise _Unknown
            size += _ZSTD_BLOCK_MAX if kind == _ZSTD_COMPRESSED else length
            at += 3 + (1 if kind == _ZSTD_RLE else length)
        at += 4 if descriptor & 4 else 0
    return size


_BOUNDS: Final[Mapping[int, Callable[[bytes, int], float]]] = {
    GZIP: _gzip_bound,
    SNAPPY: _snappy_bound,
    LZ4: _lz4_bound,
    ZSTD: _zstd_bound,
}


STAND_IN_KEY: Final = b"rootline.not-read/" + secrets.token_bytes(24)
LIGHT_BYTES: Final = 1 << 20
"""Batches up to this decompressed size do not count as large."""
_STAND_INS_MAX: Final = 1_000
_OVERHEAD_BYTES: Final = 12
_BEGIN: Final = struct.Struct(">qiib")
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_LEGACY_HEADER: Final = struct.Struct(">qiibb")
_LENGTHS_MIN: Final = {0: 14, 1: 22, 2: _HEADER.size - _OVERHEAD_BYTES}
"""Magic → the least length that a batch's header can state. The library would read past the end of a shorter one."""
_OFFSET_MAX: Final = 2**63 - 2
_DAMAGED: Final = _HEADER.pack(0, _LENGTHS_MIN[2], 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 0)
"""A batch with a wrong checksum: the library reports it, and fetches the records after the last good one again."""
_CODEC: Final = 0x07
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20


@dataclass(frozen=True, slots=True)
class Judged:
    """The checked batches of a partition.

    `heavy_bytes`: the most memory that its large batches take. `is_cut`: some batches were omitted.
    """

    message_set: bytes
    heavy_bytes: int
    is_cut: bool = False


class _NoBatch(Exception):
    """There is no valid header of a batch at `start`."""

    def __init__(self, start: int) -> None:
        self.start = start


@dataclass(frozen=True, slots=True)
class _Batch:
    start: int
    end: int
    first: int
    last: int
    codec: int
    data_at: int
    is_control: bool = False
    is_transactional: bool = False
    timestamp_ms: int = 0
    producer: tuple[int, int, int] = (-1, -1, -1)
    is_legacy: bool = False


def judged(
    message_set: bytes, next_offset: int, *, batch_bytes_max: int, room_bytes: int, reads_all: bool, tries: bool = True
) -> Judged:
    """Choose the batches of a partition's answer, `message_set`, that are passed on to the client library.

    A batch of more than `batch_bytes_max` decompressed bytes is replaced. Large batches are passed on until they fill
    `room_bytes`, and the rest is omitted. If a header is invalid, everything from it on is omitted, and a damaged batch
    is put in its place. `reads_all`: also replace batches in which the library finds a record that it cannot read.
    `tries`: decompress on trial if necessary. Otherwise `TrialNeeded` is raised.
    """
    parts: list[bytes] = []
    kept_from = heavy_bytes = 0
    try:
        for batch in _batches(message_set, next_offset):
            if not batch.codec and not reads_all:  # the usual case
                continue
            size: int | None = batch.end - batch.data_at
            if batch.codec and not batch.is_control:
                size = decoded_size(batch.codec, message_set[batch.data_at : batch.end], batch_bytes_max, tries=tries)
            if size is not None and (not reads_all or _is_readable(message_set, batch)):
                if not batch.codec or size <= LIGHT_BYTES:
                    continue
                if size > room_bytes:
                    return Judged(b"".join([*parts, message_set[kept_from : batch.start]]), heavy_bytes, is_cut=True)
                heavy_bytes += size
                room_bytes -= size
                continue
            if _is_damaged(message_set, batch):
                continue
            first = max(batch.first, next_offset)
            last = min(batch.last, first + _STAND_INS_MAX - 1)
            parts.append(message_set[kept_from : batch.start])
            if first <= last:
                parts.append(
                    _stand_in(message_set, batch, first, last, _why(message_set, batch, size, batch_bytes_max))
                )
            kept_from = batch.end
            if last < batch.last:  # the next answer begins within this batch
                return Judged(b"".join(parts), heavy_bytes, is_cut=True)
    except _NoBatch as found:
        return Judged(b"".join([*parts, message_set[kept_from : found.start], _DAMAGED]), heavy_bytes, is_cut=True)
    return Judged(b"".join([*parts, message_set[kept_from:]]) if parts else message_set, heavy_bytes)


def _batches(message_set: bytes, next_offset: int) -> Iterator[_Batch]:
    """The complete batches, in order. Raises `_NoBatch`."""
    at, size = 0, len(message_set)
    while at < size:
        _, length, _, magic = _BEGIN.unpack_from(message_set, at) if size - at >= _BEGIN.size else (0, size, 0, 2)
        end = at + _OVERHEAD_BYTES + length
        if end > size and at > 0:
            return  # brokers may truncate the last batch of an answer, never the first
        if end > size or length < _LENGTHS_MIN.get(magic, _LENGTHS_MIN[2]):
            raise _NoBatch(at)
        batch = _modern(message_set, at, end) if magic >= 2 else _legacy(message_set, at, end, next_offset)
        if not 0 <= batch.first <= batch.last <= _OFFSET_MAX:
            raise _NoBatch(at)
        next_offset = max(next_offset, batch.last + 1)
        yield batch
        at = end


def _modern(message_set: bytes, at: int, end: int) -> _Batch:
    first, _, _, _, _, flags, delta, _, latest_ms, *producer, count = _HEADER.unpack_from(message_set, at)
    if not 0 <= count <= delta + 1:  # compaction removes records, but nothing adds records
        raise _NoBatch(at)
    return _Batch(
        at,
        end,
        first,
        first + delta,
        flags & _CODEC,
        at + _HEADER.size,
        bool(flags & _CONTROL),
        bool(flags & _TRANSACTIONAL),
        latest_ms,
        (producer[0], producer[1], producer[2]),
    )


def _legacy(message_set: bytes, at: int, end: int, next_offset: int) -> _Batch:
    """A message in the format from before Kafka 0.11.

    A compressed message contains others, and its own offset is the offset of the last of them.
    """
    last, _, _, magic, flags = _LEGACY_HEADER.unpack_from(message_set, at)
    data_at = at + _LEGACY_HEADER.size + (8 if magic else 0)
    key_bytes = int.from_bytes(message_set[data_at : data_at + 4], "big", signed=True)
    return _Batch(
        at, end, min(next_offset, last), last, flags & _CODEC, data_at + 8 + max(0, key_bytes), is_legacy=True
    )


def _is_readable(message_set: bytes, batch: _Batch) -> bool:
    if batch.is_legacy or batch.is_control:
        return True
    try:
        for _ in DefaultRecordBatch(message_set[batch.start : batch.end]):
            pass
    except Exception:  # whatever it is, reading would fail in the same way
        return False
    return True


def _is_damaged(message_set: bytes, batch: _Batch) -> bool:
    return not batch.is_legacy and not DefaultRecordBatch(message_set[batch.start : batch.end]).validate_crc()


def _why(message_set: bytes, batch: _Batch, size: int | None, bytes_max: int) -> str:
    what = f"a batch of {batch.end - batch.start} bytes ({NAMES.get(batch.codec, 'not compressed')})"
    digest = sha256(message_set[batch.start : batch.end]).hexdigest()
    fault = (
        f"decompresses to more than {bytes_max} bytes, or not at all"
        if size is None
        else "contains a record that cannot be read"
    )
    return f"the record was in {what} that {fault}: offsets {batch.first} to {batch.last}, sha256 {digest}"


def _stand_in(message_set: bytes, batch: _Batch, first: int, last: int, why: str) -> bytes:
    producer_id, producer_epoch, base_sequence = batch.producer
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=int(batch.is_transactional),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        batch_size=1 << 30,
    )
    text = why.encode()
    for offset in range(last - first + 1):
        builder.append(offset, timestamp=batch.timestamp_ms, key=STAND_IN_KEY, value=text, headers=[])
    made = bytes(builder.build())
    return first.to_bytes(8, "big", signed=True) + made[8:]


DECODED_BYTES_MAX: Final = 32 * 1024 * 1024
"""A constant, not a setting: all coordinators of a group must give the same verdict on a batch."""
_LETTER_BYTES_MAX: Final = DECODED_BYTES_MAX + (1 << 20)
"""The limit for dead letters, which are their records with added headers."""
_WITHHELD_S: Final = 0.1
_SUSPECTS: Final[WeakKeyDictionary[AIOKafkaConsumer, set[TopicPartition]]] = WeakKeyDictionary()


def guard(consumer: AIOKafkaConsumer, intents_topic: str, *, reads_all: bool) -> None:
    """Check every answer to `consumer` before it is decompressed. `reads_all`: each batch is read on trial first."""
    gate = _FetchGate(consumer, intents_topic, reads_all)
    _SUSPECTS[consumer] = gate.suspects
    consumer._client.send = gate.send


def suspect(consumer: AIOKafkaConsumer, at: TopicPartition) -> None:
    """Read the next answer for `at` on trial, and replace its unreadable batches. Call this after a failed read."""
    _SUSPECTS[consumer].add(at)


class _FetchGate:
    def __init__(self, consumer: AIOKafkaConsumer, intents_topic: str, reads_all: bool) -> None:
        self.suspects: set[TopicPartition] = set()
        self._consumer = consumer
        self._intents_topic = intents_topic
        self._reads_all = reads_all
        self._heavy: dict[TopicPartition, int] = {}
        self._send = consumer._client.send
        self._judging = asyncio.Lock()

    async def send(self, node_id: Any, request: Any, **options: Any) -> Any:
        """Send a request as the library's client does, and check the answer."""
        answer = await self._send(node_id, request, **options)
        if not isinstance(request, FetchRequest):
            return answer
        async with self._judging:  # one at a time, because buffered batches are counted
            is_withheld = await self._judge(request, answer)
        if is_withheld:
            await asyncio.sleep(
                _WITHHELD_S
            )  # otherwise the library would repeat the request in a loop until records are taken
        return answer

    async def _judge(self, request: FetchRequest, answer: Any) -> bool:
        """Replace the batches in `answer`. Returns whether batches were omitted and the answer is empty now."""
        asked = {
            TopicPartition(topic, number): offset for topic, parts in request.topics for number, offset, _ in parts
        }
        self._forget_taken()
        is_cut = has_some = False
        topics = []
        for topic, parts in answer.topics:
            kept = []
            for number, *fields, message_set in parts:
                passed = message_set
                if message_set:
                    at = TopicPartition(topic, number)
                    passed, was_cut = await self._passed(at, message_set, asked[at])
                    is_cut, has_some = is_cut or was_cut, has_some or bool(passed)
                kept.append((number, *fields, passed))
            topics.append((topic, kept))
        answer.topics = topics
        return is_cut and not has_some

    async def _passed(self, at: TopicPartition, message_set: bytes, next_offset: int) -> tuple[bytes, bool]:
        self._heavy.pop(at, None)
        bytes_max = DECODED_BYTES_MAX if at.topic == self._intents_topic else _LETTER_BYTES_MAX
        reads_all = self._reads_all or at in self.suspects
        self.suspects.discard(at)
        judge = partial(
            judged,
            message_set,
            next_offset,
            batch_bytes_max=bytes_max,
            room_bytes=max(0, bytes_max - sum(self._heavy.values())),
            reads_all=reads_all,
        )
        try:
            found = judge(tries=False)
        except TrialNeeded:
            found = await asyncio.to_thread(judge)
        if found.heavy_bytes:
            self._heavy[at] = found.heavy_bytes
        return found.message_set, found.is_cut

    def _forget_taken(self) -> None:
        """Stop counting large batches that aiokafka no longer buffers, because all records were returned or dropped."""
        if self._heavy:
            fetcher = self._consumer._fetcher
            held = () if fetcher is None else fetcher._records
            self._heavy = {at: size for at, size in self._heavy.items() if at in held}


def log_records(log: LogId, found: Sequence[Any]) -> list[LogRecord]:
    """Translate aiokafka's records of partitions of `log`."""
    return [
        LogRecord(
            LogPosition(log, held.partition, held.offset), held.key, held.value or b"", held.timestamp, held.headers
        )
        if held.key != STAND_IN_KEY
        else _not_read(log, held)
        for held in found
    ]


def _not_read(log: LogId, held: Any) -> LogRecord:
    why = held.value.decode()
    return LogRecord(LogPosition(log, held.partition, held.offset), None, b"", held.timestamp, (), why)
