"""The part `locations`: files that no intent may add, because they were uploaded too long ago (before the horizon), or
are condemned (a sweep will delete them) or retired (a rewrite replaced them).

Owns: the value types, the keys `rootline.horizon` and `rootline.left`. Does not own: the pages of locations
(`rootline.schemas.bytes.root`), which locations are condemned or retired (`rootline.tree`).
Invariants: An encoded value decodes to an equal value.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rootline.schemas.identifiers import SequenceNumber, Version
from rootline.schemas.location_hashes import ascending_hashes
from rootline.schemas.object_keys import page_location
from rootline.schemas.parts.header_part import HeaderPart, checked_digest, count_of, json_of, list_in
from rootline.schemas.parts.page_reference import PageReference, json_of_page, page_of_json

HORIZON_KEY: Final = "rootline.horizon"
RETIRED_KEY: Final = "rootline.left"
"""Absent if no location is recorded, as in roots of older releases."""


class Condemned(NamedTuple):
    """A page of condemned locations, and the root that first referenced it.

    `since_ms`: a time neither before the append time of the intent that added the page nor before that root's time. The
    condemned objects may be deleted once the retention time has passed since then. The page may be dropped once the
    horizon has reached `since_ms`.
    """

    page: PageReference
    since_version: Version
    since_ms: int


class RetiredSince(NamedTuple):
    """A page of retired locations. `since_ms` and `number`: as in `Retired`, of the newest location in the page."""

    page: PageReference
    since_ms: int
    number: SequenceNumber


class Retired(NamedTuple):
    """Locations of files that rewrites and conversions replaced, as sorted hashes: the latest ones here, earlier ones
    in `pages`, the oldest page first.

    `rewritten`: locations whose rows are now in other files, unless a restore followed `number`. `removed`: locations
    that were replaced before an earlier restore. `since_ms`: a time neither before the append time of the intent that
    replaced the newest one nor before that root's time. `number`: that intent's sequence number.
    """

    removed: bytes = b""
    rewritten: bytes = b""
    since_ms: int = 0
    number: SequenceNumber = SequenceNumber(0)
    pages: tuple[RetiredSince, ...] = ()

    def __bool__(self) -> bool:
        """Whether there are any locations."""
        return bool(self.removed or self.rewritten or self.pages)


NOTHING_RETIRED: Final = Retired()


@dataclass(frozen=True, slots=True)
class Locations:
    """Files that cannot be added.

    `horizon_ms`: files that were uploaded before this time cannot be added. 0 means that there is no horizon.
    """

    horizon_ms: int = 0
    condemned: tuple[Condemned, ...] = ()
    retired: Retired = NOTHING_RETIRED


def encode_retired(retired: Retired) -> bytes:
    """The value of `rootline.left`. The name of a page follows from its digest, so it is not encoded."""
    pages = [
        [_text(page.digest), page.size_in_bytes, page.content_bytes, since_ms, number]
        for page, since_ms, number in retired.pages
    ]
    return json_of([retired.since_ms, retired.number, _text(retired.removed), _text(retired.rewritten), pages])


def decode_retired(value: bytes) -> Retired:
    """The retired locations in a value of `rootline.left`. Raises `ValueError` or `TypeError` if it is invalid."""
    since_ms, number, removed, rewritten, pages = json.loads(value)
    found = Retired(
        ascending_hashes(_bytes(removed)),
        ascending_hashes(_bytes(rewritten)),
        count_of(since_ms),
        SequenceNumber(count_of(number)),
        tuple([_retired_page(*page) for page in pages]),
    )
    if not found:
        raise ValueError(f"{RETIRED_KEY} is empty: it must be absent instead")
    return found


def _encode_horizon(locations: Locations) -> bytes | None:
    if not locations.horizon_ms and not locations.condemned:
        return None
    condemned = [[json_of_page(item.page), item.since_version, item.since_ms] for item in locations.condemned]
    return json_of([locations.horizon_ms, condemned])


def _decode(metadata: Mapping[str, bytes]) -> Locations:
    horizon_ms, condemned = list_in(metadata, HORIZON_KEY) if HORIZON_KEY in metadata else (0, [])
    return Locations(
        count_of(horizon_ms),
        tuple(
            Condemned(page_of_json(*page), Version(count_of(version)), count_of(since_ms))
            for page, version, since_ms in condemned
        ),
        decode_retired(metadata[RETIRED_KEY]) if RETIRED_KEY in metadata else NOTHING_RETIRED,
    )


def _retired_page(digest: Any, size: Any, content: Any, since_ms: Any, number: Any) -> RetiredSince:
    digest = checked_digest(_bytes(digest))
    page = PageReference(page_location(digest.hex()), digest, count_of(size), count_of(content))
    return RetiredSince(page, count_of(since_ms), SequenceNumber(count_of(number)))


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _bytes(value: Any) -> bytes:
    return base64.b64decode(value, validate=True)


LOCATIONS: Final[HeaderPart[Locations]] = HeaderPart(
    "locations",
    {
        HORIZON_KEY: _encode_horizon,
        RETIRED_KEY: lambda locations: encode_retired(locations.retired) if locations.retired else None,
    },
    _decode,
    needs_profile_2=lambda locations: bool(locations.horizon_ms or locations.condemned),
)
