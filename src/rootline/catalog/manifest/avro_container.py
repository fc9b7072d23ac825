"""An Avro file around rows that are encoded already, the same bytes for the same rows.

Owns: magic, file metadata, blocks, codec. Does not own: rows and schemas.
Invariants: deterministic, sync marker included, as far as zlib is: builds of it may compress differently, so whoever
finds other bytes under the same name compares what they say; a row is never split.

Source: the Avro 1.12 specification, "Object Container Files".
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from rootline.schemas.bytes.values.avro_primitives import encode_bytes, encode_long, encode_string

CODEC: Final = "deflate"
"""The one codec besides none that every Avro library has."""
SYNC_BYTES: Final = 16

_MAGIC: Final = b"Obj\x01"
_BLOCK_BYTES: Final = 256 * 1024
_LEVEL: Final = 1
"""With statistics of 20 columns 0.4 of the time of zlib's default for 1.03 of the bytes, 0.63 of them uncompressed."""


def encode_container(metadata: Mapping[str, bytes], rows: Iterable[bytes], sync: bytes) -> bytes:
    """The file of `rows`, each the encoding of one record.

    Args:
        metadata: of the file, the schema under `avro.schema` included; the codec is added.
        rows: encoded by that schema.
        sync: 16 bytes that end each block.

    """
    metadata = {**metadata, "avro.codec": CODEC.encode()}
    parts = [_MAGIC, encode_long(len(metadata))]
    parts += [encode_string(key) + encode_bytes(value) for key, value in metadata.items()]
    parts += [b"\x00", sync]
    for count, plain in _blocks(rows):
        parts += [encode_long(count), encode_bytes(_deflated(plain)), sync]
    return b"".join(parts)


def _blocks(rows: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    block: list[bytes] = []
    size = 0
    for row in rows:
        block.append(row)
        size += len(row)
        if size >= _BLOCK_BYTES:
            yield len(block), b"".join(block)
            block, size = [], 0
    if block:
        yield len(block), b"".join(block)


def _deflated(plain: bytes) -> bytes:
    """Without zlib's own header and checksum, as Avro has it."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(plain) + packer.flush()


__all__ = ["CODEC", "SYNC_BYTES", "encode_container"]
