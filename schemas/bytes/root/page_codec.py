"""A page: an Avro file, referenced by a root, with rows that do not fit in the root's header.

Owns: the file around the rows, its name, its proof, and the value of a page in memory. Does not own: the rows of each
kind (`ledger_page` and the others), the table of kinds (`rootline.tree.state.table_state`), which rows move out of the
header (`rootline.tree`).
Invariants: Immutable. The name follows from the bytes, so storing a page twice stores one object. A reference proves
every byte. Each block is one zstd frame with a checksum, and plain Avro libraries read the file. An encoded page
decodes to an equal page. Any other bytes raise `Corrupt` only.

Theory. The root or intent that references a page states values that prove its bytes. A root states the length and the
digest of the object and the length of its rows, and `PageKind.decode` compares all three. A worker stores a page before
any root references it, and names it in an intent, which states only length and digest. `PageKind.decode_stored`
compares these two and computes the reference for the root.

Source: format page, "Pages".
"""

from __future__ import annotations

import hashlib
import io
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

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
from rootline.schemas.root_header import RootHeader

PAGE_BLOCK_BYTES: Final = 1024 * 1024
"""A block ends after the row that reaches this size before compression."""
_CODE: Final = "page-corrupt"

T = TypeVar("T")
Content = TypeVar("Content", covariant=True)


@dataclass(frozen=True, slots=True)
class Page(Generic[Content]):
    """A page in memory: its decoded rows, and the reference by which a root names it."""

    reference: PageReference
    content: Content


class RowSchema:
    """The Avro schema of the rows of a page, or of a part of a row.

    A row may have several encodings. Where the format allows only one, the caller compares the bytes of `decode` with
    `encode`.
    """

    __slots__ = ("_parsed", "json")

    def __init__(self, schema: object) -> None:
        self.json: Final = json.dumps(schema, separators=(",", ":")).encode()
        self._parsed: Final = fastavro.parse_schema(json.loads(self.json))

    def encode(self, value: object) -> bytes:
        """The bytes of a value. A record of a union is (name, value)."""
        out = io.BytesIO()
        fastavro.schemaless_writer(out, self._parsed, value)
        return out.getvalue()

    def decode(self, count: int, plain: bytes) -> Iterator[tuple[Any, bytes]]:
        """Yield (value, its bytes) for each of `count` values. A record of a union is (name, value).

        Raises:
            Unreadable: a value cannot be read, or bytes follow the last one.
        """
        source = io.BytesIO(plain)
        end = 0
        for _ in range(count):
            start = end
            try:
                value = fastavro.schemaless_reader(source, self._parsed, None, return_record_name=True)
            except Exception as error:  # fastavro raises many types of errors for malformed bytes
                raise Unreadable(f"a row cannot be read: {type(error).__name__}: {error!s:.100}") from None
            end = source.tell()
            yield value, plain[start:end]
        if end != len(plain):
            raise Unreadable(f"{len(plain) - end} bytes follow the last row")


def _covers_nothing(_: object) -> tuple[CoveredOffset, ...]:
    return ()


@dataclass(frozen=True, slots=True, eq=False)
class PageKind(Generic[T]):
    """A kind of page: its name and schema, its rows, and its place in a header.

    Args:
        name: `content` in the file metadata.
        schema: the only schema of rows that this release reads.
        rows_of: content → encoded rows.
        content_of: (value, its bytes) of each row → content. Raises `ValueError` for invalid rows.
        named_in: the references in a header, the oldest page first.
        covers_of: content → the offsets whose outcomes are in the page, which a root's reference states.
    """

    name: str
    schema: RowSchema
    rows_of: Callable[[T], Iterable[bytes]]
    content_of: Callable[[Iterator[tuple[Any, bytes]]], T]
    named_in: Callable[[RootHeader], Sequence[PageReference]]
    covers_of: Callable[[T], tuple[CoveredOffset, ...]] = _covers_nothing

    def encode(self, table_uuid: uuid.UUID, content: T, salt: bytes = b"") -> tuple[Page[T], bytes]:
        """(the page, the bytes of its object). `salt`: as in `encode_rows`."""
        reference, body = self.encode_rows(table_uuid, self.rows_of(content), self.covers_of(content), salt)
        return Page(reference, content), body

    def encode_rows(
        self,
        table_uuid: uuid.UUID,
        rows: Iterable[bytes],
        covers: tuple[CoveredOffset, ...] = (),
        salt: bytes = b"",
    ) -> tuple[PageReference, bytes]:
        """(the reference for a root, the bytes of the object) of encoded rows.

        `salt`: another salt makes another object of the same rows, under another name.
        """
        rows = list(rows)
        sync = hashlib.sha256(b"pages of " + table_uuid.bytes + salt).digest()[:SYNC_BYTES]
        body = encode_container(self._metadata(table_uuid), rows, sync, pack=compress, block_bytes=PAGE_BLOCK_BYTES)
        digest = hashlib.sha256(body).digest()
        return PageReference(page_location(digest.hex()), digest, len(body), sum(map(len, rows)), covers), body

    def decode(self, body: bytes, reference: PageReference, table_uuid: uuid.UUID, *, name: str) -> Page[T]:
        """The page that a root names.

        Args:
            body: the whole object.
            reference: the root's. Length and digest are compared before anything is read.
            table_uuid: of the table that the page must belong to.
            name: the object's key, for error messages.

        Raises:
            Corrupt: `page-corrupt`; `profile-unknown`, the bytes are intact, but in another format.
        """
        if len(body) != reference.size_in_bytes:
            raise Corrupt(_CODE, f"{name}: {len(body)} bytes are stored, but the root states {reference.size_in_bytes}")
        if hashlib.sha256(body).digest() != reference.digest:
            raise Corrupt(_CODE, f"{name}: the digest of the stored bytes is not the one in the root")
        blocks = self._blocks(body, table_uuid, name)
        if _content_bytes(blocks) != reference.content_bytes:
            raise Corrupt(
                _CODE, f"{name}: the rows do not have the {reference.content_bytes} bytes that the root states"
            )
        return Page(reference, self._content(blocks, name))

    def decode_stored(
        self, body: bytes, location: str, digest: bytes, size_in_bytes: int, table_uuid: uuid.UUID, *, name: str
    ) -> Page[T]:
        """The page that an intent references by location, digest and length. Other arguments and errors: as in
        `decode`.
        """
        if len(body) != size_in_bytes or hashlib.sha256(body).digest() != digest:
            raise Corrupt(_CODE, f"{name}: length or digest do not match the reference")
        blocks = self._blocks(body, table_uuid, name)
        reference = PageReference(Location(location), digest, size_in_bytes, _content_bytes(blocks))
        return Page(reference, self._content(blocks, name))

    def _blocks(self, body: bytes, table_uuid: uuid.UUID, name: str) -> list[tuple[int, bytes]]:
        """(number of rows, their bytes) for each block of a page whose digest was compared."""
        try:
            head = read_head(body)
            profile = head.metadata.get(PROFILE_KEY)
            if profile != PROFILE.encode() or head.metadata.get("format-version") != FORMAT_VERSION:
                raise Corrupt(
                    "profile-unknown", f"{name}: format profile {profile!r:.60}, but this release reads {PROFILE}"
                )
            for key, value in self._metadata(table_uuid).items():
                if head.metadata.get(key) != value:
                    raise Unreadable(f"{key} is {head.metadata.get(key)!r:.80}")
            return [(block.count, decompress(block.packed)) for block in read_blocks(body, head)]
        except Unreadable as error:
            raise Corrupt(_CODE, f"{name}: {error}") from None

    def _content(self, blocks: Sequence[tuple[int, bytes]], name: str) -> T:
        try:
            return self.content_of(row for count, plain in blocks for row in self.schema.decode(count, plain))
        except ValueError as error:
            raise Corrupt(_CODE, f"{name}: {error}") from None

    def _metadata(self, table_uuid: uuid.UUID) -> dict[str, bytes]:
        return {
            "avro.schema": self.schema.json,
            "avro.codec": b"zstandard",
            "format-version": FORMAT_VERSION,
            "content": self.name.encode(),
            PROFILE_KEY: PROFILE.encode(),
            "rootline.table-uuid": str(table_uuid).encode(),
        }


def record_schema(name: str, **fields: object) -> dict[str, object]:
    """The Avro schema of a record: field name → type."""
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


def location_of(reference: PageReference) -> Location:
    """The location of a page, which follows from its digest."""
    return page_location(reference.digest.hex())


def _content_bytes(blocks: Sequence[tuple[int, bytes]]) -> int:
    return sum(len(plain) for _, plain in blocks)
