"""A page of condemned locations: no root may add them again, and a retention later they may be deleted.

Owns: the rows' form. Does not own: the file around them (`page_codec`), what is condemned
(`rootline.maintenance`), what a root makes of it (`rootline.tree.intents.sweep`), deletion (`rootline.workers`).
Invariants: what is encoded decodes to an equal page; hostile bytes are `Corrupt` and nothing else.

The first row says what the page is for: the horizon, and the digests of the earlier pages that this one takes the place
of. The hashes go on from row to row, ascending.

Source: format page, "Pages"; decision 0063.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import fastavro

from rootline.schemas.bytes.avro_encoding import Unreadable
from rootline.schemas.bytes.root.location_hashes import HASH_BYTES, LocationHashes, location_hash
from rootline.schemas.bytes.root.page_codec import (
    PageKind,
    decode_values,
    encode_page,
    encode_value,
    page_blocks,
    record_schema,
)
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import Location
from rootline.schemas.object_keys import own_forms
from rootline.schemas.root_header import PageReference

LOCATIONS_MAX: Final = 1_000_000
"""In one page: sixteen bytes each in the memory of every coordinator of the table."""
_ROW_HASHES: Final = 32_768
_DIGEST_BYTES: Final = hashlib.sha256().digest_size
_SCHEMA: Final = record_schema(
    "condemned", horizon_ms="long", replaces={"type": "array", "items": "bytes"}, hashes="bytes"
)
CONDEMNED_SCHEMA_JSON: Final = json.dumps(_SCHEMA, separators=(",", ":")).encode()
_ROW: Final = fastavro.parse_schema(json.loads(CONDEMNED_SCHEMA_JSON))


@dataclass(frozen=True, slots=True)
class CondemnedPage:
    """`horizon_ms`: the H that it proposes. `replaces`: digests of earlier pages that are dropped for this one."""

    reference: PageReference
    horizon_ms: int
    locations: LocationHashes
    replaces: tuple[bytes, ...] = ()


def is_condemned(location: str, table: str, pages: Sequence[CondemnedPage]) -> bool:
    """Whether one of a table's pages names a location, in any of its forms: no intent may add it any more."""
    if not pages:
        return False
    forms = [location_hash(form) for form in own_forms(location, table)]
    return any(form in page.locations for page in pages for form in forms)


def encode_condemned_page(
    table_uuid: uuid.UUID,
    horizon_ms: int,
    locations: LocationHashes,
    replaces: Sequence[bytes] = (),
    salt: bytes = b"",
) -> tuple[CondemnedPage, bytes]:
    """(the page, its object's bytes); `salt` as in `encode_page`. Raises `ValueError`: too many locations."""
    if len(locations) > LOCATIONS_MAX:
        raise ValueError(f"{len(locations)} locations, a page holds {LOCATIONS_MAX}")
    step = _ROW_HASHES * HASH_BYTES
    pieces = [locations.packed[at : at + step] for at in range(0, len(locations.packed), step)] or [b""]
    rows = [
        encode_value(
            _ROW,
            {"horizon_ms": 0 if at else horizon_ms, "replaces": [] if at else list(replaces), "hashes": piece},
        )
        for at, piece in enumerate(pieces)
    ]
    reference, body = encode_page(PageKind.CONDEMNED, CONDEMNED_SCHEMA_JSON, table_uuid, rows, salt=salt)
    return CondemnedPage(reference, horizon_ms, locations, tuple(replaces)), body


def decode_condemned_page(
    body: bytes, location: str, digest: bytes, size_in_bytes: int, table_uuid: uuid.UUID, *, name: str
) -> CondemnedPage:
    """The page at `location`, which is named by digest and length; `name` is what an error calls it.

    Raises:
        Corrupt: `page-corrupt`; `profile-unknown`, the bytes are right, the format is another.

    """
    if len(body) != size_in_bytes or hashlib.sha256(body).digest() != digest:
        raise Corrupt("page-corrupt", f"{name}: the bytes are not those that are named by length and digest")
    blocks = page_blocks(body, PageKind.CONDEMNED, CONDEMNED_SCHEMA_JSON, table_uuid, name=name)
    reference = PageReference(Location(location), digest, size_in_bytes, sum(len(plain) for _, plain in blocks))
    try:
        rows = [row for count, plain in blocks for row, _ in decode_values(_ROW, count, plain)]
        if not rows or any(row["horizon_ms"] or row["replaces"] for row in rows[1:]):
            raise Unreadable("the first of its rows alone says what it is for")
        horizon_ms, replaces = rows[0]["horizon_ms"], tuple(rows[0]["replaces"])
        if horizon_ms < 0 or any(len(item) != _DIGEST_BYTES for item in replaces):
            raise Unreadable("a horizon is negative, or a digest is not 32 bytes long")
        locations = LocationHashes(b"".join(row["hashes"] for row in rows))
        if len(locations) > LOCATIONS_MAX:
            raise Unreadable(f"it names {len(locations)} locations, a page holds {LOCATIONS_MAX}")
    except (Unreadable, ValueError) as error:
        raise Corrupt("page-corrupt", f"{name}: {error}") from None
    return CondemnedPage(reference, horizon_ms, locations, replaces)
