"""Is this the portable serialization of a Roaring bitmap, to the last byte?

Owns: the proof that container headers, offsets, values and lengths agree. Does not own: bitmaps in memory (pyroaring).
Invariants: reads every byte once, never allocates more than the input's length allows.

Source: the Roaring format specification ("portable" layout, 32 and 64 bits).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from operator import lt
from typing import Final

_COOKIE_NO_RUNS: Final = 12346
_COOKIE_RUNS: Final = 12347
_OFFSETS_FROM: Final = 4  # bitmaps with runs and fewer containers carry no offsets
_ARRAY_MAX: Final = 4096
_BITSET_BYTES: Final = 8192
_CONTAINER_VALUES: Final = 1 << 16


class MalformedBitmap(ValueError):
    """What is wrong with the bytes, for the message of the error that names the object."""


def cardinality_of_64_bit(data: bytes) -> int:
    """How many values a portable 64-bit bitmap holds, after proving it well-formed; raises `MalformedBitmap`."""
    (buckets,) = _unpack("<Q", data, 0)
    position, last_key, total = 8, -1, 0
    if buckets > (len(data) - 8) // 12:  # a key and the smallest bitmap take 12 bytes
        raise MalformedBitmap(f"{buckets} buckets in {len(data)} bytes")
    for _ in range(buckets):
        (key,) = _unpack("<I", data, position)
        if key <= last_key:
            raise MalformedBitmap("bucket keys do not ascend")
        held, position = _prove_32_bit(data, position + 4)
        last_key, total = key, total + held
    _prove_end(data, position)
    return total


def cardinality_of_32_bit(data: bytes) -> int:
    """How many values a portable 32-bit bitmap holds, after proving it well-formed; raises `MalformedBitmap`."""
    total, position = _prove_32_bit(data, 0)
    _prove_end(data, position)
    return total


def _prove_32_bit(data: bytes, start: int) -> tuple[int, int]:
    (cookie,) = _unpack("<I", data, start)
    position = start + 4
    if cookie == _COOKIE_NO_RUNS:
        (count,) = _unpack("<I", data, position)
        position += 4
        runs = 0
    elif cookie & 0xFFFF == _COOKIE_RUNS:
        count = (cookie >> 16) + 1
        flag_bytes = (count + 7) // 8
        runs = int.from_bytes(_slice(data, position, flag_bytes), "little")
        position += flag_bytes
        if runs >> count:
            raise MalformedBitmap("run flags for containers that do not exist")
    else:
        raise MalformedBitmap(f"unknown cookie {cookie}")
    if count > _CONTAINER_VALUES:
        raise MalformedBitmap(f"{count} containers")
    header = _unpack(f"<{2 * count}H", data, position)
    position += 4 * count
    keys, cardinalities = header[::2], [held + 1 for held in header[1::2]]
    if not all(map(lt, keys, keys[1:])):
        raise MalformedBitmap("container keys do not ascend")
    offsets: tuple[int, ...] | None = None
    if cookie == _COOKIE_NO_RUNS or count >= _OFFSETS_FROM:
        offsets = _unpack(f"<{count}I", data, position)
        position += 4 * count
    for index, cardinality in enumerate(cardinalities):
        if offsets is not None and offsets[index] != position - start:
            raise MalformedBitmap(f"container {index} is not where its offset says")
        position = _prover_of(runs >> index & 1, cardinality)(data, position, cardinality)
    return sum(cardinalities), position


def _prover_of(is_run: int, cardinality: int) -> Callable[[bytes, int, int], int]:
    if is_run:
        return _prove_runs
    return _prove_array if cardinality <= _ARRAY_MAX else _prove_bitset


def _prove_array(data: bytes, position: int, cardinality: int) -> int:
    values = _unpack(f"<{cardinality}H", data, position)
    if not all(map(lt, values, values[1:])):
        raise MalformedBitmap("values of an array container do not ascend")
    return position + 2 * cardinality


def _prove_bitset(data: bytes, position: int, cardinality: int) -> int:
    if int.from_bytes(_slice(data, position, _BITSET_BYTES), "little").bit_count() != cardinality:
        raise MalformedBitmap("a bitset container holds another number of values than it says")
    return position + _BITSET_BYTES


def _prove_runs(data: bytes, position: int, cardinality: int) -> int:
    (count,) = _unpack("<H", data, position)
    pairs = _unpack(f"<{2 * count}H", data, position + 2)
    starts, lengths = pairs[::2], pairs[1::2]
    ends = [start + length for start, length in zip(starts, lengths, strict=True)]
    if not all(map(lt, ends, starts[1:])) or (ends and ends[-1] >= _CONTAINER_VALUES):
        raise MalformedBitmap("runs of a container overlap or overflow")
    if sum(lengths) + count != cardinality:
        raise MalformedBitmap("a run container holds another number of values than it says")
    return position + 2 + 4 * count


def _unpack(layout: str, data: bytes, position: int) -> tuple[int, ...]:
    try:
        return struct.unpack_from(layout, data, position)
    except struct.error:
        raise MalformedBitmap("the bytes end early") from None


def _slice(data: bytes, position: int, size: int) -> bytes:
    if position + size > len(data):
        raise MalformedBitmap("the bytes end early")
    return data[position : position + size]


def _prove_end(data: bytes, position: int) -> None:
    if position != len(data):
        raise MalformedBitmap(f"{len(data) - position} bytes follow the bitmap")
