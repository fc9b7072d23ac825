"""A page of condemned locations. No root may add them, and one retention later they may be deleted.

Owns: the rows' form. Does not own: the file around them (`page_codec`), which locations are condemned
(`rootline.maintenance`), how a root uses the page (`rootline.tree.intents.sweep`), deletion (`rootline.workers`).
Invariants: An encoded page decodes to an equal page. Any other bytes raise `Corrupt` only.

The first row has the horizon, and the digests of the earlier pages that this page replaces. The hashes ascend from row
to row.

Source: format page, "Pages". Decision 0063.
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
from rootline.schemas.location_hashes import HASH_BYTES, LocationHashes, location_hash
from rootline.schemas.object_keys import own_forms
from rootline.schemas.parts.page_reference import PageReference

LOCATIONS_MAX: Final = 1_000_000
"""The most locations in one page: sixteen bytes each in the memory of every coordinator of the table."""
_ROW_HASHES: Final = 32_768
_DIGEST_BYTES: Final = hashlib.sha256().digest_size
_SCHEMA: Final = record_schema(
    "condemned", horizon_ms="long", replaces={"type": "array", "items": "bytes"}, hashes="bytes"
)
CONDEMNED_SCHEMA_JSON: Final = json.dumps(_SCHEMA, separators=(",", ":")).encode()
_ROW: Final = fastavro.parse_schema(json.loads(CONDEMNED_SCHEMA_JSON))


@dataclass(frozen=True, slots=True)
class CondemnedPage:
    """A decoded page. `horizon_ms`: the horizon that it proposes. `replaces`: digests of earlier pages that it
    replaces.
    """

    reference: PageReference
    horizon_ms: int
    locations: LocationHashes
    replaces: tuple[bytes, ...] = ()


def is_condemned(location: str, table: str, pages: Sequence[CondemnedPage]) -> bool:
    """Whether one of a table's pages contains a location, in any of its forms. No intent may add such a location."""
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
    """(the page, its object's bytes). `salt` as in `encode_page`. Raises `ValueError`: too many locations."""
    if len(locations) > LOCATIONS_MAX:
        raise ValueError(f"{len(locations)} locations, but a page has at most {LOCATIONS_MAX}")
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
    """The page at `location`, if the bytes match digest and length. `name`: for error messages.

    Raises:
        Corrupt: `page-corrupt`; `profile-unknown`, the bytes are intact, but in another format.
    """
    if len(body) != size_in_bytes or hashlib.sha256(body).digest() != digest:
        raise Corrupt("page-corrupt", f"{name}: length or digest do not match the reference")
    blocks = page_blocks(body, PageKind.CONDEMNED, CONDEMNED_SCHEMA_JSON, table_uuid, name=name)
    reference = PageReference(Location(location), digest, size_in_bytes, sum(len(plain) for _, plain in blocks))
    try:
        rows = [row for count, plain in blocks for row, _ in decode_values(_ROW, count, plain)]
        if not rows or any(row["horizon_ms"] or row["replaces"] for row in rows[1:]):
            raise Unreadable("a row after the first has a horizon or digests")
        horizon_ms, replaces = rows[0]["horizon_ms"], tuple(rows[0]["replaces"])
        if horizon_ms < 0 or any(len(item) != _DIGEST_BYTES for item in replaces):
            raise Unreadable("a horizon is negative, or a digest is not 32 bytes long")
        locations = LocationHashes(b"".join(row["hashes"] for row in rows))
        if len(locations) > LOCATIONS_MAX:
            raise Unreadable(f"it has {len(locations)} locations, at most {LOCATIONS_MAX} are allowed")
    except (Unreadable, ValueError) as error:
        raise Corrupt("page-corrupt", f"{name}: {error}") from None
    return CondemnedPage(reference, horizon_ms, locations, replaces)
