"""A page, one Avro file: rows of ledger or of outcomes that a root's header has no room for.

Owns: the file around the rows, its name, its proof. Does not own: the rows (`ledger_page`, `outcome_page`), which rows
leave the header (`rootline.tree`).
Invariants: immutable; the name follows from the bytes, so storing a page twice is storing it once; a reference proves
every byte; each block is one zstd frame with a checksum, and plain Avro libraries read the file.

Source: format page, "Pages".
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final

from rootline.schemas.bytes.root.header_codec import FORMAT_VERSION, PROFILE_KEY
from rootline.schemas.bytes.root.root_block_codec import SYNC_BYTES, compress, decompress
from rootline.schemas.bytes.values.avro_primitives import (
    Unreadable,
    encode_bytes,
    encode_long,
    encode_string,
    read_bytes,
    read_fixed,
    read_long,
    read_string,
)
from rootline.schemas.errors import Corrupt
from rootline.schemas.field_ids import PROFILE
from rootline.schemas.identifiers import Location
from rootline.schemas.object_keys import page_location
from rootline.schemas.root_header import CoveredOffset, PageReference

PAGE_BLOCK_BYTES: Final = 1024 * 1024
"""Of a block before compression; a row is never split."""
_MAGIC: Final = b"Obj\x01"
_CODE: Final = "page-corrupt"
_TABLE_KEY: Final = "rootline.table-uuid"


class PageKind(StrEnum):
    """What a page holds: the `content` of its file metadata."""

    LEDGER = "ledger"
    OUTCOMES = "outcomes"


def encode_page(
    kind: PageKind,
    schema_json: bytes,
    table_uuid: uuid.UUID,
    rows: Iterable[bytes],
    covers: tuple[CoveredOffset, ...] = (),
) -> tuple[PageReference, bytes]:
    """(the reference that a root needs, the object's bytes) of at least one row, encoded by `schema_json`."""
    sync = _sync_marker(table_uuid)
    parts = [_MAGIC, _metadata(kind, schema_json, table_uuid), sync]
    content_bytes = 0
    for count, plain in _chunks(rows):
        frame = compress(plain)
        parts += [encode_long(count), encode_long(len(frame)), frame, sync]
        content_bytes += len(plain)
    body = b"".join(parts)
    digest = hashlib.sha256(body).digest()
    return PageReference(page_location(digest.hex()), digest, len(body), content_bytes, covers), body


def decode_page(
    body: bytes, reference: PageReference, kind: PageKind, schema_json: bytes, table_uuid: uuid.UUID, *, name: str
) -> list[tuple[int, bytes]]:
    """(number of rows, their bytes) of each block of the page that `reference` names.

    Args:
        body: the whole object.
        reference: the root's; length and digest are compared before anything is read.
        kind: what the root expects.
        schema_json: the only schema that this version reads.
        table_uuid: whose page it must be.
        name: what an error calls it (its key).

    Raises:
        Corrupt: `page-corrupt`; `profile-unknown`, the bytes are right, the format is another.

    """
    if len(body) != reference.size_in_bytes:
        raise Corrupt(_CODE, f"{name}: {len(body)} bytes are stored, the root says {reference.size_in_bytes}")
    if hashlib.sha256(body).digest() != reference.digest:
        raise Corrupt(_CODE, f"{name}: the bytes are not those that the root names by digest")
    try:
        metadata, sync, position = _read_head(body)
        if metadata.get(PROFILE_KEY) != PROFILE.encode() or metadata.get("format-version") != FORMAT_VERSION:
            raise Corrupt("profile-unknown", f"{name}: format profile {metadata.get(PROFILE_KEY)!r:.60}")
        expected = {
            "avro.schema": schema_json,
            "avro.codec": b"zstandard",
            "content": kind.encode(),
            _TABLE_KEY: str(table_uuid).encode(),
        }
        for key, value in expected.items():
            if metadata.get(key) != value:
                raise Unreadable(f"{key} is {metadata.get(key)!r:.80}")
        blocks = list(_read_blocks(body, position, sync, name))
    except Unreadable as error:
        raise Corrupt(_CODE, f"{name}: {error}") from None
    if sum(len(plain) for _, plain in blocks) != reference.content_bytes:
        raise Corrupt(_CODE, f"{name}: the rows do not take the {reference.content_bytes} bytes that the root says")
    return blocks


def location_of(reference: PageReference) -> Location:
    """Where a page must rest, by its digest."""
    return page_location(reference.digest.hex())


def _metadata(kind: PageKind, schema_json: bytes, table_uuid: uuid.UUID) -> bytes:
    metadata = {
        "avro.schema": schema_json,
        "avro.codec": b"zstandard",
        "format-version": FORMAT_VERSION,
        "content": kind.encode(),
        PROFILE_KEY: PROFILE.encode(),
        _TABLE_KEY: str(table_uuid).encode(),
    }
    parts = [encode_long(len(metadata))]
    for key, value in metadata.items():
        parts += [encode_string(key), encode_bytes(value)]
    return b"".join((*parts, b"\x00"))


def _chunks(rows: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    chunk: list[bytes] = []
    size = 0
    for row in rows:
        if chunk and size + len(row) > PAGE_BLOCK_BYTES:
            yield len(chunk), b"".join(chunk)
            chunk, size = [], 0
        chunk.append(row)
        size += len(row)
    if chunk:
        yield len(chunk), b"".join(chunk)


def _read_head(body: bytes) -> tuple[dict[str, bytes], bytes, int]:
    if body[: len(_MAGIC)] != _MAGIC:
        raise Unreadable("not an Avro file")
    count, position = read_long(body, len(_MAGIC))
    if not 0 < count <= len(body):
        raise Unreadable(f"the file metadata announces {count} keys")
    metadata: dict[str, bytes] = {}
    for _ in range(count):
        key, position = read_string(body, position)
        metadata[key], position = read_bytes(body, position)
    end_of_map, position = read_long(body, position)
    if end_of_map != 0:
        raise Unreadable("the file metadata does not end")
    sync, position = read_fixed(body, position, SYNC_BYTES)
    return metadata, sync, position


def _read_blocks(body: bytes, position: int, sync: bytes, name: str) -> Iterator[tuple[int, bytes]]:
    while position < len(body):
        count, position = read_long(body, position)
        frame, position = read_bytes(body, position)
        end, position = read_fixed(body, position, SYNC_BYTES)
        if count <= 0 or end != sync:
            raise Unreadable(f"a block announces {count} rows, or does not end with the sync marker")
        try:
            yield count, decompress(frame, name="a block")
        except Corrupt as error:
            raise Unreadable(error.message) from None


def _sync_marker(table_uuid: uuid.UUID) -> bytes:
    return hashlib.sha256(b"pages of " + table_uuid.bytes).digest()[:SYNC_BYTES]
