"""A page of retained versions: readable versions below the oldest addressable one.

Owns: the rows' form. Does not own: the file around them (`page_codec`), which versions are retained
(`rootline.maintenance.expiry_plan`), the intents that reference a page (`rootline.tree.intents.expire`).
Invariants: Versions and timestamps strictly ascend. An encoded page decodes to an equal page. Any other bytes raise
`Corrupt` only.

Source: format page, "Pages". Decision 0062.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, NamedTuple

import fastavro

from rootline.schemas.bytes.avro_encoding import Unreadable
from rootline.schemas.bytes.root.page_codec import (
    PageKind,
    decode_values,
    encode_page,
    encode_value,
    page_blocks,
    record_schema,
)
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import Version
from rootline.schemas.object_keys import page_location
from rootline.schemas.parts.page_reference import PageReference

KEPT_MAX: Final = 10_000
_CODE: Final = "page-corrupt"
_SCHEMA: Final = record_schema("kept_version", version="long", timestamp_ms="long", size_in_bytes="long")
KEPT_SCHEMA_JSON: Final = json.dumps(_SCHEMA, separators=(",", ":")).encode()
_ROW: Final = fastavro.parse_schema(json.loads(KEPT_SCHEMA_JSON))


class KeptVersion(NamedTuple):
    """A retained version, its commit time, and the length of its root."""

    version: Version
    timestamp_ms: int
    size_in_bytes: int


_version: Final = attrgetter("version")
_timestamp: Final = attrgetter("timestamp_ms")


@dataclass(frozen=True, slots=True)
class RetainedPage:
    """A page of retained versions, ascending, at least one."""

    reference: PageReference
    versions: tuple[KeptVersion, ...]

    @property
    def size_in_bytes(self) -> int:
        """The bytes of all retained roots."""
        return sum(kept.size_in_bytes for kept in self.versions)

    def find(self, version: int) -> KeptVersion | None:
        """The row of a version, if it is retained."""
        at = bisect_left(self.versions, version, key=_version)
        return self.versions[at] if at < len(self.versions) and self.versions[at].version == version else None

    def newest_at(self, timestamp_ms: int) -> KeptVersion | None:
        """The newest retained version that was committed at `timestamp_ms` or before."""
        at = bisect_right(self.versions, timestamp_ms, key=_timestamp)
        return self.versions[at - 1] if at else None


def encode_retained_page(
    table_uuid: uuid.UUID, versions: Iterable[KeptVersion], salt: bytes = b""
) -> tuple[RetainedPage, bytes]:
    """(the page of `versions`, the bytes of its object). `versions`: at least one, ascending.

    `salt`: part of the object's name. Another salt makes another object of the same rows.
    """
    rows_of_page = tuple(versions)
    rows = [encode_value(_ROW, kept._asdict()) for kept in rows_of_page]
    reference, body = encode_page(PageKind.KEPT, KEPT_SCHEMA_JSON, table_uuid, rows, salt=salt)
    return RetainedPage(reference, rows_of_page), body


def decode_retained_page(
    body: bytes, digest: bytes, size_in_bytes: int, table_uuid: uuid.UUID, *, name: str
) -> RetainedPage:
    """The page, if the bytes match digest and length. `name`: for error messages.

    Raises:
        Corrupt: `page-corrupt`; `profile-unknown`, the bytes are intact, but in another format.
    """
    if len(body) != size_in_bytes or hashlib.sha256(body).digest() != digest:
        raise Corrupt(_CODE, f"{name}: length or digest do not match the reference")
    blocks = page_blocks(body, PageKind.KEPT, KEPT_SCHEMA_JSON, table_uuid, name=name)
    versions: list[KeptVersion] = []
    try:
        for count, plain in blocks:
            for row, _ in decode_values(_ROW, count, plain):
                if len(versions) == KEPT_MAX:
                    raise Unreadable(f"it has more than {KEPT_MAX} versions")
                kept = KeptVersion(Version(row["version"]), row["timestamp_ms"], row["size_in_bytes"])
                versions.append(_following(versions, kept))
        if not versions:
            raise Unreadable("it has no versions")
    except Unreadable as error:
        raise Corrupt(_CODE, f"{name}: {error}") from None
    content = sum(len(plain) for _, plain in blocks)
    return RetainedPage(PageReference(page_location(digest.hex()), digest, size_in_bytes, content), tuple(versions))


def _following(versions: list[KeptVersion], kept: KeptVersion) -> KeptVersion:
    before = versions[-1] if versions else KeptVersion(Version(-1), -1, 0)
    if kept.version <= before.version or kept.timestamp_ms <= before.timestamp_ms or kept.size_in_bytes < 1:
        raise Unreadable(f"version {kept.version} at {kept.timestamp_ms} ms follows {before.version}")
    return kept
