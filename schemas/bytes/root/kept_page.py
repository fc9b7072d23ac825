"""A page of kept versions: those below the oldest addressable one that can still be read.

Owns: the rows' form. Does not own: the file around them (`page_codec`), which versions are kept
(`rootline.maintenance.expiry_plan`), what may name one (`rootline.tree.intents.expire`).
Invariants: versions and timestamps strictly ascend; what is encoded decodes to an equal page; hostile bytes are
`Corrupt` and nothing else.

Source: format page, "Pages"; decision 0062.
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
from rootline.schemas.root_header import PageReference

KEPT_MAX: Final = 10_000
_CODE: Final = "page-corrupt"
_SCHEMA: Final = record_schema("kept_version", version="long", timestamp_ms="long", size_in_bytes="long")
KEPT_SCHEMA_JSON: Final = json.dumps(_SCHEMA, separators=(",", ":")).encode()
_ROW: Final = fastavro.parse_schema(json.loads(KEPT_SCHEMA_JSON))


class KeptVersion(NamedTuple):
    """A version that can still be read, when it was committed, and the length of its root."""

    version: Version
    timestamp_ms: int
    size_in_bytes: int


_version: Final = attrgetter("version")
_timestamp: Final = attrgetter("timestamp_ms")


@dataclass(frozen=True, slots=True)
class RetainedPage:
    """At least one version, ascending."""

    reference: PageReference
    versions: tuple[KeptVersion, ...]

    @property
    def size_in_bytes(self) -> int:
        """The length of all kept roots."""
        return sum(kept.size_in_bytes for kept in self.versions)

    def find(self, version: int) -> KeptVersion | None:
        """The row of a version, if it is kept."""
        at = bisect_left(self.versions, version, key=_version)
        return self.versions[at] if at < len(self.versions) and self.versions[at].version == version else None

    def newest_at(self, timestamp_ms: int) -> KeptVersion | None:
        """The newest kept version that is not younger than a moment."""
        at = bisect_right(self.versions, timestamp_ms, key=_timestamp)
        return self.versions[at - 1] if at else None


def encode_retained_page(
    table_uuid: uuid.UUID, versions: Iterable[KeptVersion], salt: bytes = b""
) -> tuple[RetainedPage, bytes]:
    """(the page, its object's bytes) of at least one version, ascending; `salt` as in `encode_page`."""
    held = tuple(versions)
    rows = [encode_value(_ROW, kept._asdict()) for kept in held]
    reference, body = encode_page(PageKind.KEPT, KEPT_SCHEMA_JSON, table_uuid, rows, salt=salt)
    return RetainedPage(reference, held), body


def decode_retained_page(
    body: bytes, digest: bytes, size_in_bytes: int, table_uuid: uuid.UUID, *, name: str
) -> RetainedPage:
    """The page that is named by digest and length; `name` is what an error calls it.

    Raises:
        Corrupt: `page-corrupt`; `profile-unknown`, the bytes are right, the format is another.

    """
    if len(body) != size_in_bytes or hashlib.sha256(body).digest() != digest:
        raise Corrupt(_CODE, f"{name}: the bytes are not those that are named by length and digest")
    blocks = page_blocks(body, PageKind.KEPT, KEPT_SCHEMA_JSON, table_uuid, name=name)
    held: list[KeptVersion] = []
    try:
        for count, plain in blocks:
            for row, _ in decode_values(_ROW, count, plain):
                if len(held) == KEPT_MAX:
                    raise Unreadable(f"it names more than {KEPT_MAX} versions")
                held.append(
                    _following(held, KeptVersion(Version(row["version"]), row["timestamp_ms"], row["size_in_bytes"]))
                )
        if not held:
            raise Unreadable("it names no version")
    except Unreadable as error:
        raise Corrupt(_CODE, f"{name}: {error}") from None
    content = sum(len(plain) for _, plain in blocks)
    return RetainedPage(PageReference(page_location(digest.hex()), digest, size_in_bytes, content), tuple(held))


def _following(held: list[KeptVersion], kept: KeptVersion) -> KeptVersion:
    before = held[-1] if held else KeptVersion(Version(-1), -1, 0)
    if kept.version <= before.version or kept.timestamp_ms <= before.timestamp_ms or kept.size_in_bytes < 1:
        raise Unreadable(f"version {kept.version} at {kept.timestamp_ms} ms follows {before.version}")
    return kept
