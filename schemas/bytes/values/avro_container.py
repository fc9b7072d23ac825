"""An Avro file: a head with metadata and a sync marker, then blocks. Roots, pages and exported manifests are such.

Owns: head and blocks, to and from bytes. Does not own: rows and schemas, what the metadata means, which codec packs a
block (`zstd_frame` for roots and pages, deflate for exports).
Invariants: the same metadata, rows and packing make the same bytes; what cannot be read raises `Unreadable`; reading
looks at no more than the body holds, and unpacks nothing.

Source: the Avro 1.12 specification, "Object Container Files".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from rootline.schemas.bytes.values.avro_primitives import (
    Unreadable,
    encode_long,
    encode_string,
    read_bytes,
    read_fixed,
    read_long,
    read_string,
)

SYNC_BYTES: Final = 16
END_OF_METADATA: Final = b"\x00"
_MAGIC: Final = b"Obj\x01"


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a file. `value_ends`: the position after each key's value; `end`: that of the first block."""

    metadata: Mapping[str, bytes]
    value_ends: Mapping[str, int]
    sync: bytes
    end: int


@dataclass(frozen=True, slots=True)
class Block:
    """`count` rows, packed as `packed`; `encoded` is the whole block, sync marker included."""

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
        metadata: in the order in which it is written, `avro.schema` and `avro.codec` included.
        rows: each one record, encoded by that schema.
        sync: 16 bytes that end each block.
        pack: compresses a block, as `avro.codec` says.
        block_bytes: a block ends with the row that brings it to this size before compression.

    """
    parts = [encode_opening(len(metadata)), encode_pairs(metadata), END_OF_METADATA, sync]
    parts += [encode_block(count, pack(plain), sync) for count, plain in _in_blocks(rows, block_bytes)]
    return b"".join(parts)


def encode_opening(keys: int) -> bytes:
    """The first bytes of a file whose metadata has so many keys. The pairs, `END_OF_METADATA` and the sync follow."""
    return _MAGIC + encode_long(keys)


def encode_pairs(metadata: Mapping[str, bytes]) -> bytes:
    """Keys and values, one after the other."""
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
    """(number of rows, their bytes) of each block; a row is never split."""
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
