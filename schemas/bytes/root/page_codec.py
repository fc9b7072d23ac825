"""A page, one Avro file: rows of ledger or of outcomes that a root's header has no room for.

Owns: the file around the rows, its name, its proof, one row to and from bytes. Does not own: what the rows say
(`ledger_page`, `outcome_page`), which rows leave the header (`rootline.tree`).
Invariants: immutable; the name follows from the bytes, so storing a page twice is storing it once; a reference proves
every byte; each block is one zstd frame with a checksum, and plain Avro libraries read the file.

Source: format page, "Pages".
"""

from __future__ import annotations

import hashlib
import io
import uuid
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, Final

import fastavro

from rootline.schemas.bytes.avro_encoding import (
    SYNC_BYTES,
    Unreadable,
    compress,
    decompress,
    encode_container,
    read_blocks,
    read_head,
)
from rootline.schemas.bytes.root.header_codec import FORMAT_VERSION, PROFILE_KEY
from rootline.schemas.errors import Corrupt
from rootline.schemas.field_ids import PROFILE
from rootline.schemas.identifiers import Location
from rootline.schemas.object_keys import page_location
from rootline.schemas.root_header import CoveredOffset, PageReference

PAGE_BLOCK_BYTES: Final = 1024 * 1024
"""A block ends with the row that brings it to this size before compression."""
_CODE: Final = "page-corrupt"


class PageKind(StrEnum):
    """What a page holds: the `content` of its file metadata."""

    LEDGER = "ledger"
    OUTCOMES = "outcomes"
    CONDEMNED = "condemned"
    KEPT = "kept"
    LEFT = "left"


def encode_page(
    kind: PageKind,
    schema_json: bytes,
    table_uuid: uuid.UUID,
    rows: Iterable[bytes],
    covers: tuple[CoveredOffset, ...] = (),
    salt: bytes = b"",
) -> tuple[PageReference, bytes]:
    """(the reference that a root needs, the object's bytes) of at least one row, encoded by `schema_json`.

    `salt`: another one makes another object of the same rows, under another name.
    """
    rows = list(rows)
    sync = hashlib.sha256(b"pages of " + table_uuid.bytes + salt).digest()[:SYNC_BYTES]
    metadata = _metadata(kind, schema_json, table_uuid)
    body = encode_container(metadata, rows, sync, pack=compress, block_bytes=PAGE_BLOCK_BYTES)
    digest = hashlib.sha256(body).digest()
    return PageReference(page_location(digest.hex()), digest, len(body), sum(map(len, rows)), covers), body


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
    blocks = page_blocks(body, kind, schema_json, table_uuid, name=name)
    if sum(len(plain) for _, plain in blocks) != reference.content_bytes:
        raise Corrupt(_CODE, f"{name}: the rows do not take the {reference.content_bytes} bytes that the root says")
    return blocks


def page_blocks(
    body: bytes, kind: PageKind, schema_json: bytes, table_uuid: uuid.UUID, *, name: str
) -> list[tuple[int, bytes]]:
    """The blocks of a page whose bytes are proven; arguments, result and `Raises` as `decode_page`."""
    try:
        head = read_head(body)
        profile = head.metadata.get(PROFILE_KEY)
        if profile != PROFILE.encode() or head.metadata.get("format-version") != FORMAT_VERSION:
            raise Corrupt("profile-unknown", f"{name}: format profile {profile!r:.60}, this version reads {PROFILE}")
        for key, value in _metadata(kind, schema_json, table_uuid).items():
            if head.metadata.get(key) != value:
                raise Unreadable(f"{key} is {head.metadata.get(key)!r:.80}")
        return [(block.count, decompress(block.packed)) for block in read_blocks(body, head)]
    except Unreadable as error:
        raise Corrupt(_CODE, f"{name}: {error}") from None


def location_of(reference: PageReference) -> Location:
    """Where a page must be stored, by its digest."""
    return page_location(reference.digest.hex())


def record_schema(name: str, **fields: object) -> dict[str, object]:
    """The Avro schema of a record: field name → type."""
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


def encode_value(schema: Any, value: object) -> bytes:
    """`value` by a parsed schema; one of a union's records as (name, value)."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def decode_values(schema: Any, count: int, plain: bytes) -> Iterator[tuple[Any, bytes]]:
    """(value, its bytes) of each of `count` values, one of a union's records as (name, value).

    A value may be encoded in several ways, which the caller must compare with its own.

    Raises:
        Unreadable: a value cannot be read, or the bytes do not end with the last one.

    """
    source = io.BytesIO(plain)
    end = 0
    for _ in range(count):
        start = end
        try:
            value = fastavro.schemaless_reader(source, schema, None, return_record_name=True)
        except Exception as error:  # hostile bytes: what fastavro raises depends on what is wrong
            raise Unreadable(f"a row cannot be read: {type(error).__name__}: {error!s:.100}") from None
        end = source.tell()
        yield value, plain[start:end]
    if end != len(plain):
        raise Unreadable(f"{len(plain) - end} bytes follow the last row")


def _metadata(kind: PageKind, schema_json: bytes, table_uuid: uuid.UUID) -> dict[str, bytes]:
    return {
        "avro.schema": schema_json,
        "avro.codec": b"zstandard",
        "format-version": FORMAT_VERSION,
        "content": kind.encode(),
        PROFILE_KEY: PROFILE.encode(),
        "rootline.table-uuid": str(table_uuid).encode(),
    }
