"""The part `locations`: files that no intent may add, because they are too old, condemned or retired.

A location is retired when its file is rewritten: an intent that added the file again would double its rows.

Owns: recording the files that a change replaces, lookups by location, how long a retired location is recorded, its move
to pages, merging pages, the most locations recorded, the horizon, which only rises, and condemned pages, which stay
until the horizon has passed them. Does not own: pages' bytes (`rootline.schemas.bytes.root.location_pages`), which
neighbors are merged (`page_merge`), which locations are condemned (`rootline.tree.intents.sweep`), the consequence for
an intent (`rootline.tree.commit.arrival_rules`).
Invariants:
* Data files and equality deletes are recorded. Vectors and leaves are not.
* An entry that only moves within the tree is not recorded, nor is a file that an intent removes, which may be added
  again.
* A file rewritten before a restore counts as removed, unless it was restored and rewritten again. The last time counts.
* A location is forgotten before its time only when there are too many, oldest page first. Only locations that were
  retired at about the same time are merged, so that a page does not stay young forever. The header contains at most 32
  retired locations.

Theory. A file that was uploaded before the horizon is rejected with `expired`, no matter which intent adds it, so
locations retired before the horizon need not be recorded. Without a horizon, dates are not checked. Then a location is
forgotten once the log's counted time has advanced by the orphan age. That is a day longer than the log keeps a record,
so no copy of the intent is on the log any more.

Source: definitions page, section 4. Format page, "Pages". Decision 0063.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from enum import Enum, auto
from functools import cached_property
from typing import Any, Final, NamedTuple

from rootline.schemas.bytes.root.location_pages import (
    CONDEMNED_PAGES,
    RETIRED_PAGES,
    CondemnedPage,
    RetiredLocations,
    RetiredPage,
    is_condemned,
)
from rootline.schemas.bytes.root.page_codec import PageKind
from rootline.schemas.content_entry import LEAF_TYPES, ContentEntry, ContentType, Status
from rootline.schemas.identifiers import CLOCKS_APART_MS, SequenceNumber, Version
from rootline.schemas.location_hashes import HASH_BYTES, LocationHashes, location_hash
from rootline.schemas.parts.locations import NOTHING_RETIRED, Condemned, Locations, Retired, RetiredSince
from rootline.schemas.parts.log import LOG
from rootline.schemas.parts.restores import RESTORES
from rootline.schemas.root_header import RootHeader
from rootline.tree.parts.log import counted_ms
from rootline.tree.parts.page_merge import Fitted, first_to_merge
from rootline.tree.parts.part_rules import Advance, BatchFacts, CheckedStep, PageRule, PartRules
from rootline.tree.parts.restores import RESTORED_VERSIONS
from rootline.tree.state.live_index import Live
from rootline.tree.state.table_state import TableState, changed_pages, pending_page

HORIZON: Final = "rootline.horizon-ms"
"""Key of a snapshot's summary: the horizon, if it rose."""
CONDEMNED: Final = "rootline.condemned-locations"
"""Key of a snapshot's summary: the number of locations in pages that this root is the first to reference."""
ORPHAN_AGE_PROPERTY: Final = "rootline.sweep.orphan-age-s"
FRESH_BYTES_MAX: Final = 32 * HASH_BYTES
"""Bytes of locations in the header, which every root carries."""
PAGES_MAX: Final = 48
LOCATIONS_MAX: Final = 2_000_000
"""The most locations in all pages together: sixteen bytes each in the memory of every coordinator of the table."""
_PARTS: Final = 4
"""Parts of the orphan age. Pages of one part are merged, so a location is recorded for at most a quarter longer."""
_FILES: Final = (ContentType.DATA, ContentType.EQUALITY_DELETE)
_DAY_S: Final = 24 * 3600
_Sets = tuple[LocationHashes, LocationHashes]
"""The removed locations, and the rewritten ones."""


def orphan_age_s(properties: Mapping[str, str], log_retention_s: int) -> int:
    """The age of the horizon in seconds: a day more than the log keeps records, or the property's value if that is
    longer.

    A value that is not a number counts as not set. The worker reports it.
    """
    least = log_retention_s + _DAY_S
    text = properties.get(ORPHAN_AGE_PROPERTY, "")
    return max(least, int(text)) if text.isascii() and text.isdigit() and len(text) <= 12 else least


class Closure(Enum):
    """A reason why a location may not be added.

    * `REWRITTEN`: other files contain its rows. `REMOVED`: its rows were removed, or it was rewritten before a restore.
    * `CONDEMNED`: its object will be deleted. `EXPIRED`: it was uploaded before the horizon, so it may be deleted.
    """

    REMOVED = auto()
    REWRITTEN = auto()
    CONDEMNED = auto()
    EXPIRED = auto()


class RetiredDraft:
    """Retired locations of the parent (`header`, `pages`) and of the batch. Only `note` changes it."""

    def __init__(self, header: Retired = NOTHING_RETIRED, pages: tuple[RetiredPage, ...] = ()) -> None:
        self.header, self.pages = header, pages
        self._has_earlier = bool(header)
        self.new: dict[bytes, SequenceNumber] = {}
        """The locations of the batch: hash → sequence number."""

    def __bool__(self) -> bool:
        """Whether any location is recorded."""
        return self._has_earlier or bool(self.new)

    def note(self, replaced: Iterable[Live], number: SequenceNumber) -> None:
        """Record the files that a change replaces: other files contain the same rows, or delete the same rows."""
        for live in replaced:
            if live.entry.content_type in _FILES:
                self.new[location_hash(live.entry.location)] = number

    def find(self, location: str, restored_through: int) -> Closure | None:
        """The retirement of a location, or `None` if it was not retired or is forgotten."""
        wanted = location_hash(location)
        number = self.new.get(wanted)
        if number is not None:
            return _how(True, number, restored_through)
        late = self._late.get(wanted)
        if late is not None:
            return _how(late, self.header.number, restored_through)
        first_half = int.from_bytes(wanted[:8], "big")
        for item, page in zip(reversed(self.header.pages), reversed(self.pages), strict=True):
            if page.content.rewritten.may_contain(first_half) and wanted in page.content.rewritten:
                return _how(True, item.number, restored_through)
            if page.content.removed.may_contain(first_half) and wanted in page.content.removed:
                return Closure.REMOVED
        return None

    @cached_property
    def _late(self) -> Mapping[bytes, bool]:
        """The retired locations that the header itself contains: hash → whether the file was rewritten."""
        header = self.header
        return {
            packed[at : at + HASH_BYTES]: is_rewritten
            for packed, is_rewritten in ((header.removed, False), (header.rewritten, True))
            for at in range(0, len(packed), HASH_BYTES)
        }


def _how(is_rewritten: bool, number: int, restored_through: int) -> Closure:
    """The retirement of a location recorded at sequence number `number`, after later restores."""
    return Closure.REWRITTEN if is_rewritten and number > restored_through else Closure.REMOVED


class ClosedLocations(NamedTuple):
    """The locations of a table that may not be added: retired ones, condemned ones, and those before the horizon."""

    table: str
    retired: RetiredDraft | None = None
    restored_through: int = 0
    condemned: tuple[CondemnedPage, ...] = ()
    horizon_ms: int = 0

    def why_closed(self, location: str, stored_ms: int | None = None) -> Closure | None:
        """The first reason why a location may not be added, or `None`. `stored_ms`: when it was uploaded, if known."""
        how = self.retired.find(location, self.restored_through) if self.retired else None
        if how is not None:
            return how
        if is_condemned(location, self.table, self.condemned):
            return Closure.CONDEMNED
        return Closure.EXPIRED if stored_ms is not None and stored_ms < self.horizon_ms else None


def _advance(batch: tuple[Locations, RetiredDraft], step: Advance) -> Locations:
    """A page that this root is the first to reference is dated no earlier than the root."""
    locations, retired = batch
    condemned = locations.condemned
    if any(item.since_version == step.version for item in condemned):
        condemned = tuple([_dated(item, step.version, step.timestamp_ms) for item in condemned])
    header = step.spilled(RETIRED_PAGES, _fitted(retired, locations.horizon_ms, step))[0]
    if condemned is locations.condemned and header is locations.retired:
        return locations
    return replace(locations, condemned=condemned, retired=header)


def _dated(item: Condemned, version: Version, timestamp_ms: int) -> Condemned:
    return item if item.since_version != version else item._replace(since_ms=max(item.since_ms, timestamp_ms))


def _fitted(batch: RetiredDraft, horizon_ms: int, step: Advance) -> Fitted[Retired, RetiredLocations]:
    """The retired locations recorded after a batch."""
    header, pages = batch.header, batch.pages
    if not batch:
        return Fitted(header, pages)
    age_ms = 1000 * orphan_age_s(step.properties, step.log_retention_s)
    # locations retired before this time are forgotten
    before_ms = horizon_ms - CLOCKS_APART_MS if horizon_ms else counted_ms(step.of(LOG).time) - age_ms
    if any(item.since_ms < before_ms for item in header.pages):
        current = [pair for pair in zip(header.pages, pages, strict=True) if pair[0].since_ms >= before_ms]
        header = header._replace(pages=tuple([item for item, _ in current]))
        pages = tuple([page for _, page in current])
    restored = step.of(RESTORES).through
    if not batch.new:
        return Fitted(header, pages)
    number, new = max(batch.new.values()), batch.new.items()
    removed = LocationHashes.of(item for item, at in new if at <= restored)
    sets = removed, LocationHashes.of(item for item, at in new if at > restored)
    if header.since_ms >= before_ms:
        late = LocationHashes(header.removed), LocationHashes(header.rewritten)
        sets = _joined(sets, _as_of(late, header.number, restored))
    fresh_bytes = len(sets[0].packed) + len(sets[1].packed)
    if fresh_bytes <= FRESH_BYTES_MAX:
        return Fitted(Retired(sets[0].packed, sets[1].packed, step.latest_ms, number, header.pages), pages)
    first = _first_to_merge(header.pages, fresh_bytes, step.latest_ms, age_ms)
    since_ms = max([step.latest_ms, *(item.since_ms for item in header.pages[first:])])
    for item, page in zip(reversed(header.pages[first:]), reversed(pages[first:]), strict=True):
        sets = _joined(sets, _as_of((page.content.removed, page.content.rewritten), item.number, restored))
    page, body = pending_page(RETIRED_PAGES, step.table_uuid, RetiredLocations(*sets), step.salt)
    kept = [*zip(header.pages[:first], pages[:first], strict=True)]
    kept.append((RetiredSince(page.reference, since_ms, number), page))
    while len(kept) > 1 and sum(len(page.content) for _, page in kept) > LOCATIONS_MAX:
        del kept[0]
    names = Retired(pages=tuple([item for item, _ in kept]))
    return Fitted(names, tuple([page for _, page in kept]), (body,))


def _first_to_merge(pages: tuple[RetiredSince, ...], fresh_bytes: int, now_ms: int, age_ms: int) -> int:
    """The index of the first page to merge: neighbors of the same age that are not much larger."""
    part_ms = max(1, age_ms // _PARTS)
    at = len(pages)
    while at and pages[at - 1].since_ms // part_ms == now_ms // part_ms:
        at -= 1
    if len(pages) >= PAGES_MAX:
        return 0
    return at + first_to_merge([item.page.content_bytes for item in pages[at:]], fresh_bytes)


def _as_of(sets: _Sets, number: int, restored_through: int) -> _Sets:
    """`sets` after a restore: locations rewritten before it count as removed."""
    return sets if number > restored_through else (sets[0].union(sets[1]), LocationHashes())


def _joined(late: _Sets, early: _Sets) -> _Sets:
    """Both pairs of sets together. For a location in both pairs, `late` counts.

    A restore added its file back in between.
    """
    removed = early[0].without(late[1]) if len(early[0]) and len(late[1]) else early[0]
    rewritten = early[1].without(late[0]) if len(early[1]) and len(late[0]) else early[1]
    return late[0].union(removed), late[1].union(rewritten)


def _summary(before: Locations | None, after: Locations, facts: BatchFacts) -> Mapping[str, str]:
    summary: dict[str, str] = {}
    was = Locations() if before is None else before
    if after.horizon_ms > was.horizon_ms:
        summary[HORIZON] = str(after.horizon_ms)
    if after.condemned != was.condemned:
        fresh = {item.page.digest for item in after.condemned} - {item.page.digest for item in was.condemned}
        summary[CONDEMNED] = str(sum(count for digest, count in facts.condemned.items() if digest in fresh))
    return summary


def sweep_violations(before: RootHeader, after: RootHeader) -> Iterator[str]:
    """Violations in a root's horizon and condemned pages, compared with the root before it, as sentences."""
    summary = after.snapshot.summary
    was, now = before.locations, after.locations
    if now.horizon_ms < was.horizon_ms:
        yield f"the horizon decreased from {was.horizon_ms} to {now.horizon_ms}"
    if (now.horizon_ms > was.horizon_ms) != (HORIZON in summary):
        yield f"the horizon is {now.horizon_ms} after {was.horizon_ms}, its summary has {summary.get(HORIZON)!r}"
    if (now.condemned != was.condemned) != (CONDEMNED in summary):
        yield "the condemned pages changed, but its summary does not state it"
    added = [item for item in now.condemned if item not in was.condemned]
    dropped = [item for item in was.condemned if item not in now.condemned]
    for item in added:
        if item.since_version != after.version or item.since_ms < after.snapshot.timestamp_ms:
            yield f"page {item.page.location} is new in this root, but is dated version {item.since_version}"
    for item in dropped:
        if item.since_ms > now.horizon_ms and not added:
            yield f"page {item.page.location} was dropped before the horizon passed {item.since_ms}"


def _condemned_rule(old: TableState | None, new: TableState, _step: CheckedStep) -> Iterator[str]:
    """Check that no condemned location is added, and that a page of condemned locations stays until the horizon has
    passed its time.
    """
    if old is None:
        return
    added, dropped = changed_pages(CONDEMNED_PAGES, old.pages, new.pages)
    since = {item.page: item.since_ms for item in old.header.locations.condemned}
    for page in dropped:
        if since[page.reference] > new.header.locations.horizon_ms:
            known = [other.content.locations for other in added]
            if any(all(item not in locations for locations in known) for item in page.content.locations):
                yield f"page {page.reference.location} is lost, but the horizon has not passed it"
    if not old.pages.of(CONDEMNED_PAGES) or RESTORED_VERSIONS in new.header.snapshot.summary:
        return
    for ordinal in new.live.unsettled:
        for row in new.root.blocks[ordinal].rows:
            entry = row.entry
            if entry.version_info.status is Status.ADDED or entry.location not in old.live.leaf_rows:
                yield from _not_added(entry, old)


def _not_added(entry: ContentEntry, old: TableState) -> Iterator[str]:
    wanted = location_hash(entry.location)
    is_new = entry.version_info.status is Status.ADDED or entry.content_type in LEAF_TYPES
    if is_new and any(wanted in page.content.locations for page in old.pages.of(CONDEMNED_PAGES)):
        yield f"{entry.location} is added, but was condemned"


def _retired_rule(old: TableState | None, new: TableState, step: CheckedStep) -> Iterator[str]:
    """Check that a page of retired locations stays until the horizon has passed its time, or there are more than
    `LOCATIONS_MAX` locations.
    """
    if old is None or step.starts_table:  # each table has its own files
        return
    added, dropped = changed_pages(RETIRED_PAGES, old.pages, new.pages)
    header, since = new.header, {item.page: item.since_ms for item in old.header.locations.retired.pages}
    known = [hashes for page in added for hashes in _sets(page)]
    for page in dropped:
        if since[page.reference] < (header.locations.horizon_ms or counted_ms(header.log.time)):
            continue
        is_full = sum(len(each.content) for each in (page, *new.pages.of(RETIRED_PAGES))) > LOCATIONS_MAX
        locations = (item for hashes in _sets(page) for item in hashes)
        if not is_full and any(all(item not in hashes for hashes in known) for item in locations):
            yield f"page {page.reference.location} is lost, but its locations were removed only recently"


def _sets(page: RetiredPage) -> tuple[LocationHashes, LocationHashes]:
    return page.content.removed, page.content.rewritten


def _begins(before: RootHeader, after: RootHeader) -> Iterator[str]:
    was, now = before.locations, after.locations
    if now.horizon_ms != was.horizon_ms or len(now.condemned) != len(was.condemned):
        yield "the condemned locations or the horizon changed"


_PAGE_RULES: Final[Mapping[PageKind[Any], PageRule]] = {CONDEMNED_PAGES: _condemned_rule, RETIRED_PAGES: _retired_rule}
LOCATIONS: Final = PartRules(
    "locations", _summary, sweep_violations, _begins, None, "snapshot-wrong", _PAGE_RULES, ("log", "restores"), _advance
)
