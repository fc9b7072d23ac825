"""Deletion vectors as bytes: the framed 64-bit blob of data vectors, and the inline 32-bit form of manifest vectors.

Owns: length, magic and CRC framing, and the proof that bytes are a vector. Does not own: the file around blobs
(`puffin_codec`), whether positions fit a data file (`rootline.tree`).
Invariants: bytes that are not exactly one well-formed vector raise `Corrupt` (`vector-corrupt`); nothing reaches the
bitmap library before its structure has been proven, because the library trusts what it reads.

Source: format page, "Deletion vectors"; Puffin specification, `deletion-vector-v1`.
"""

from __future__ import annotations

import zlib
from typing import Final

from pyroaring import BitMap, BitMap64

from rootline.schemas.bytes.vector.roaring_rules import MalformedBitmap, cardinality_of_32_bit, cardinality_of_64_bit
from rootline.schemas.errors import Corrupt

MAGIC: Final = b"\xd1\xd3\x39\x64"
_FRAME_BYTES: Final = 12  # length, magic, CRC


def encode_vector(vector: BitMap64) -> bytes:
    """The blob of a data file's vector: big-endian length, magic, portable 64-bit Roaring, big-endian CRC-32."""
    compact = vector.copy()
    compact.run_optimize()
    body = MAGIC + compact.serialize()
    return len(body).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")


def decode_vector(blob: bytes, *, name: str, cardinality: int | None = None) -> BitMap64:
    """The vector in `blob`; `name` is what an error calls it, `cardinality` what its entry says it holds.

    Raises:
        Corrupt: `vector-corrupt`, length, magic, CRC, structure or cardinality do not agree.

    """
    if len(blob) < _FRAME_BYTES:
        raise Corrupt("vector-corrupt", f"{name}: {len(blob)} bytes are too few for a deletion vector")
    length = int.from_bytes(blob[:4], "big")
    if length != len(blob) - 8:
        raise Corrupt("vector-corrupt", f"{name}: the length field says {length} bytes, the blob has {len(blob) - 8}")
    if blob[4:8] != MAGIC:
        raise Corrupt("vector-corrupt", f"{name}: the magic number is {bytes(blob[4:8]).hex()}, not {MAGIC.hex()}")
    if zlib.crc32(memoryview(blob)[4:-4]) != int.from_bytes(blob[-4:], "big"):
        raise Corrupt("vector-corrupt", f"{name}: the CRC does not agree with the bytes")
    bitmap = bytes(blob[8:-4])
    try:
        held = cardinality_of_64_bit(bitmap)
        _check_cardinality(name, held, cardinality)
        return BitMap64.deserialize(bitmap)
    except (MalformedBitmap, ValueError) as error:
        raise Corrupt("vector-corrupt", f"{name}: not a portable 64-bit Roaring bitmap: {error}") from error


def encode_inline(vector: BitMap) -> bytes:
    """A manifest vector as an entry carries it: portable 32-bit Roaring, run-optimised, no frame."""
    compact = vector.copy()
    compact.run_optimize()
    return compact.serialize()


def decode_inline(content: bytes, *, name: str, cardinality: int | None = None) -> BitMap:
    """The manifest vector in `content`; arguments and `Raises` as `decode_vector`."""
    try:
        held = cardinality_of_32_bit(bytes(content))
        _check_cardinality(name, held, cardinality)
        return BitMap.deserialize(bytes(content))
    except (MalformedBitmap, ValueError) as error:
        raise Corrupt("vector-corrupt", f"{name}: not a portable 32-bit Roaring bitmap: {error}") from error


def _check_cardinality(name: str, held: int, expected: int | None) -> None:
    if expected is not None and held != expected:
        raise Corrupt("vector-corrupt", f"{name}: holds {held} positions, its entry says {expected}")
