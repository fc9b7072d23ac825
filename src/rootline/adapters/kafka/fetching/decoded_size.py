"""How large a compressed batch is when it is decompressed, found without the memory that it would take.

Owns: the four codecs of Kafka: a bound from the headers of frames and blocks, and a bounded decompression where that
bound says too little. Does not own: batches (`record_batches`), what becomes of one that is too large (`fetch_gate`).
Invariants: takes at most `bytes_max` bytes of memory beside its input, whatever the input says; any bytes give an
answer, never an error.

Theory. Headers bound the size from above at almost no cost: a block of zstd holds 128 KiB at most, lz4's frame names
its largest block, snappy's blocks name their size, deflate shrinks by a factor of 1032 at most. Ordinary batches are
below any limit by that alone. Only the others are decompressed on trial, into room of a fixed size.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from typing import Final

import cramjam

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
    """The headers do not say."""


class TrialNeeded(Exception):
    """Only decompressing tells."""


def decoded_size(codec: int, data: bytes, bytes_max: int, *, tries: bool = True) -> int | None:
    """At most so many bytes come out of `data`; `None`: more than `bytes_max`, or it cannot be decompressed.

    Raises:
        TrialNeeded: without `tries`, what the headers say is not enough; to try takes tens of milliseconds.

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
    decompress_into = cramjam.zstd.decompress_into if codec == ZSTD else cramjam.lz4.decompress_into
    try:
        return int(decompress_into(data, bytearray(bytes_max)))
    except Exception:  # it does not fit, or it is none: the library says both in words only
        return None


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
