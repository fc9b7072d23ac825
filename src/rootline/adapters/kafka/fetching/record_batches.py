"""The batches in a broker's answer, judged by their headers, and the batches that replace unreadable ones.

Owns: the layout of a batch's header, which batches are let through, and stand-ins. Does not own: sizes after
decompression (`decoded_size`), the answers (`fetch_gate`), what becomes of a record that was not read (`records`).
Invariants: a batch is passed on byte for byte, or it is replaced, offset by offset, by records that say why; a
damaged batch, one whose checksum is wrong, is passed on, because the client library asks for it again; the library sees
no header whose length, offsets or count no batch can have: it would end the process, or pass over records.

Theory. The header of a batch, which is never compressed, names its first and last offset. So each record of a batch
that may not be decompressed has its coordinates, and these are enough for a verdict and a dead letter. A stand-in batch
is not compressed. It has the producer and the transaction of the batch that it replaces, so that records of an aborted
transaction are still skipped. Its records carry a key that is drawn for each process: no writer can make one.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from rootline.adapters.kafka.fetching.decoded_size import NAMES, decoded_size

STAND_IN_KEY: Final = b"rootline.not-read/" + secrets.token_bytes(24)
LIGHT_BYTES: Final = 1 << 20
"""Batches up to this decompressed size are not counted: records are taken from the library by their number."""
_STAND_INS_MAX: Final = 1_000
_OVERHEAD_BYTES: Final = 12
_BEGIN: Final = struct.Struct(">qiib")
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_LEGACY_HEADER: Final = struct.Struct(">qiibb")
_LENGTHS_MIN: Final = {0: 14, 1: 22, 2: _HEADER.size - _OVERHEAD_BYTES}
"""Magic → the least length that a batch's header can state; the library reads a shorter one past its end."""
_OFFSET_MAX: Final = 2**63 - 2
_DAMAGED: Final = _HEADER.pack(0, _LENGTHS_MIN[2], 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 0)
"""A batch whose checksum is wrong: the library reports it, and asks for what follows the last good record again."""
_CODEC: Final = 0x07
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20


@dataclass(frozen=True, slots=True)
class Judged:
    """What is passed on. `heavy_bytes`: at most so much memory for its large batches; `is_cut`: some was left out."""

    message_set: bytes
    heavy_bytes: int
    is_cut: bool = False


class _NoBatch(Exception):
    """At `start` there is no header of a batch."""

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
    """The batches that the client library may have of a partition's `message_set`, fetched from `next_offset` on.

    A batch of more than `batch_bytes_max` is replaced. Large ones are passed on while there is room for them. What
    follows a header that no batch has is left out, and a damaged batch is put in its place.
    `reads_all`: also replace batches in which the library finds a record that it cannot read. Raises `TrialNeeded` as
    `decoded_size`, with `tries` as there.
    """
    parts: list[bytes] = []
    kept_from = heavy_bytes = 0
    try:
        for batch in _batches(message_set, next_offset):
            if not batch.codec and not reads_all:  # almost all of them
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
            if last < batch.last:  # the next answer begins inside this batch
                return Judged(b"".join(parts), heavy_bytes, is_cut=True)
    except _NoBatch as found:
        return Judged(b"".join([*parts, message_set[kept_from : found.start], _DAMAGED]), heavy_bytes, is_cut=True)
    return Judged(b"".join([*parts, message_set[kept_from:]]) if parts else message_set, heavy_bytes)


def _batches(message_set: bytes, next_offset: int) -> Iterator[_Batch]:
    """The whole ones, in order. Raises `_NoBatch`."""
    at, size = 0, len(message_set)
    while at < size:
        _, length, _, magic = _BEGIN.unpack_from(message_set, at) if size - at >= _BEGIN.size else (0, size, 0, 2)
        end = at + _OVERHEAD_BYTES + length
        if end > size and at > 0:
            return  # brokers cut the last batch off where their answer ends, never the first
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
    if not 0 <= count <= delta + 1:  # compaction removes records, and nothing adds one
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
    """A message from before Kafka 0.11: if it is compressed, it holds others, and its offset is that of the last."""
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
    except Exception:  # whatever it is, the reading would fail in the same way
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
        else "holds a record that cannot be read"
    )
    return f"the record came in {what} that {fault}: offsets {batch.first} to {batch.last}, sha256 {digest}"


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
