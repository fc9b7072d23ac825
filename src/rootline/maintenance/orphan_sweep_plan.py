"""Chooses the objects that a sweep condemns, and the condemned ones that may be deleted.

A sweep *condemns* an object by listing it in a page that a root names. After a retention it is deleted. The *horizon*
of a table is a time in its root: an unreferenced file that was stored before it is an orphan.

Owns: these two choices, and the proposed horizon. Does not own: reading the inventory and the references
(`rootline.workers.jobs.sweep_reads`), the coordinator's check of the proposal (`rootline.tree.intents.sweep`),
deletion (`rootline.workers.jobs.sweep_job`).
Invariants: an object that any existing root references is never deleted, and one that a readable root references is
never condemned. An object that no root ever referenced is condemned only when it is older than the committed horizon.
Only names that Rootline or clients of its REST catalog generate are condemned. An object counts as referenced if it is
not known whether it is.

Theory. Two kinds of objects are not needed. *Orphans* were never committed: files of writers that crashed, leaves of
intents that lost. They look like files of a writer that is about to publish, so they must be older than the horizon:
coordinators refuse intents that add files from before it. *Removed files* were committed once, and only expired roots
still reference them. As long as such a root exists, it proves that no writer is about to publish these files. So they
are condemned at any age.

From the root on that names a page, no root adds a file that the page condemns. So if all existing roots are read
*after* that root was stored, and none of them references the file, none ever will: `restore` only restores files that
a readable root references.

Source: definitions page, section 4; decision 0063.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from rootline.maintenance.limits import SweepLimits
from rootline.maintenance.plan import IntentStamp, WrittenPlan
from rootline.schemas.bytes.root.foreign_names import ForeignNames, name_hash
from rootline.schemas.bytes.root.location_pages import CONDEMNED_PAGES, LOCATIONS_MAX, CondemnedLocations, CondemnedPage
from rootline.schemas.identifiers import CLOCKS_APART_MS, Version
from rootline.schemas.intent import IntentKind, StoredPage
from rootline.schemas.location_hashes import HASH_BYTES, LocationHashes, location_hash
from rootline.schemas.object_keys import OF_EXPORTS, OwnKind, own_kind
from rootline.schemas.parts.locations import Condemned
from rootline.schemas.root_header import RootHeader
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.parts.locations import HORIZON
from rootline.tree.parts.log import counted_ms
from rootline.tree.state.table_state import pending_page

_KINDS: Final = tuple(OwnKind)
_OF_EXPORTS: Final = OF_EXPORTS | {OwnKind.DATA_FILE, OwnKind.DATA_VECTOR, OwnKind.VECTOR, OwnKind.CLIENT_FILE}
"""The kinds of objects that an export may name. Other engines read exports without reading any root."""
_EXPORT_KINDS: Final = np.array([_KINDS.index(kind) for kind in OF_EXPORTS])
_CLIENT_METADATA: Final = _KINDS.index(OwnKind.CLIENT_METADATA)
_IDLE_MS: Final = 24 * 3600 * 1000
"""After this time without a commit, a sweep commits while an orphan waits, because only roots advance the horizon."""
_PENDING_PARTS: Final = 8
_DONE_PARTS: Final = 4
"""Pages are joined into the newest one. Waiting pages of the same eighth of the retention are joined, and wait for the
retention again. Finished pages of the same quarter of the orphan age are joined. So there are at most a dozen pages."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One object of the table: its location, length in bytes, and the store's date."""

    location: str
    length: int
    stored_ms: int


class Inventory:
    """The stored objects that a sweep may delete, as hashes, with marks of the roots that reference them."""

    def __init__(self, packed: Sequence[bytes], names: Sequence[int], facts: Sequence[tuple[int, int, int]]) -> None:
        """Make an inventory, for `InventoryNotes.inventory`. A location that was listed twice counts once."""
        order = sorted({item: at for at, item in enumerate(packed)}.values(), key=packed.__getitem__)
        self.hashes = LocationHashes(b"".join(packed[at] for at in order))
        named = np.array([names[at] for at in order], np.uint64)
        self._by_name = np.argsort(named)
        self._names = named[self._by_name]
        columns = np.array([facts[at] for at in order], np.int64).reshape(-1, 3)
        self.kinds, self.lengths, self.stored_ms = columns[:, 0], columns[:, 1], columns[:, 2]
        self._readable = np.zeros(len(order), np.bool_)
        self._expired = np.zeros(len(order), np.bool_)
        self._spelled: dict[int, set[bytes]] = {}

    def reference(self, locations: Iterable[str], *, is_readable: bool) -> None:
        """Mark the objects that a readable root references, or an expired root that still exists.

        Only the last part of a location is compared, case-insensitive. No two objects of Rootline have the same one,
        but a listing may spell folders differently (other case, percent-encoded, another scheme).
        """
        marks = self._readable if is_readable else self._expired
        if not is_readable:
            locations = list(locations)
            self._note_spellings(locations)
        wanted = np.unique(np.fromiter(map(name_hash, locations), np.uint64))
        firsts = np.searchsorted(self._names, wanted, "left")
        for first, end in zip(firsts, np.searchsorted(self._names, wanted, "right"), strict=True):
            marks[self._by_name[first:end]] = True

    def _note_spellings(self, locations: Iterable[str]) -> None:
        """Note spellings in expired roots that differ from the listing. A page condemns all spellings of an object.

        A writer that adds the removed file once more would use the spelling of the root.
        """
        for location in locations:
            named = location_hash(location)
            if self.hashes.index(named) is None:
                wanted = np.uint64(name_hash(location))
                first, end = (int(np.searchsorted(self._names, wanted, side)) for side in ("left", "right"))
                for at in self._by_name[first:end].tolist():
                    self._spelled.setdefault(at, set()).add(named)

    def keep(self, locations: Iterable[str]) -> None:
        """Mark objects as referenced, by their whole locations.

        Exports of one version in several folders have the same last part, so that part alone does not identify one.
        """
        for location in locations:
            at = self.hashes.index(location_hash(location))
            if at is not None:
                self._readable[at] = True

    def unneeded_of(self, names: ForeignNames) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        """The indexes of objects that another table names, and that are not marked as referenced by a readable root."""
        places = self._by_name[np.isin(self._names, names.hashes)]
        return places[~self._readable[places]]

    def keep_foreign(self, names: ForeignNames) -> int:
        """Mark the objects that another table names as referenced. Returns the number of objects newly marked."""
        places = self.unneeded_of(names)
        self._readable[places] = True
        return len(places)

    @property
    def is_referenced(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """A mask of the objects that any existing root references."""
        return self._readable | self._expired

    def orphans(
        self, older_than_ms: int, exports_than_ms: int, client_metadata_than_ms: int
    ) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        """The indexes of objects that no readable root references, and that are old or that an expired root references.

        * `older_than_ms`: an object is old if it was stored before this time.
        * `exports_than_ms`: the same for exported objects. It may be later, because no writer adds them.
        * `client_metadata_than_ms`: the same for metadata of clients.
        """
        older_ms = np.where(np.isin(self.kinds, _EXPORT_KINDS), exports_than_ms, older_than_ms)
        older_ms = np.where(self.kinds == _CLIENT_METADATA, client_metadata_than_ms, older_ms)
        return np.flatnonzero(~self._readable & (self._expired | (self.stored_ms < older_ms)))

    def kind_of(self, place: int) -> OwnKind:
        """The kind of the object at an index."""
        return _KINDS[int(self.kinds[place])]

    def hash_of(self, place: int) -> bytes:
        """The hash of the location of the object at an index."""
        return self.hashes.packed[place * HASH_BYTES : (place + 1) * HASH_BYTES]

    def hashes_of(self, place: int) -> set[bytes]:
        """The hash of the location, and those of its other spellings in expired roots."""
        return {self.hash_of(place), *self._spelled.get(place, ())}

    def holds(self, wanted: bytes) -> int | None:
        """The index of an object by its hash, or `None` if it is not stored."""
        return self.hashes.index(wanted)


class InventoryNotes:
    """Collects the inventory during listing: objects that a sweep may delete, about 60 bytes each.

    `of_clients`: see `own_kind`.
    """

    def __init__(self, *, of_clients: bool = False) -> None:
        self._of_clients = of_clients
        self._packed: list[bytes] = []
        self._names: list[int] = []
        self._facts: list[tuple[int, int, int]] = []

    def add(self, item: Stored) -> None:
        """Add one object, if a sweep may delete it. Add each location once."""
        kind = own_kind(item.location, of_clients=self._of_clients)
        if kind is not None:
            self._packed.append(location_hash(item.location))
            self._names.append(name_hash(item.location))
            self._facts.append((_KINDS.index(kind), item.length, item.stored_ms))

    def inventory(self) -> Inventory:
        """The inventory of all added objects."""
        return Inventory(self._packed, self._names, self._facts)


@dataclass(frozen=True, slots=True)
class Tally:
    """The number of objects and bytes, by kind."""

    objects: Counter[OwnKind] = field(default_factory=Counter)
    bytes: Counter[OwnKind] = field(default_factory=Counter)

    @staticmethod
    def of(inventory: Inventory, places: Iterable[int]) -> Tally:
        """The tally of the objects at `places`."""
        tally = Tally()
        for at in places:
            kind = inventory.kind_of(at)
            tally.objects[kind] += 1
            tally.bytes[kind] += int(inventory.lengths[at])
        return tally


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """A proposed sweep: the new horizon, the locations to condemn, and the digests of pages that are replaced."""

    made_from_version: Version
    made_from_number: int
    horizon_ms: int
    condemned: LocationHashes
    replaces: tuple[bytes, ...]
    tally: Tally

    @property
    def leaf_count(self) -> int:
        """The number of new leaves, which is 0."""
        return 0

    @property
    def entries(self) -> int:
        """The number of condemned locations."""
        return len(self.condemned)

    def write(self, stamp: IntentStamp, definition: TableDefinition) -> WrittenPlan:
        """Make the page to store, and the intent that names it."""
        del definition
        content = CondemnedLocations(self.horizon_ms, self.condemned, self.replaces)
        page, pending = pending_page(CONDEMNED_PAGES, stamp.table_uuid, content)
        reference = page.reference
        named = StoredPage(
            location=reference.location, file_size_in_bytes=reference.size_in_bytes, digest=reference.digest
        )
        intent = stamp.intent(
            IntentKind.SWEEP, self.made_from_version, page=named, read_sequence_number=self.made_from_number
        )
        return WrittenPlan((pending,), intent)


def horizon_of(header: RootHeader, store_ms: int, limits: SweepLimits) -> int:
    """The latest horizon that coordinators accept. It never moves back.

    It is `orphan_age_ms` before the earliest of three times: the log's, the store's, and the head's timestamp.
    """
    return max(
        header.locations.horizon_ms,
        min(counted_ms(header.log.time), header.snapshot.timestamp_ms, store_ms) - limits.orphan_age_ms,
    )


def plan_sweep(
    header: RootHeader,
    pages: Sequence[CondemnedPage],
    inventory: Inventory,
    limits: SweepLimits,
    *,
    store_ms: int,
    has_unread: bool,
) -> SweepPlan | None:
    """The sweep to propose now, or `None` if nothing is due and no new horizon is needed.

    Args:
        header: the head's header, for which the references were read.
        pages: the pages of condemned objects that the header names, in its order.
        inventory: the stored objects, with marks of the references of every existing root.
        limits: the table's limits.
        store_ms: the store's own time now.
        has_unread: whether exports, or tables that adopted files, could not be read. They may name any file that
            other engines read, so no such file is condemned.
    """
    horizon_ms = horizon_of(header, store_ms, limits)
    known = [page.content.locations for page in pages]

    def chosen(older_than_ms: int, exports_than_ms: int = 0, client_metadata_than_ms: int = 0) -> list[int]:
        found = []
        for at in inventory.orphans(older_than_ms, exports_than_ms, client_metadata_than_ms).tolist():
            item = inventory.hash_of(at)
            if has_unread and inventory.kind_of(at) in _OF_EXPORTS:
                continue
            if not any(item in locations for locations in known):
                found.append(at)
            if len(found) == limits.condemned_max:
                break
        return found

    now = chosen(
        header.locations.horizon_ms - CLOCKS_APART_MS,
        store_ms - limits.export_age_ms,
        store_ms - limits.client_metadata_age_ms,
    )
    condemned = [one for at in now for one in inventory.hashes_of(at)]
    done = [is_done(page, inventory, has_unread=has_unread) for page in pages]
    replaces, named = _replaced(header.locations.condemned, pages, done, condemned, horizon_ms, limits, store_ms)
    waiting = chosen(store_ms - limits.orphan_age_ms - CLOCKS_APART_MS)
    is_more = any(inventory.kind_of(at) is not OwnKind.PAGE for at in waiting)
    if is_more and store_ms - header.snapshot.timestamp_ms >= _IDLE_MS:
        horizon_ms = max(horizon_ms, header.locations.horizon_ms + 1)
    forgets = any(item.since_ms < horizon_ms - CLOCKS_APART_MS for item in header.locations.retired.pages)
    # a sweep itself adds old pages, so pages alone must not cause another sweep
    waits = is_more or forgets or (bool(waiting) and HORIZON not in header.snapshot.summary)
    is_rising = waits and horizon_ms > header.locations.horizon_ms
    if not condemned and not replaces and not is_rising:
        return None
    return SweepPlan(
        header.version,
        header.snapshot.sequence_number,
        horizon_ms,
        named,
        replaces,
        Tally.of(inventory, now),
    )


def due_deletions(
    header: RootHeader,
    pages: Sequence[CondemnedPage],
    inventory: Inventory,
    limits: SweepLimits,
    *,
    dated: Mapping[int, int],
    store_ms: int,
    has_unread: bool,
) -> list[int]:
    """The indexes of the condemned objects that may be deleted now.

    Args:
        header: the head's header, read before the inventory and the references.
        pages: the pages of condemned objects that the header names, in its order.
        inventory: the stored objects, with marks of the references of every existing root.
        limits: the table's limits.
        dated: the store's dates (ms) of existing roots by version, and of existing pages by `-1 - index in pages`.
        store_ms: the store's own time now.
        has_unread: see `plan_sweep`. An export or a table may be newer than the condemned page.
    """
    referenced = inventory.is_referenced
    until_ms = store_ms - limits.scan_retention_ms
    settled = max(
        [version for version, at in dated.items() if 0 <= version <= header.version and at <= until_ms] or [-1]
    )
    due: set[int] = set()
    for number, (item, page) in enumerate(zip(header.locations.condemned, pages, strict=True)):
        if not is_due(item, dated.get(-1 - number), dated.get(item.since_version), limits, store_ms, settled):
            continue
        for one in page.content.locations:
            at = inventory.holds(one)
            if at is not None and not referenced[at] and not (has_unread and inventory.kind_of(at) in _OF_EXPORTS):
                due.add(at)
    return sorted(due)


def is_due(
    item: Condemned,
    page_stored_ms: int | None,
    root_stored_ms: int | None,
    limits: SweepLimits,
    store_ms: int,
    settled: int = -1,
) -> bool:
    """Whether the retention of a condemned page has passed.

    * `page_stored_ms`, `root_stored_ms`: the store's dates of the page and of the first root that names it.
    * `settled`: the newest version whose root was stored at least a retention ago. If it is not older than the first
      root that names the page, the retention has passed. Otherwise it must have passed since the latest known date.
    """
    if page_stored_ms is None:
        return False  # the page itself must exist
    if item.since_version <= settled:
        return True
    since_ms = max(item.since_ms, page_stored_ms, root_stored_ms or 0)
    return store_ms >= since_ms + limits.scan_retention_ms


def is_done(page: CondemnedPage, inventory: Inventory, *, has_unread: bool) -> bool:
    """Whether no object of a page remains to be deleted: each is deleted or still referenced."""
    referenced = inventory.is_referenced
    places = (inventory.holds(one) for one in page.content.locations)
    return all(at is None or referenced[at] or (has_unread and inventory.kind_of(at) in _OF_EXPORTS) for at in places)


def _replaced(
    condemned: Sequence[Condemned],
    pages: Sequence[CondemnedPage],
    done: Sequence[bool],
    fresh: Sequence[bytes],
    horizon_ms: int,
    limits: SweepLimits,
    store_ms: int,
) -> tuple[tuple[bytes, ...], LocationHashes]:
    """(digests of replaced pages, locations of the new page). The new page has `fresh`, and those of joined pages."""
    gone: list[bytes] = []
    named = list(fresh)
    for item, page, is_done_with in zip(condemned, pages, done, strict=True):
        parts = limits.orphan_age_ms // _DONE_PARTS if is_done_with else limits.scan_retention_ms // _PENDING_PARTS
        if is_done_with and item.since_ms <= horizon_ms:
            gone.append(item.page.digest)
        elif (
            fresh
            and min(item.since_ms, store_ms) // parts == store_ms // parts
            and len(named) + len(page.content.locations) < LOCATIONS_MAX
        ):
            gone.append(item.page.digest)
            named += page.content.locations
    return tuple(gone), LocationHashes.of(named)


def locations_of(header: RootHeader) -> Iterator[str]:
    """The locations of objects that a header names: definition and pages."""
    yield header.definition.location
    yield from (page.location for page in (*header.ledger.pages, *header.outcomes.pages))
    yield from (item.page.location for item in header.locations.condemned)
    yield from (item.page.location for item in header.locations.retired.pages)
    if header.versions.expiry is not None and header.versions.expiry.kept is not None:
        yield header.versions.expiry.kept.location
