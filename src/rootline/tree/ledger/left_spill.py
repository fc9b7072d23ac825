"""What left the live set: when it is forgotten, and how the header's part of it stays small.

Owns: until when a location is known, which of them move to pages, merging pages, how much is known at most. Does not
own: what leaves (`rootline.tree.draft.left`), pages' bytes (`rootline.schemas.bytes.root.left_page`), which neighbours
are merged (`page_merge`), what it means for an intent (`rootline.tree.commit.arrival_rules`).
Invariants: what is not old enough is forgotten only where there would be too much of it, the oldest page first; only
what left about the same time is merged, so that no page becomes young again for ever; the header holds 32 locations.

Theory. A file that was uploaded before the horizon is `expired`, whoever brings it, so what left before the horizon
need not be known. Without a horizon no one looks at dates. Then what left is forgotten when the log's counted time has
gone on by the orphans' age, which is a day more than the log keeps a record: no copy that is on the log comes later.

Source: definitions page, section 4; format page, "Pages"; decision 0063.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Final, NamedTuple

from rootline.schemas.bytes.root.left_page import RetiredPage, encode_retired_page
from rootline.schemas.bytes.root.location_hashes import HASH_BYTES, LocationHashes
from rootline.schemas.identifiers import CLOCKS_APART_MS, SequenceNumber
from rootline.schemas.root_header import Retired, RetiredSince
from rootline.tree.ledger.page_merge import first_to_merge
from rootline.tree.state.pending_object import PendingObject

FRESH_BYTES_MAX: Final = 32 * HASH_BYTES
"""Of the header: every root carries it."""
PAGES_MAX: Final = 48
LOCATIONS_MAX: Final = 2_000_000
"""Of all pages together: sixteen bytes each in the memory of every coordinator of the table."""
_PARTS: Final = 4
"""Of the orphans' age: pages of the same part are merged, so that a location is known for a quarter longer at most."""


@dataclass(frozen=True, slots=True)
class Forgetting:
    """When the batch ends (`now_ms`), and since when locations that left are still known."""

    now_ms: int
    horizon_ms: int
    counted_ms: int
    orphan_age_ms: int

    @property
    def before_ms(self) -> int:
        """What left before is forgotten."""
        if self.horizon_ms:
            return self.horizon_ms - CLOCKS_APART_MS
        return self.counted_ms - self.orphan_age_ms


class FittedLeft(NamedTuple):
    """What the header says, the pages beside it, and the pages to store first, if there are new ones."""

    header: Retired
    pages: tuple[RetiredPage, ...]
    objects: tuple[PendingObject, ...] = ()


@dataclass(frozen=True, slots=True)
class Leaving:
    """What a batch let leave, up to sequence number `number`; no location is in both."""

    removed: LocationHashes
    rewritten: LocationHashes
    number: SequenceNumber


def fit_left(
    header: Retired,
    pages: tuple[RetiredPage, ...],
    leaving: Leaving | None,
    forgetting: Forgetting,
    *,
    restored_through: int,
    table_uuid: uuid.UUID,
    salt: bytes = b"",
) -> FittedLeft:
    """What is known after a batch.

    Args:
        header: of the parent.
        pages: that it names.
        leaving: in this batch; `None`: nothing.
        forgetting: what is old enough to be forgotten.
        restored_through: the sequence number of the last restore: what was rewritten before does not hold its rows now.
        table_uuid: whose pages they are.
        salt: of a new page's name.

    """
    before_ms = forgetting.before_ms
    if any(item.since_ms < before_ms for item in header.pages):
        held = [pair for pair in zip(header.pages, pages, strict=True) if pair[0].since_ms >= before_ms]
        header, pages = header._replace(pages=tuple([item for item, _ in held])), tuple([page for _, page in held])
    if leaving is None:
        return FittedLeft(header, pages)
    removed, rewritten = leaving.removed, leaving.rewritten
    if header.since_ms >= before_ms:
        earlier = _as_of(
            LocationHashes(header.removed), LocationHashes(header.rewritten), header.number, restored_through
        )
        removed, rewritten = _joined((removed, rewritten), earlier)
    fresh = header._replace(
        removed=removed.packed, rewritten=rewritten.packed, since_ms=forgetting.now_ms, number=leaving.number
    )
    if len(fresh.removed) + len(fresh.rewritten) <= FRESH_BYTES_MAX:
        return FittedLeft(fresh, pages)
    first = _first_to_merge(header.pages, len(removed.packed) + len(rewritten.packed), forgetting)
    since_ms = max([forgetting.now_ms, *(item.since_ms for item in header.pages[first:])])
    for item, page in zip(reversed(header.pages[first:]), reversed(pages[first:]), strict=True):
        removed, rewritten = _joined(
            (removed, rewritten), _as_of(page.removed, page.rewritten, item.number, restored_through)
        )
    page, body = encode_retired_page(table_uuid, removed, rewritten, salt)
    kept = [*zip(header.pages[:first], pages[:first], strict=True)]
    kept.append((RetiredSince(page.reference, since_ms, leaving.number), page))
    while len(kept) > 1 and sum(len(page) for _, page in kept) > LOCATIONS_MAX:
        del kept[0]
    names = Retired(pages=tuple([item for item, _ in kept]))
    return FittedLeft(names, tuple([page for _, page in kept]), (PendingObject(page.reference.location, body),))


def _first_to_merge(pages: tuple[RetiredSince, ...], fresh_bytes: int, forgetting: Forgetting) -> int:
    """The index from which on pages go into the new one: neighbours that are as young, and not much larger."""
    part_ms = max(1, forgetting.orphan_age_ms // _PARTS)
    at = len(pages)
    while at and pages[at - 1].since_ms // part_ms == forgetting.now_ms // part_ms:
        at -= 1
    if len(pages) >= PAGES_MAX:
        return 0
    return at + first_to_merge([item.page.content_bytes for item in pages[at:]], fresh_bytes)


def _as_of(
    removed: LocationHashes, rewritten: LocationHashes, number: int, restored_through: int
) -> tuple[LocationHashes, LocationHashes]:
    """What was rewritten before a restore counts as removed."""
    return (removed, rewritten) if number > restored_through else (removed.union(rewritten), LocationHashes())


def _joined(
    late: tuple[LocationHashes, LocationHashes], early: tuple[LocationHashes, LocationHashes]
) -> tuple[LocationHashes, LocationHashes]:
    """Both; of a location that is in both, what became of it late: a restore brought it back in between."""
    removed = early[0].without(late[1]) if len(early[0]) and len(late[1]) else early[0]
    rewritten = early[1].without(late[0]) if len(early[1]) and len(late[0]) else early[1]
    return late[0].union(removed), late[1].union(rewritten)
