"""Puffin files of deletion vectors.

Owns: the file around the blobs, its footer, and names that carry the digest of all its bytes. Does not own: the blobs
themselves (`vector_codec`), where the file is stored (`object_keys`).
Invariants: the same vectors give the same bytes; every bit of a file of ours is covered by the digest in its name;
decoding proves each blob and reads nothing outside the ranges that the footer names.

Source: the Puffin specification; format page, "Deletion vectors".
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pyroaring import BitMap64

from rootline.schemas.bytes.vector.vector_codec import decode_vector, encode_vector
from rootline.schemas.errors import Corrupt

MAGIC: Final = b"PFA1"
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
    """Where a blob is in its file (bytes), and how many positions it holds."""

    offset: int
    size: int
    cardinality: int


@dataclass(frozen=True, slots=True)
class EncodedPuffin:
    """A file's bytes, and the place of each blob in the order they were given."""

    body: bytes
    places: tuple[BlobPlace, ...]


@dataclass(frozen=True, slots=True)
class DecodedBlob:
    """One vector of a file, proven."""

    referenced_data_file: str
    place: BlobPlace
    vector: BitMap64


def encode_puffin(blobs: Sequence[VectorBlob]) -> EncodedPuffin:
    """One file of all `blobs`, in their order."""
    parts, places, described = [MAGIC], list[BlobPlace](), list[dict[str, Any]]()
    offset = len(MAGIC)
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
    """The file's vectors with a gap of zeros before each but the first, at `spread_offset` of their offsets.

    `renamed`: what the footer calls a data file → what the new one does. `name`: the file's location.

    Raises:
        Corrupt: `vector-corrupt`, as `decode_puffin`.

    """
    vectors = sorted(decode_puffin(body, name=name), key=lambda blob: blob.place.offset)
    parts, described = bytearray(MAGIC), list[dict[str, Any]]()
    for blob in vectors:
        place = replace(blob.place, offset=spread_offset(blob.place.offset))
        if place.offset < len(parts):
            raise Corrupt("vector-corrupt", f"{name}: the vector at {blob.place.offset} overlaps another")
        parts += bytes(place.offset - len(parts))
        parts += body[blob.place.offset : blob.place.offset + place.size]
        described.append(_describe(renamed(blob.referenced_data_file), place))
    return bytes(parts) + _footer(described)


def spread_offset(offset: int) -> int:
    """Where `spread_puffin` puts the vector at `offset`: each offset follows from the other.

    A vector has more than 16 bytes, so of two that touch each other the second moves at least one byte further.
    """
    return offset + offset // 16


def _footer(described: Sequence[dict[str, Any]]) -> bytes:
    footer = {"blobs": described, "properties": {"created-by": "Rootline"}}
    payload = json.dumps(footer, separators=(",", ":"), ensure_ascii=False).encode()
    return b"".join((MAGIC, payload, len(payload).to_bytes(4, "little"), bytes(4), MAGIC))


def decode_puffin(body: bytes, *, name: str) -> list[DecodedBlob]:
    """Every vector of a file, each one proven; `name` is the file's location and what an error calls it.

    Raises:
        Corrupt: `vector-corrupt`, the bytes are not what the name, the footer or a blob's own frame say.

    """
    verify_puffin_name(name, body)
    payload, blobs_end = payload_of(body, name)
    try:
        items = [_blob_of(item) for item in json.loads(payload)["blobs"] if item["type"] == BLOB_TYPE]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Corrupt("vector-corrupt", f"{name}: the footer does not describe vectors: {error!r:.200}") from error
    found = list[DecodedBlob]()
    for referenced, place in items:
        if not (len(MAGIC) <= place.offset and 0 <= place.size <= blobs_end - place.offset):
            raise Corrupt(
                "vector-corrupt", f"{name}: a blob of {place.size} bytes at {place.offset} is outside the blobs"
            )
        blob = body[place.offset : place.offset + place.size]
        vector = decode_vector(blob, name=f"{name} at {place.offset}", cardinality=place.cardinality)
        found.append(DecodedBlob(referenced, place, vector))
    return found


def payload_of(body: bytes, name: str) -> tuple[bytes, int]:
    """(the footer's JSON, where the footer begins). Raises `Corrupt` (`vector-corrupt`)."""
    size_at = len(body) - _TAIL_BYTES
    if size_at < 2 * len(MAGIC) or not body.startswith(MAGIC) or not body.endswith(MAGIC):
        raise Corrupt("vector-corrupt", f"{name}: not a Puffin file, or cut short: its magic numbers are missing")
    payload_at = size_at - int.from_bytes(body[size_at : size_at + 4], "little", signed=True)
    footer_at = payload_at - len(MAGIC)
    if not len(MAGIC) <= footer_at <= payload_at <= size_at or body[footer_at:payload_at] != MAGIC:
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
    """`<stem>-<16 hex digits of the SHA-256 of body>.puffin`; `stem` may hold folders."""
    return f"{stem}-{hashlib.sha256(body).hexdigest()[:16]}.puffin"


def verify_puffin_name(name: str, body: bytes) -> bool:
    """Whether the name carries a digest (it then agrees); `False` for files of other writers, which carry none.

    Raises:
        Corrupt: `vector-corrupt`, the name's digest is another.

    """
    named = _NAMED_DIGEST.search(name)
    if named is None:
        return False
    found = hashlib.sha256(body).hexdigest()[:16]
    if found != named[1]:
        raise Corrupt("vector-corrupt", f"{name}: its bytes have digest {found}, its name says {named[1]}")
    return True
