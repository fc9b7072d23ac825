"""Avro's binary encoding: primitives, files of blocks, and blocks as zstd frames with a checksum.

Owns: the encoding of one value (zigzag varints, strings, byte strings, lists of numbers), head and blocks of a file,
packing a block and unpacking it within bounds. Does not own: records and unions (`statistics_codec`, `entry_codec`),
schemas, the meaning of metadata, deflated blocks of exports (`manifest_schema`).
Invariants: a `read_…` function begins at `position` and returns (value, position after it). A read stays inside its
buffer and never allocates more memory than the buffer justifies. Unreadable bytes raise `Unreadable`, which the codecs
turn into `Invalid` or `Corrupt` naming the object. The same metadata, rows and packing yield the same bytes. A block is
exactly one frame, which has a checksum, is consumed whole, and never takes more memory than `PLAIN_BYTES_MAX`.

Source: the Avro 1.12 specification, "Binary encoding" and "Object Container Files",
docs/decisions/0005.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeVar

T = TypeVar("T")

LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1
INT_MIN: Final = -(2**31)
INT_MAX: Final = 2**31 - 1
NULL: Final = b"\x00"
PRESENT: Final = b"\x02"
"""The branches of `["null", T]`, the type of every optional field."""
_VARINT_BYTES_MAX: Final = 10


class Unreadable(ValueError):
    """Bytes that do not match their schema. Internal to the codecs: it never leaves `rootline.schemas`."""


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
    if not LONG_MIN <= value <= LONG_MAX:  # a value that does not fit has no small zigzag number either
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
    """The number in a whole varint of 1 to 10 bytes. Use it if the end of the varint is already known, because it is
    faster than `read_long`.
    """
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
"""Whole varint → its number, as `long_of_varint`. Small numbers are looked up, others are computed without caching."""

_CONTINUATIONS: Final = tuple(
    sum(0x80 << (7 * place) for place in range(length - 1)) for length in range(_VARINT_BYTES_MAX + 1)
)
"""The sum of the continuation bits of a varint, by its length."""


def read_int(data: bytes, position: int) -> tuple[int, int]:
    """(value, position after it) of Avro's `int`, which has 32 bits."""
    value, position = read_long(data, position)
    if not INT_MIN <= value <= INT_MAX:
        raise Unreadable(f"{value} does not fit 32 bits")
    return value, position


def encode_int(value: int) -> bytes:
    """The bytes of Avro's `int`. Raises `ValueError` if the number does not fit 32 bits."""
    if not INT_MIN <= value <= INT_MAX:
        raise ValueError(f"{value} does not fit 32 bits")
    return encode_long(value)


def encode_bytes(value: bytes) -> bytes:
    """Encode a byte string: its length, then its bytes."""
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
    """Encode a string: its length in UTF-8, then its UTF-8 bytes. Raises `ValueError` for a lone surrogate, which UTF-8
    cannot represent.
    """
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
    """Whether the optional value at `position` is present. The value starts one byte later."""
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
    """A reader of type `["null", T]`, made of `read`. It returns (value or `None`, position after it)."""

    def read_optional(data: bytes, position: int) -> tuple[T | None, int]:
        if read_present(data, position):
            return read(data, position + 1)
        return None, position + 1

    return read_optional


read_optional_int: Final = optional(read_int)
read_optional_long: Final = optional(read_long)
read_optional_string: Final = optional(read_string)
read_optional_bytes: Final = optional(read_bytes)


def encode_optional_long(value: int | None) -> bytes:
    """The bytes of Avro type `["null", "long"]`."""
    return NULL if value is None else PRESENT + encode_long(value)


def encode_optional_list(values: Sequence[int] | None, encode: Callable[[int], bytes]) -> bytes:
    """The bytes of Avro type `["null", array]`: one block of items, then the end marker."""
    if values is None:
        return NULL
    if not values:
        return PRESENT + b"\x00"
    return b"".join((PRESENT, encode_long(len(values)), *map(encode, values), b"\x00"))


def read_optional_list(
    data: bytes, position: int, read: Callable[[bytes, int], tuple[int, int]]
) -> tuple[tuple[int, ...] | None, int]:
    """(numbers or `None`, position after them)."""
    if not read_present(data, position):
        return None, position + 1
    position += 1
    values: list[int] = []
    while True:
        count, position = read_long(data, position)
        if count == 0:
            return tuple(values), position
        if count < 0:
            count = -count
            _, position = read_long(data, position)
        if count > len(data) - position:
            raise Unreadable(f"a list states {count} items, but only {len(data) - position} bytes remain")
        for _ in range(count):
            value, position = read(data, position)
            values.append(value)


if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PLAIN_BYTES_MAX: Final = 64 * 1024 * 1024
"""The most decompressed bytes of one frame."""
_COMPRESSION: Final[Mapping[int, int]] = {
    zstd.CompressionParameter.checksum_flag: 1,
    zstd.CompressionParameter.compression_level: 3,
}
_IDLE: Final[deque[zstd.ZstdCompressor]] = deque(maxlen=8)  # idle compressors
_DECOMPRESSION: Final[Mapping[int, int]] = {zstd.DecompressionParameter.window_log_max: 26}
_FRAME_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_CHECKSUM_BIT: Final = 0x04


def compress(plain: bytes) -> bytes:
    """One zstd frame with a checksum."""
    # a zstd context takes about a megabyte: creating one for each block costs more than compressing the block
    try:
        compressor = _IDLE.pop()
    except IndexError:
        compressor = zstd.ZstdCompressor(options=_COMPRESSION)
    compressor.set_pledged_input_size(len(plain))
    frame = compressor.compress(plain, mode=zstd.ZstdCompressor.FLUSH_FRAME)
    _IDLE.append(compressor)
    return frame


def decompress(frame: bytes) -> bytes:
    """The content of one zstd frame with a checksum. Raises `Unreadable` if `frame` is anything else, or if the content
    is larger than `PLAIN_BYTES_MAX`.
    """
    if frame[:4] != _FRAME_MAGIC or len(frame) < 5 or not frame[4] & _CHECKSUM_BIT:
        raise Unreadable("not a zstd frame with a checksum")
    decompressor = zstd.ZstdDecompressor(options=_DECOMPRESSION)
    try:
        plain = decompressor.decompress(frame, max_length=PLAIN_BYTES_MAX + 1)
    except zstd.ZstdError as error:
        raise Unreadable(str(error)) from None
    if len(plain) > PLAIN_BYTES_MAX:
        raise Unreadable(f"decompresses to more than {PLAIN_BYTES_MAX} bytes")
    if not decompressor.eof:
        raise Unreadable("the zstd frame is cut")
    if decompressor.unused_data:
        raise Unreadable("bytes follow the zstd frame")
    return plain


SYNC_BYTES: Final = 16
END_OF_METADATA: Final = b"\x00"
_MAGIC: Final = b"Obj\x01"


@dataclass(frozen=True, slots=True)
class Head:
    """The head of an Avro file: its metadata and sync marker. `value_ends`: the position after each key's value. `end`:
    the position of the first block.
    """

    metadata: Mapping[str, bytes]
    value_ends: Mapping[str, int]
    sync: bytes
    end: int


@dataclass(frozen=True, slots=True)
class Block:
    """`count` rows in `packed`. `encoded` is the whole block, including the sync marker."""

    count: int
    packed: bytes
    encoded: bytes


def encode_container(
    metadata: Mapping[str, bytes],
    rows: Iterable[bytes],
    sync: bytes,
    *,
    pack: Callable[[bytes], bytes],
    block_bytes: int,
) -> bytes:
    """A whole file.

    Args:
        metadata: in the order of writing, including `avro.schema` and `avro.codec`.
        rows: records, each encoded by that schema.
        sync: 16 bytes that end each block.
        pack: compresses a block with the codec in `avro.codec`.
        block_bytes: a block ends with the row that reaches this size before compression.
    """
    parts = [encode_opening(len(metadata)), encode_pairs(metadata), END_OF_METADATA, sync]
    parts += [encode_block(count, pack(plain), sync) for count, plain in _in_blocks(rows, block_bytes)]
    return b"".join(parts)


def encode_opening(keys: int) -> bytes:
    """The first bytes of a file with `keys` metadata keys. The pairs, `END_OF_METADATA` and the sync marker follow."""
    return _MAGIC + encode_long(keys)


def encode_pairs(metadata: Mapping[str, bytes]) -> bytes:
    """Encode metadata: each key, followed by its value."""
    parts: list[bytes] = []
    for key, value in metadata.items():
        parts += (_key(key), encode_long(len(value)), value)
    return b"".join(parts)


_key: Final = lru_cache(maxsize=128)(encode_string)


def encode_block(count: int, packed: bytes, sync: bytes) -> bytes:
    """One block of `count` rows."""
    return b"".join((encode_long(count), encode_long(len(packed)), packed, sync))


def read_head(body: bytes) -> Head:
    """The head of the file `body`. Raises `Unreadable`."""
    if body[: len(_MAGIC)] != _MAGIC:
        raise Unreadable("not an Avro file")
    count, position = read_long(body, len(_MAGIC))
    if not 0 < count <= len(body):
        raise Unreadable(f"the file metadata announces {count} keys")
    metadata: dict[str, bytes] = {}
    value_ends: dict[str, int] = {}
    for _ in range(count):
        key, position = read_string(body, position)
        if key in metadata:
            raise Unreadable(f"the file metadata has {key[:40]!r} twice")
        metadata[key], position = read_bytes(body, position)
        value_ends[key] = position
    end_of_map, position = read_long(body, position)
    if end_of_map != 0:
        raise Unreadable("the file metadata does not end")
    sync, position = read_fixed(body, position, SYNC_BYTES)
    return Head(metadata, value_ends, sync, position)


def read_blocks(body: bytes, head: Head) -> list[Block]:
    """The blocks after `head`, up to the last byte of `body`, still packed. Raises `Unreadable`."""
    found: list[Block] = []
    position = head.end
    while position < len(body):
        start = position
        count, position = read_long(body, position)
        packed, position = read_bytes(body, position)
        sync, position = read_fixed(body, position, SYNC_BYTES)
        if count <= 0:
            raise Unreadable(f"block {len(found)} announces {count} entries")
        if sync != head.sync:
            raise Unreadable(f"block {len(found)} does not end with the sync marker")
        found.append(Block(count, packed, body[start:position]))
    return found


def _in_blocks(rows: Iterable[bytes], block_bytes: int) -> Iterator[tuple[int, bytes]]:
    """(number of rows, their bytes) of each block. A row is never split."""
    block: list[bytes] = []
    size = 0
    for row in rows:
        block.append(row)
        size += len(row)
        if size >= block_bytes:
            yield len(block), b"".join(block)
            block, size = [], 0
    if block:
        yield len(block), b"".join(block)
