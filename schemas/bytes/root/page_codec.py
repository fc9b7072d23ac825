"""A page: one Avro file of rows that do not fit in a root's header.

Owns: the file around the rows, its name, its proof, encoding one row. Does not own: the content of the rows
(`ledger_page`, `outcome_page` and the other kinds), which rows move out of the header (`rootline.tree`).
Invariants: Immutable. The name follows from the bytes, so storing a page twice stores one object. A reference proves
every byte. Each block is one zstd frame with a checksum, and plain Avro libraries read the file.

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
from rootline.schemas.parts.page_reference import CoveredOffset, PageReference

PAGE_BLOCK_BYTES: Final = 1024 * 1024
"""A block ends after the row that reaches this size before compression."""
_CODE: Final = "page-corrupt"


class PageKind(StrEnum):
    """The kind of a page: `content` in its file metadata."""

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
    """(the reference to the page for a root, the bytes of its object). `rows`: at least one, encoded by `schema_json`.

    `salt`: another salt makes another object of the same rows, under another name.
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
    """(number of rows, their bytes) for each block of the page of `reference`.

    Args:
        body: the whole object.
        reference: the root's. Length and digest are compared before anything is read.
        kind: the kind that the root expects.
        schema_json: the only schema that this release reads.
        table_uuid: of the table that the page must belong to.
        name: the object's key, for error messages.

    Raises:
        Corrupt: `page-corrupt`; `profile-unknown`, the bytes are intact, but in another format.
    """
    if len(body) != reference.size_in_bytes:
        raise Corrupt(_CODE, f"{name}: {len(body)} bytes are stored, but the root states {reference.size_in_bytes}")
    if hashlib.sha256(body).digest() != reference.digest:
        raise Corrupt(_CODE, f"{name}: the digest of the stored bytes is not the one in the root")
    blocks = page_blocks(body, kind, schema_json, table_uuid, name=name)
    if sum(len(plain) for _, plain in blocks) != reference.content_bytes:
        raise Corrupt(_CODE, f"{name}: the rows do not have the {reference.content_bytes} bytes that the root states")
    return blocks


def page_blocks(
    body: bytes, kind: PageKind, schema_json: bytes, table_uuid: uuid.UUID, *, name: str
) -> list[tuple[int, bytes]]:
    """The blocks of a page whose bytes are proven. Arguments, result and errors as in `decode_page`."""
    try:
        head = read_head(body)
        profile = head.metadata.get(PROFILE_KEY)
        if profile != PROFILE.encode() or head.metadata.get("format-version") != FORMAT_VERSION:
            raise Corrupt(
                "profile-unknown", f"{name}: format profile {profile!r:.60}, but this release reads {PROFILE}"
            )
        for key, value in _metadata(kind, schema_json, table_uuid).items():
            if head.metadata.get(key) != value:
                raise Unreadable(f"{key} is {head.metadata.get(key)!r:.80}")
        return [(block.count, decompress(block.packed)) for block in read_blocks(body, head)]
    except Unreadable as error:
        raise Corrupt(_CODE, f"{name}: {error}") from None


def location_of(reference: PageReference) -> Location:
    """The location of a page, which follows from its digest."""
    return page_location(reference.digest.hex())


def record_schema(name: str, **fields: object) -> dict[str, object]:
    """The Avro schema of a record: field name → type."""
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


def encode_value(schema: Any, value: object) -> bytes:
    """`value`, encoded by a parsed schema. A record of a union is (name, value)."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def decode_values(schema: Any, count: int, plain: bytes) -> Iterator[tuple[Any, bytes]]:
    """(value, its bytes) for each of `count` values. A record of a union is (name, value).

    A value may have several encodings. The caller must compare the bytes with its own encoding.

    Raises:
        Unreadable: a value cannot be read, or bytes follow the last one.
    """
    source = io.BytesIO(plain)
    end = 0
    for _ in range(count):
        start = end
        try:
            value = fastavro.schemaless_reader(source, schema, None, return_record_name=True)
        except Exception as error:  # fastavro raises many types of errors for malformed bytes
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
