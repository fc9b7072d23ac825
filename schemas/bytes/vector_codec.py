"""Deletion vectors as bytes: framed 64-bit blobs, the inline 32-bit form of manifest vectors, Puffin files.

Owns: length, magic and CRC of a blob, the proof that bytes are a Roaring bitmap in the portable form, the Puffin file
around blobs with its footer and the digest in its name. Does not own: bitmaps in memory (pyroaring), the location of a
file (`object_keys`), the check that positions fit a data file (`rootline.tree`).
Invariants: bytes that are not exactly one well-formed vector raise `Corrupt` (`vector-corrupt`). The bitmap library
gets no bytes before their structure has been proven, because it trusts them. The proof reads every byte once and never
allocates more than the input's length allows. The same vectors yield the same file, the digest in its name covers
every bit of it, and decoding reads nothing outside the ranges that the footer names.

Source: format page, "Deletion vectors", the Puffin specification, `deletion-vector-v1`, the Roaring format
specification ("portable" layout, 32 and 64 bits).
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import lt
from typing import Any, Final

from pyroaring import BitMap, BitMap64

from rootline.schemas.errors import Corrupt

_COOKIE_NO_RUNS: Final = 12346
_COOKIE_RUNS: Final = 12347
_OFFSETS_FROM: Final = 4  # bitmaps with runs and fewer containers carry no offsets
_ARRAY_MAX: Final = 4096
_BITSET_BYTES: Final = 8192
_CONTAINER_VALUES: Final = 1 << 16


class MalformedBitmap(ValueError):
    """The error for bytes that are not a valid bitmap. Its text is the reason, and callers add the object's name."""


def cardinality_of_64_bit(data: bytes) -> int:
    """The number of values in a portable 64-bit bitmap, after a proof of its structure. Raises `MalformedBitmap`."""
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
    """The number of values in a portable 32-bit bitmap, after a proof of its structure. Raises `MalformedBitmap`."""
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
        raise MalformedBitmap("a bitset container has another number of values than it states")
    return position + _BITSET_BYTES


def _prove_runs(data: bytes, position: int, cardinality: int) -> int:
    (count,) = _unpack("<H", data, position)
    pairs = _unpack(f"<{2 * count}H", data, position + 2)
    starts, lengths = pairs[::2], pairs[1::2]
    ends = [start + length for start, length in zip(starts, lengths, strict=True)]
    if not all(map(lt, ends, starts[1:])) or (ends and ends[-1] >= _CONTAINER_VALUES):
        raise MalformedBitmap("runs of a container overlap or overflow")
    if sum(lengths) + count != cardinality:
        raise MalformedBitmap("a run container has another number of values than it states")
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


VECTOR_MAGIC: Final = b"\xd1\xd3\x39\x64"
_FRAME_BYTES: Final = 12  # length, magic, CRC


def encode_vector(vector: BitMap64) -> bytes:
    """The blob of a data file's vector: big-endian length, magic, portable 64-bit Roaring, big-endian CRC-32."""
    compact = vector.copy()
    compact.run_optimize()
    body = VECTOR_MAGIC + compact.serialize()
    return len(body).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")


def decode_vector(blob: bytes, *, name: str, cardinality: int | None = None) -> BitMap64:
    """The vector in `blob`. `name`: its name in errors. `cardinality`: the number of positions that its entry
    states.

    Raises:
        Corrupt: `vector-corrupt`, length, magic, CRC, structure or cardinality do not agree.
    """
    if len(blob) < _FRAME_BYTES:
        raise Corrupt("vector-corrupt", f"{name}: {len(blob)} bytes are too few for a deletion vector")
    length = int.from_bytes(blob[:4], "big")
    if length != len(blob) - 8:
        raise Corrupt("vector-corrupt", f"{name}: the length field says {length} bytes, the blob has {len(blob) - 8}")
    if blob[4:8] != VECTOR_MAGIC:
        raise Corrupt(
            "vector-corrupt", f"{name}: the magic number is {bytes(blob[4:8]).hex()}, not {VECTOR_MAGIC.hex()}"
        )
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
    """A manifest vector in the inline form of an entry: portable 32-bit Roaring, run-optimised, without a frame."""
    compact = vector.copy()
    compact.run_optimize()
    return compact.serialize()


def decode_inline(content: bytes, *, name: str, cardinality: int | None = None) -> BitMap:
    """The manifest vector in `content`. Arguments and `Raises` as `decode_vector`."""
    try:
        held = cardinality_of_32_bit(bytes(content))
        _check_cardinality(name, held, cardinality)
        return BitMap.deserialize(bytes(content))
    except (MalformedBitmap, ValueError) as error:
        raise Corrupt("vector-corrupt", f"{name}: not a portable 32-bit Roaring bitmap: {error}") from error


def _check_cardinality(name: str, held: int, expected: int | None) -> None:
    if expected is not None and held != expected:
        raise Corrupt("vector-corrupt", f"{name}: it has {held} positions, its entry says {expected}")


PUFFIN_MAGIC: Final = b"PFA1"
BLOB_TYPE: Final = "deletion-vector-v1"
_ROW_POSITION_FIELD_ID: Final = 2147483645  # the field that Iceberg's own writers name in these blobs
_TAIL_BYTES: Final = 12  # payload size, flags, magic
_NAMED_DIGEST: Final = re.compile(r"-([0-9a-f]{16})\.puffin\Z")


@dataclass(frozen=True, slots=True)
class VectorBlob:
    """A vector to write, and the file (or leaf) whose rows it deletes."""

    referenced_data_file: str
    vector: BitMap64


@dataclass(frozen=True, slots=True)
class BlobPlace:
    """The place of a blob in its file (bytes), and the number of its positions."""

    offset: int
    size: int
    cardinality: int


@dataclass(frozen=True, slots=True)
class EncodedPuffin:
    """A file's bytes, and the place of each blob in the given order."""

    body: bytes
    places: tuple[BlobPlace, ...]


@dataclass(frozen=True, slots=True)
class DecodedBlob:
    """One proven vector of a file."""

    referenced_data_file: str
    place: BlobPlace
    vector: BitMap64


def encode_puffin(blobs: Sequence[VectorBlob]) -> EncodedPuffin:
    """One file of all `blobs`, in order."""
    parts, places, described = [PUFFIN_MAGIC], list[BlobPlace](), list[dict[str, Any]]()
    offset = len(PUFFIN_MAGIC)
    for blob in blobs:
        encoded = encode_vector(blob.vector)
        place = BlobPlace(offset, len(encoded), len(blob.vector))
        parts.append(encoded)
        places.append(place)
        described.append(_describe(blob.referenced_data_file, place))
        offset += len(encoded)
    parts.append(_footer(described))
    return EncodedPuffin(b"".join(parts), tuple(places))


def _describe(referenced_data_file: str, place: BlobPlace) -> dict[str, Any]:
    return {
        "type": BLOB_TYPE,
        "fields": [_ROW_POSITION_FIELD_ID],
        "snapshot-id": -1,
        "sequence-number": -1,
        "offset": place.offset,
        "length": place.size,
        "properties": {"referenced-data-file": referenced_data_file, "cardinality": str(place.cardinality)},
    }


def spread_puffin(body: bytes, renamed: Callable[[str], str], *, name: str) -> bytes:
    """A Puffin file with the same vectors, each moved to the `spread_offset` of its offset. The gaps are zeros.

    `renamed`: maps each data file in the footer to its new name. `name`: the file's location.

    Raises:
        Corrupt: `vector-corrupt`, as `decode_puffin`.
    """
    vectors = sorted(decode_puffin(body, name=name), key=lambda blob: blob.place.offset)
    parts, described = bytearray(PUFFIN_MAGIC), list[dict[str, Any]]()
    for blob in vectors:
        place = replace(blob.place, offset=spread_offset(blob.place.offset))
        if place.offset < len(parts):
            raise Corrupt("vector-corrupt", f"{name}: the vector at {blob.place.offset} overlaps another")
        parts += bytes(place.offset - len(parts))
        parts += body[blob.place.offset : blob.place.offset + place.size]
        described.append(_describe(renamed(blob.referenced_data_file), place))
    return bytes(parts) + _footer(described)


def spread_offset(offset: int) -> int:
    """The offset at which `spread_puffin` places the vector at `offset`. The mapping is invertible.

    A vector has more than 16 bytes, so of two adjacent ones the second moves at least one byte further.
    """
    return offset + offset // 16


def _footer(described: Sequence[dict[str, Any]]) -> bytes:
    footer = {"blobs": described, "properties": {"created-by": "Rootline"}}
    payload = json.dumps(footer, separators=(",", ":"), ensure_ascii=False).encode()
    return b"".join((PUFFIN_MAGIC, payload, len(payload).to_bytes(4, "little"), bytes(4), PUFFIN_MAGIC))


def decode_puffin(body: bytes, *, name: str) -> list[DecodedBlob]:
    """Every vector of a file, each one proven. `name`: the file's location, also for errors.

    Raises:
        Corrupt: `vector-corrupt`, the bytes contradict the name, the footer or a blob's own frame.
    """
    verify_puffin_name(name, body)
    payload, blobs_end = payload_of(body, name)
    try:
        items = [_blob_of(item) for item in json.loads(payload)["blobs"] if item["type"] == BLOB_TYPE]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Corrupt("vector-corrupt", f"{name}: the footer does not describe vectors: {error!r:.200}") from error
    found = list[DecodedBlob]()
    for referenced, place in items:
        if not (len(PUFFIN_MAGIC) <= place.offset and 0 <= place.size <= blobs_end - place.offset):
            raise Corrupt(
                "vector-corrupt", f"{name}: a blob of {place.size} bytes at {place.offset} is outside the blobs"
            )
        blob = body[place.offset : place.offset + place.size]
        vector = decode_vector(blob, name=f"{name} at {place.offset}", cardinality=place.cardinality)
        found.append(DecodedBlob(referenced, place, vector))
    return found


def payload_of(body: bytes, name: str) -> tuple[bytes, int]:
    """(the footer's JSON, the offset of the footer). Raises `Corrupt` (`vector-corrupt`)."""
    size_at = len(body) - _TAIL_BYTES
    if size_at < 2 * len(PUFFIN_MAGIC) or not body.startswith(PUFFIN_MAGIC) or not body.endswith(PUFFIN_MAGIC):
        raise Corrupt("vector-corrupt", f"{name}: not a Puffin file, or truncated: its magic numbers are missing")
    payload_at = size_at - int.from_bytes(body[size_at : size_at + 4], "little", signed=True)
    footer_at = payload_at - len(PUFFIN_MAGIC)
    if not len(PUFFIN_MAGIC) <= footer_at <= payload_at <= size_at or body[footer_at:payload_at] != PUFFIN_MAGIC:
        raise Corrupt("vector-corrupt", f"{name}: the footer is not where its length says")
    if any(body[size_at + 4 : size_at + 8]):
        raise Corrupt("vector-corrupt", f"{name}: footer flags are set; compressed footers are not read")
    return body[payload_at:size_at], footer_at


def _blob_of(item: dict[str, Any]) -> tuple[str, BlobPlace]:
    properties = item["properties"]
    referenced, offset, size = properties["referenced-data-file"], item["offset"], item["length"]
    if not isinstance(referenced, str) or type(offset) is not int or type(size) is not int:
        raise TypeError("a blob's place or data file is of the wrong type")
    if item.get("compression-codec") is not None:
        raise ValueError("a deletion vector is compressed")
    return referenced, BlobPlace(offset, size, int(properties["cardinality"]))


def puffin_name(stem: str, body: bytes) -> str:
    """`<stem>-<16 hex digits of the SHA-256 of body>.puffin`. `stem` may contain folders."""
    return f"{stem}-{hashlib.sha256(body).hexdigest()[:16]}.puffin"


def verify_puffin_name(name: str, body: bytes) -> bool:
    """Check the digest in the name. Returns `False` if the name has no digest, as in files of other writers.

    Raises:
        Corrupt: `vector-corrupt`, the name has another digest.
    """
    named = _NAMED_DIGEST.search(name)
    if named is None:
        return False
    found = hashlib.sha256(body).hexdigest()[:16]
    if found != named[1]:
        raise Corrupt("vector-corrupt", f"{name}: its bytes have digest {found}, its name has {named[1]}")
    return True
