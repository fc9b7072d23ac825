"""The recorded retired locations: when they are forgotten, and how the header's part stays small.

A location is retired when its file is rewritten. An intent must not add the file again, as its rows would be doubled.

Owns: how long a location is recorded, which locations move to pages, merging pages, the most locations recorded. Does
not own: which locations are retired (`rootline.tree.parts.retired`), pages' bytes
(`rootline.schemas.bytes.root.location_pages`), which neighbors are merged (`page_merge`), the effect on an intent
(`rootline.tree.commit.arrival_rules`).
Invariants: A location is forgotten before its time only when there are too many, oldest page first. Only locations that
were retired at about the same time are merged, so that a page does not stay young forever. The header contains at most
32 locations.

Theory. A file that was uploaded before the horizon is rejected with `expired`, no matter which intent adds it, so
locations retired before the horizon need not be recorded. Without a horizon, dates are not checked. Then a location is
forgotten once the log's counted time has advanced by the orphan age. That is a day longer than the log keeps a record,
so no copy of the intent is on the log any more.

Source: definitions page, section 4. Format page, "Pages". Decision 0063.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Final

from rootline.schemas.bytes.root.location_pages import RETIRED_PAGES, RetiredLocations, RetiredPage
from rootline.schemas.identifiers import CLOCKS_APART_MS, SequenceNumber
from rootline.schemas.location_hashes import HASH_BYTES, LocationHashes
from rootline.schemas.parts.locations import Retired, RetiredSince
from rootline.tree.parts.page_merge import Fitted, first_to_merge
from rootline.tree.state.pending_object import pending_page

FRESH_BYTES_MAX: Final = 32 * HASH_BYTES
"""Bytes of locations in the header, which every root carries."""
PAGES_MAX: Final = 48
LOCATIONS_MAX: Final = 2_000_000
"""The most locations in all pages together: sixteen bytes each in the memory of every coordinator of the table."""
_PARTS: Final = 4
"""Parts of the orphan age. Pages of one part are merged, so a location is recorded for at most a quarter longer."""


@dataclass(frozen=True, slots=True)
class RetiredRetention:
    """The time of the batch (`now_ms`), and the times that decide which locations are still recorded."""

    now_ms: int
    horizon_ms: int
    counted_ms: int
    orphan_age_ms: int

    @property
    def before_ms(self) -> int:
        """Locations retired before this time are forgotten (milliseconds, epoch)."""
        if self.horizon_ms:
            return self.horizon_ms - CLOCKS_APART_MS
        return self.counted_ms - self.orphan_age_ms


@dataclass(frozen=True, slots=True)
class NewlyRetired:
    """The locations of files that stopped being live in a batch, each in one of the two sets.

    `number`: the newest sequence number at which one of them stopped being live.
    """

    removed: LocationHashes
    rewritten: LocationHashes
    number: SequenceNumber


def fit_retired(
    header: Retired,
    pages: tuple[RetiredPage, ...],
    new: NewlyRetired | None,
    retention: RetiredRetention,
    *,
    restored_through: int,
    table_uuid: uuid.UUID,
    salt: bytes = b"",
) -> Fitted[Retired, RetiredLocations]:
    """The retired locations recorded after a batch.

    Args:
        header: of the parent.
        pages: referenced by the header.
        new: retired in this batch, or `None`.
        retention: decides which locations are forgotten.
        restored_through: the sequence number of the last restore. Locations rewritten before it count as removed.
        table_uuid: of the pages' table.
        salt: of a new page's name.
    """
    before_ms = retention.before_ms
    if any(item.since_ms < before_ms for item in header.pages):
        current = [pair for pair in zip(header.pages, pages, strict=True) if pair[0].since_ms >= before_ms]
        header, pages = (
            header._replace(pages=tuple([item for item, _ in current])),
            tuple([page for _, page in current]),
        )
    if new is None:
        return Fitted(header, pages)
    removed, rewritten = new.removed, new.rewritten
    if header.since_ms >= before_ms:
        earlier = _as_of(
            LocationHashes(header.removed), LocationHashes(header.rewritten), header.number, restored_through
        )
        removed, rewritten = _joined((removed, rewritten), earlier)
    fresh = header._replace(
        removed=removed.packed, rewritten=rewritten.packed, since_ms=retention.now_ms, number=new.number
    )
    if len(fresh.removed) + len(fresh.rewritten) <= FRESH_BYTES_MAX:
        return Fitted(fresh, pages)
    first = _first_to_merge(header.pages, len(removed.packed) + len(rewritten.packed), retention)
    since_ms = max([retention.now_ms, *(item.since_ms for item in header.pages[first:])])
    for item, page in zip(reversed(header.pages[first:]), reversed(pages[first:]), strict=True):
        removed, rewritten = _joined(
            (removed, rewritten), _as_of(page.content.removed, page.content.rewritten, item.number, restored_through)
        )
    page, body = pending_page(RETIRED_PAGES, table_uuid, RetiredLocations(removed, rewritten), salt)
    kept = [*zip(header.pages[:first], pages[:first], strict=True)]
    kept.append((RetiredSince(page.reference, since_ms, new.number), page))
    while len(kept) > 1 and sum(len(page.content) for _, page in kept) > LOCATIONS_MAX:
        del kept[0]
    names = Retired(pages=tuple([item for item, _ in kept]))
    return Fitted(names, tuple([page for _, page in kept]), (body,))


def _first_to_merge(pages: tuple[RetiredSince, ...], fresh_bytes: int, retention: RetiredRetention) -> int:
    """The index of the first page to merge: neighbors of the same age that are not much larger."""
    part_ms = max(1, retention.orphan_age_ms // _PARTS)
    at = len(pages)
    while at and pages[at - 1].since_ms // part_ms == retention.now_ms // part_ms:
        at -= 1
    if len(pages) >= PAGES_MAX:
        return 0
    return at + first_to_merge([item.page.content_bytes for item in pages[at:]], fresh_bytes)


def _as_of(
    removed: LocationHashes, rewritten: LocationHashes, number: int, restored_through: int
) -> tuple[LocationHashes, LocationHashes]:
    """(removed, rewritten) after a restore: locations rewritten before it count as removed."""
    return (removed, rewritten) if number > restored_through else (removed.union(rewritten), LocationHashes())


def _joined(
    late: tuple[LocationHashes, LocationHashes], early: tuple[LocationHashes, LocationHashes]
) -> tuple[LocationHashes, LocationHashes]:
    """Both pairs of (removed, rewritten) together. For a location in both pairs, `late` counts.

    A restore added its file back in between.
    """
    removed = early[0].without(late[1]) if len(early[0]) and len(late[1]) else early[0]
    rewritten = early[1].without(late[0]) if len(early[1]) and len(late[0]) else early[1]
    return late[0].union(removed), late[1].union(rewritten)
