"""Pages of locations that must not be added again: condemned and retired ones.

A sweep condemns the locations of unused objects. No root may add a condemned location, and its object may be deleted
once the retention time has passed. A location is retired when a rewrite or a conversion replaces its file by others. It
is recorded because adding the file again would double its rows.

Owns: the rows of both kinds of pages. Does not own: the file around them (`page_codec`), the sets (`location_hashes`),
which locations are condemned (`rootline.maintenance`), which locations are retired and when they are forgotten
(`rootline.tree.parts.locations`), the effect on an intent (`rootline.tree.intents.sweep`,
`rootline.tree.commit.arrival_rules`), deletion (`rootline.workers`).
Invariants: The hashes of a set ascend from row to row. The first row of a condemned page has the horizon (a time: no
file that was uploaded earlier may be added), and the digests of the earlier pages that this page replaces. In a retired
page, the rows of rewritten locations are last.

Source: format page, "Pages". Decision 0063.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from rootline.schemas.bytes.avro_encoding import Unreadable
from rootline.schemas.bytes.root.page_codec import Page, PageKind, RowSchema, record_schema
from rootline.schemas.location_hashes import HASH_BYTES, LocationHashes, location_hash
from rootline.schemas.object_keys import own_forms
from rootline.schemas.parts.page_reference import PageReference
from rootline.schemas.root_header import RootHeader

LOCATIONS_MAX: Final = 1_000_000
"""The most locations in one condemned page: sixteen bytes each in the memory of every coordinator of the table."""
_ROW_HASHES: Final = 32_768
_DIGEST_BYTES: Final = hashlib.sha256().digest_size
_CONDEMNED_ROW: Final = RowSchema(
    record_schema("condemned", horizon_ms="long", replaces={"type": "array", "items": "bytes"}, hashes="bytes")
)
_RETIRED_ROW: Final = RowSchema(record_schema("left", rewritten="boolean", hashes="bytes"))


@dataclass(frozen=True, slots=True)
class CondemnedLocations:
    """The condemned locations. `horizon_ms`: the horizon that the page proposes. `replaces`: digests of earlier pages
    that it replaces.
    """

    horizon_ms: int
    locations: LocationHashes
    replaces: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class RetiredLocations:
    """`rewritten`: other files now contain the rows. `removed`: retired before a restore. No location is in both."""

    removed: LocationHashes
    rewritten: LocationHashes

    def __len__(self) -> int:
        """The number of locations."""
        return len(self.removed) + len(self.rewritten)


CondemnedPage: TypeAlias = Page[CondemnedLocations]
RetiredPage: TypeAlias = Page[RetiredLocations]


def is_condemned(location: str, table: str, pages: Sequence[CondemnedPage]) -> bool:
    """Whether one of a table's pages contains a location, in any of its forms. No intent may add such a location."""
    if not pages:
        return False
    forms = [location_hash(form) for form in own_forms(location, table)]
    return any(form in page.content.locations for page in pages for form in forms)


def _condemned_rows(content: CondemnedLocations) -> list[bytes]:
    """The rows of a condemned page. Raises `ValueError` if there are more than `LOCATIONS_MAX` locations."""
    if len(content.locations) > LOCATIONS_MAX:
        raise ValueError(f"{len(content.locations)} locations, but a page has at most {LOCATIONS_MAX}")
    first = {"horizon_ms": content.horizon_ms, "replaces": list(content.replaces)}
    later = {"horizon_ms": 0, "replaces": []}
    return [
        _CONDEMNED_ROW.encode({**(later if at else first), "hashes": piece})
        for at, piece in enumerate(_pieces(content.locations) or [b""])
    ]


def _condemned_content(rows: Iterator[tuple[Any, bytes]]) -> CondemnedLocations:
    found = [row for row, _ in rows]
    if not found or any(row["horizon_ms"] or row["replaces"] for row in found[1:]):
        raise Unreadable("it has no rows, or a row after the first has a horizon or digests")
    horizon_ms, replaces = found[0]["horizon_ms"], tuple(found[0]["replaces"])
    if horizon_ms < 0 or any(len(item) != _DIGEST_BYTES for item in replaces):
        raise Unreadable("a horizon is negative, or a digest is not 32 bytes long")
    locations = LocationHashes(b"".join(row["hashes"] for row in found))
    if len(locations) > LOCATIONS_MAX:
        raise Unreadable(f"it has {len(locations)} locations, at most {LOCATIONS_MAX} are allowed")
    return CondemnedLocations(horizon_ms, locations, replaces)


def _condemned_named_in(header: RootHeader) -> tuple[PageReference, ...]:
    return tuple([item.page for item in header.locations.condemned]) if header.locations.condemned else ()


def _retired_rows(content: RetiredLocations) -> list[bytes]:
    return [
        _RETIRED_ROW.encode({"rewritten": is_rewritten, "hashes": piece})
        for is_rewritten, hashes in ((False, content.removed), (True, content.rewritten))
        for piece in _pieces(hashes)
    ]


def _retired_content(rows: Iterator[tuple[Any, bytes]]) -> RetiredLocations:
    hashes: dict[bool, list[bytes]] = {False: [], True: []}
    for row, _ in rows:
        hashes[row["rewritten"]].append(row["hashes"])
    return RetiredLocations(*(LocationHashes(b"".join(hashes[item])) for item in (False, True)))


def _retired_named_in(header: RootHeader) -> tuple[PageReference, ...]:
    return tuple([item.page for item in header.locations.retired.pages]) if header.locations.retired.pages else ()


def _pieces(hashes: LocationHashes) -> list[bytes]:
    """The packed hashes, divided into rows."""
    step = _ROW_HASHES * HASH_BYTES
    return [hashes.packed[at : at + step] for at in range(0, len(hashes.packed), step)]


CONDEMNED_PAGES: Final = PageKind("condemned", _CONDEMNED_ROW, _condemned_rows, _condemned_content, _condemned_named_in)
"""A worker stores a page, and the intent `sweep` is the first to name it."""
RETIRED_PAGES: Final = PageKind("left", _RETIRED_ROW, _retired_rows, _retired_content, _retired_named_in)
