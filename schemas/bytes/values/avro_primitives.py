"""Avro's binary primitives: zigzag varints, strings and byte strings, from and to plain `bytes`.

Owns: the encodings of one value. Does not own: records and unions (`statistics_codec`, `entry_codec`).
Invariants: a read stays inside its buffer and never asks for memory that the buffer does not hold; what cannot be
read raises `Unreadable`, which the codecs turn into `Invalid` or `Corrupt` naming the object.

Source: the Avro 1.12 specification, "Binary encoding".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1
INT_MIN: Final = -(2**31)
INT_MAX: Final = 2**31 - 1
NULL: Final = b"\x00"
PRESENT: Final = b"\x02"
"""The branches of `["null", T]`: every optional field is written so."""
_VARINT_BYTES_MAX: Final = 10


class Unreadable(ValueError):
    """Bytes that are not what their schema says. Internal to the codecs: it never leaves `rootline.schemas`."""


def encode_long(value: int) -> bytes:
    """`value`, which fits 64 bits, as a zigzag varint of 1 to 10 bytes."""
    zigzag = (value << 1) ^ (value >> 63)
    if zigzag < 0x80:
        return _SINGLE[zigzag]
    if zigzag < 0x4000:
        return bytes((zigzag & 0x7F | 0x80, zigzag >> 7))
    if zigzag < 0x200000:
        return bytes((zigzag & 0x7F | 0x80, zigzag >> 7 & 0x7F | 0x80, zigzag >> 14))
    if zigzag < 0x10000000:
        return bytes((zigzag & 0x7F | 0x80, zigzag >> 7 & 0x7F | 0x80, zigzag >> 14 & 0x7F | 0x80, zigzag >> 21))
    if not LONG_MIN <= value <= LONG_MAX:  # the zigzag number of what does not fit is not small either
        raise ValueError(f"{value} does not fit 64 bits")
    out: list[int] = []
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


_SINGLE: Final = tuple(bytes((zigzag,)) for zigzag in range(0x80))


def read_long(data: bytes, position: int) -> tuple[int, int]:
    """(value, position after it)."""
    try:
        byte = data[position]
        position += 1
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position
        zigzag = byte & 0x7F
        shift = 7
        while True:
            byte = data[position]
            position += 1
            zigzag |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift >= 7 * _VARINT_BYTES_MAX:
                raise Unreadable("a number is longer than 10 bytes")
    except IndexError:
        raise Unreadable("the bytes end inside a number") from None
    if zigzag >= 1 << 64:
        raise Unreadable("a number does not fit 64 bits")
    return (zigzag >> 1) ^ -(zigzag & 1), position


def long_of_varint(raw: bytes) -> int:
    """The number whose whole varint is `raw`, 1 to 10 bytes: faster than `read_long` where a pattern found its end."""
    zigzag = 0
    for byte in reversed(raw):
        zigzag = (zigzag << 7) + byte
    zigzag -= _CONTINUATIONS[len(raw)]
    if zigzag >= 1 << 64:
        raise Unreadable("a number does not fit 64 bits")
    return (zigzag >> 1) ^ -(zigzag & 1)


class _Numbers(dict[bytes, int]):
    def __missing__(self, raw: bytes) -> int:
        return long_of_varint(raw)


NUMBER_OF: Final = _Numbers({encode_long(number): number for number in range(1024)})
"""Whole varint → its number, as `long_of_varint`: small ones are looked up, the others computed and not kept."""

_CONTINUATIONS: Final = tuple(
    sum(0x80 << (7 * place) for place in range(length - 1)) for length in range(_VARINT_BYTES_MAX + 1)
)
"""What the continuation bits of a varint of each length add up to."""


def read_int(data: bytes, position: int) -> tuple[int, int]:
    """As `read_long`, for Avro's `int`: 32 bits."""
    value, position = read_long(data, position)
    if not INT_MIN <= value <= INT_MAX:
        raise Unreadable(f"{value} does not fit 32 bits")
    return value, position


def encode_bytes(value: bytes) -> bytes:
    """Length and bytes."""
    return encode_long(len(value)) + value


def read_bytes(data: bytes, position: int) -> tuple[bytes, int]:
    """(byte string, position after it)."""
    length, start = read_long(data, position)
    end = start + length
    if length < 0 or end > len(data):
        raise Unreadable(f"{length} bytes are announced where {len(data) - start} are left")
    return data[start:end], end


def read_fixed(data: bytes, position: int, size: int) -> tuple[bytes, int]:
    """(`size` bytes, position after them)."""
    end = position + size
    if end > len(data):
        raise Unreadable(f"{size} bytes are needed where {len(data) - position} are left")
    return data[position:end], end


def encode_string(value: str) -> bytes:
    """Length and UTF-8. Raises `ValueError` for a lone surrogate, which UTF-8 cannot hold."""
    encoded = value.encode()
    return encode_long(len(encoded)) + encoded


def read_string(data: bytes, position: int) -> tuple[str, int]:
    """(string, position after it)."""
    raw, position = read_bytes(data, position)
    try:
        return raw.decode(), position
    except UnicodeDecodeError as error:
        raise Unreadable(f"a string is not UTF-8: {error}") from None


def read_present(data: bytes, position: int) -> bool:
    """Whether the optional value at `position` is there; it starts one byte further on."""
    try:
        branch = data[position]
    except IndexError:
        raise Unreadable("the bytes end before an optional value") from None
    if branch == 0x02:
        return True
    if branch == 0x00:
        return False
    raise Unreadable(f"branch {branch:#04x} of an optional value does not exist")


def optional(read: Callable[[bytes, int], tuple[T, int]]) -> Callable[[bytes, int], tuple[T | None, int]]:
    """`read`, for a value of type `["null", T]`: it returns (value or `None`, position after it)."""

    def read_optional(data: bytes, position: int) -> tuple[T | None, int]:
        if read_present(data, position):
            return read(data, position + 1)
        return None, position + 1

    return read_optional


read_optional_int: Final = optional(read_int)
read_optional_long: Final = optional(read_long)
read_optional_string: Final = optional(read_string)
read_optional_bytes: Final = optional(read_bytes)
