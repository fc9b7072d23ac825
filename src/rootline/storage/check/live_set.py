"""The live files of each version, followed from root to root, independently of the code that makes roots.

An *ordinal* is the position of an entry in its leaf. A *manifest vector* lists the ordinals of a leaf's dead entries.

Owns: the live set during a check, and the inserted and deleted entries of one step. Does not own: rules about single
entries and vectors (`entries`), reading objects (`objects`), headers (`header`).
Invariants: a step costs as much as its changes, not as the table's size. Nothing is reported about leaves that cannot
be read.

Source: invariants page, numbers 4, 5, 10, 11. Format page, "Manifest vectors".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pyroaring import BitMap

from rootline.schemas.bytes.leaf_columns import inherited_from
from rootline.schemas.bytes.root.root_codec import Root, Row
from rootline.schemas.bytes.vector_codec import decode_inline
from rootline.schemas.content_entry import (
    FILE_TYPES,
    LEAF_TYPES,
    ContentEntry,
    ContentType,
    EntryPlace,
    Status,
    VersionInfo,
)
from rootline.schemas.errors import Corrupt
from rootline.schemas.root_header import Totals
from rootline.storage.check.findings import FindingBook
from rootline.storage.check.objects import LeafFacts, LiveKey, ObjectCheck, key_of
from rootline.tree.proof.adoption import is_adopted
from rootline.tree.state.totals import Tally, totals_after


@dataclass(slots=True)
class Step:
    """The change of one root. An entry that moved between root and leaf is both in `inserted` and in `deleted`."""

    root: Root
    key: str
    rows: list[ContentEntry] = field(default_factory=list)  # new or changed in this version
    changing: list[ContentEntry] = field(default_factory=list)  # rows with status ADDED or DELETED
    new_leaves: list[ContentEntry] = field(default_factory=list)  # their rows are new or changed
    inserted: dict[LiveKey, ContentEntry] = field(default_factory=dict)
    deleted: dict[LiveKey, ContentEntry] = field(default_factory=dict)
    is_first: bool = False
    is_whole: bool = True  # every changed leaf could be read

    @property
    def added(self) -> dict[LiveKey, ContentEntry]:
        """Entries that are live now and were not live before."""
        return {key: entry for key, entry in self.inserted.items() if key not in self.deleted}

    @property
    def removed(self) -> dict[LiveKey, ContentEntry]:
        """Entries that were live before and are not live now."""
        return {key: entry for key, entry in self.deleted.items() if key not in self.inserted}


class LiveSet:
    """The live set of the last version that was followed."""

    def __init__(self, objects: ObjectCheck, book: FindingBook) -> None:
        self._objects, self._book = objects, book
        self._clear()

    def _clear(self) -> None:
        self.rows: dict[EntryPlace, ContentEntry] = {}
        self.vectors: dict[str, set[EntryPlace]] = {}  # data file → root rows of its vectors
        self.leaf_rows: dict[str, ContentEntry] = {}
        self.manifest_vectors: dict[str, list[ContentEntry]] = {}
        self.dead: dict[str, BitMap] = {}
        self._stored: dict[tuple[str, int], BitMap | None] = {}  # manifest vectors in Puffin files
        self.facts: dict[str, LeafFacts] = {}
        self._leafless: set[str] = set()  # leaves that this root shows as DELETED, together with a vector
        self._tally = Tally()

    @property
    def is_whole(self) -> bool:
        """Whether every live leaf could be read."""
        return self.facts.keys() == self.leaf_rows.keys()

    @property
    def totals(self) -> Totals:
        """Totals recomputed from the live set. They are correct only while `is_whole`."""
        return totals_after(Totals(), self._tally, Tally())

    def live_ordinals(self, location: str) -> BitMap:
        """The ordinals of the live entries of a readable leaf."""
        facts = self.facts[location]
        return BitMap(range(len(facts.leaf))) - self.dead.get(location, _NONE) - facts.shown_deleted

    @property
    def stored_vectors(self) -> dict[tuple[str, int], BitMap]:
        """The readable manifest vectors in Puffin files."""
        return {at: ordinals for at, ordinals in self._stored.items() if ordinals is not None}

    def shows_removals_of(self, location: str) -> bool:
        """Whether the followed root has a new manifest vector of the leaf at `location`."""
        vectors = self.manifest_vectors.get(location, ())
        return any(vector.version_info.status is Status.ADDED for vector in vectors)

    def is_live_in(self, location: str, place: EntryPlace) -> bool:
        """Whether `place` is a live entry of the readable leaf at `location`."""
        ordinal = self.facts[location].leaf.ordinal_of(place)
        return ordinal is not None and ordinal not in self.dead.get(location, _NONE)

    def places_of(self, place: EntryPlace) -> list[str]:
        """The objects in which the entry at `place` is live: `the root` or leaves. A sound table has exactly one."""
        found = ["the root"] if place in self.rows else []
        return found + [location for location in self.facts if self.is_live_in(location, place)]

    def find_data(self, location: str) -> ContentEntry | None:
        """The live data file at `location`."""
        place = EntryPlace(ContentType.DATA, location)
        if place in self.rows:
            return self.rows[place]
        for leaf_location, facts in self.facts.items():
            ordinal = facts.leaf.ordinal_of(place)
            if ordinal is not None and ordinal not in self.dead.get(leaf_location, _NONE):
                return facts.leaf.entry(ordinal)
        return None

    def vectors_of(self, data_location: str) -> list[EntryPlace]:
        """All live vectors of a data file."""
        found = list(self.vectors.get(data_location, ()))
        for location, facts in self.facts.items():
            dead = self.dead.get(location, _NONE)
            found += [facts.keys[at].place for at in facts.targets.get(data_location, ()) if at not in dead]
        return found

    async def follow(self, old: Root | None, new: Root, key: str) -> Step:
        """Advance from `old` to `new`, whose object key is `key`. If `old` is `None`, restart with `new`."""
        step = Step(new, key, is_first=old is None)
        if old is None:
            self._clear()
        leaving, coming = _changed_rows(old, new)
        step.rows = [row.entry for row in coming]
        step.changing = [row.entry for row in new.rows if row.entry.version_info.status is not Status.EXISTING]
        touched = self._take_out(step, _live(leaving))
        touched |= self._take_in(step, _live(coming)) | self._leafless
        for row in coming:
            await self._read_stored(row.entry)
        before = {location: self.leaf_rows.get(location) for location in touched}
        self._replace_leaf_rows(step, _live(leaving), _live(coming))
        self._leafless = set()
        for location in sorted(touched):
            await self._follow_leaf(step, location, before[location])
        return step

    def _take_out(self, step: Step, entries: Iterable[ContentEntry]) -> set[str]:
        touched: set[str] = set()
        for entry in entries:
            if entry.content_type in FILE_TYPES:
                self.rows.pop(entry.place, None)
                self._tally.count(entry, -1)
                step.deleted[key_of(entry)] = entry
                if entry.content_type is ContentType.POSITION_DELETE:
                    self.vectors.get(entry.referenced_file or "", set()).discard(entry.place)
            else:
                touched.add(_leaf_of(entry))
                if entry.content_type is ContentType.MANIFEST_DV:
                    self.manifest_vectors[_leaf_of(entry)].remove(entry)
        return touched

    def _take_in(self, step: Step, entries: Iterable[ContentEntry]) -> set[str]:
        touched: set[str] = set()
        for entry in entries:
            if entry.content_type in FILE_TYPES:
                if entry.place in self.rows:
                    self._book.add(step.key, "entry-doubled", f"{_named(entry)} has two live rows")
                self.rows[entry.place] = entry
                self._tally.count(entry)
                step.inserted[key_of(entry)] = entry
                if entry.content_type is ContentType.POSITION_DELETE:
                    self.vectors.setdefault(entry.referenced_file or "", set()).add(entry.place)
            else:
                touched.add(_leaf_of(entry))
                if entry.content_type is ContentType.MANIFEST_DV:
                    self.manifest_vectors.setdefault(_leaf_of(entry), []).append(entry)
        return touched

    def _replace_leaf_rows(self, step: Step, leaving: Iterable[ContentEntry], coming: Iterable[ContentEntry]) -> None:
        for entry in leaving:
            if entry.content_type in LEAF_TYPES and self.leaf_rows.pop(entry.location, None) is not None:
                self._tally.count(entry, -1)
        for entry in coming:
            if entry.content_type in LEAF_TYPES:
                if entry.location in self.leaf_rows:
                    self._book.add(step.key, "entry-doubled", f"{_named(entry)} has two live rows")
                    continue
                self.leaf_rows[entry.location] = entry
                step.new_leaves.append(entry)
                self._tally.count(entry)

    async def _follow_leaf(self, step: Step, location: str, row_before: ContentEntry | None) -> None:
        row, dead_before = self.leaf_rows.get(location), self.dead.pop(location, _NONE)
        dead = self._union_of_vectors(step, location)
        if row is None:
            facts = self.facts.pop(location, None)
            is_shown = any(entry.location == location for entry in step.changing if entry.content_type in LEAF_TYPES)
            if self.manifest_vectors.get(location) and is_shown:
                self._leafless.add(location)
            elif self.manifest_vectors.get(location):
                self._book.add(
                    step.key, "vector-mismatch", f"a manifest vector is of {location}, which is not one of its leaves"
                )
        else:
            definition = await self._objects.definition(step.root.header) if is_adopted(row) else None
            facts = await self._objects.leaf(row, definition)
            self.dead[location] = dead
        if facts is None:
            step.is_whole = step.is_whole and row is None and row_before is None
            return
        if row is not None:
            self.facts[location] = facts
        self._check_vectors(step, location, facts)
        every = BitMap(range(len(facts.leaf))) - facts.shown_deleted
        live_before = every - dead_before if row_before is not None else _NONE
        live = every - dead if row is not None else _NONE
        if row is not None and row_before is not None and inherited_from(row) != inherited_from(row_before):
            reason = f"the row of {location} states different numbers than before, which its entries inherit"
            self._book.add(step.key, "entry-changed", reason)
        if row is not None and row_before is not None and not dead_before <= dead:
            back = dead_before - dead
            self._book.add(
                step.key, "vector-mismatch", f"entries of {location} became live again, the first is {back.min()}"
            )
        self._move(step, facts, live_before - live, step.deleted, -1)
        self._move(step, facts, live - live_before, step.inserted, 1)

    def _move(
        self, step: Step, facts: LeafFacts, ordinals: BitMap, into: dict[LiveKey, ContentEntry], times: int
    ) -> None:
        if len(ordinals) > 64:
            entries: Iterator[tuple[int, ContentEntry]] = enumerate(facts.leaf.entries())
        else:
            entries = ((ordinal, facts.leaf.entry(ordinal)) for ordinal in ordinals)
        for ordinal, entry in entries:
            if ordinal in ordinals:
                self._tally.count(entry, times)
                into[facts.keys[ordinal]] = entry

    def _union_of_vectors(self, step: Step, location: str) -> BitMap:
        dead = BitMap()
        for manifest_vector in self.manifest_vectors.get(location, ()):
            dead |= self.bits_of(step, manifest_vector)
        return dead

    async def _read_stored(self, entry: ContentEntry) -> None:
        """Read a manifest vector in a Puffin file. A fault becomes a finding."""
        vector = entry.deletion_vector
        if entry.content_type is ContentType.MANIFEST_DV and vector is not None and vector.inline_content is None:
            self._stored[entry.location, vector.offset or 0] = await self._objects.manifest_vector(entry)

    def bits_of(self, step: Step, manifest_vector: ContentEntry) -> BitMap:
        """The ordinals in a manifest vector. If it cannot be read, the result is empty, and a finding is added."""
        vector = manifest_vector.deletion_vector
        inline = None if vector is None else vector.inline_content
        name = f"manifest vector of {_leaf_of(manifest_vector)}"
        if inline is None:
            stored = self._stored.get((manifest_vector.location, -1 if vector is None else vector.offset or 0))
            step.is_whole = step.is_whole and stored is not None
            return BitMap() if stored is None else stored
        try:
            return decode_inline(inline, name=name, cardinality=manifest_vector.record_count)
        except Corrupt as error:
            self._book.add_error(step.key, error)
            step.is_whole = False
            return BitMap()

    def _check_vectors(self, step: Step, location: str, facts: LeafFacts) -> None:
        manifest_vectors = self.manifest_vectors.get(location, [])
        for manifest_vector in manifest_vectors:
            bits = self.bits_of(step, manifest_vector)
            if len(bits) and bits.max() >= len(facts.leaf):
                reason = f"the manifest vector of {location} has ordinal {bits.max()} of {len(facts.leaf)} entries"
                self._book.add(step.key, "vector-mismatch", reason)
            if manifest_vector.partition_spec_id not in facts.specs:
                reason = (
                    f"the manifest vector of {location} is of spec {manifest_vector.partition_spec_id}, not the leaf's"
                )
                self._book.add(step.key, "vector-mismatch", reason)


_NONE = BitMap()


def _changed_rows(old: Root | None, new: Root) -> tuple[list[Row], list[Row]]:
    """(rows only in `old`, rows only in `new`). Rows are equal if their bytes and the schemas of both roots are."""
    if old is None or old.codec != new.codec:
        return [] if old is None else list(old.rows), list(new.rows)
    kept = {block.digest for block in old.blocks} & {block.digest for block in new.blocks}
    leaving = [row for block in old.blocks if block.digest not in kept for row in block.rows]
    coming: list[Row] = []
    unmatched = Counter((row.entry.version_info, row.tail) for row in leaving)
    for block in new.blocks:
        if block.digest in kept:
            continue
        for row in block.rows:
            same = (row.entry.version_info, row.tail)
            if unmatched[same] > 0:
                unmatched[same] -= 1
            else:
                coming.append(row)
    return [row for row in leaving if _took(unmatched, row)], coming


def _took(unmatched: Counter[tuple[VersionInfo, bytes]], row: Row) -> bool:
    """Whether `row` is in the multiset `unmatched`. Removes one occurrence."""
    same = (row.entry.version_info, row.tail)
    if unmatched[same] == 0:
        return False
    unmatched[same] -= 1
    return True


def _live(rows: Iterable[Row]) -> list[ContentEntry]:
    return [row.entry for row in rows if row.entry.version_info.status is not Status.DELETED]


def _leaf_of(entry: ContentEntry) -> str:
    """The location of the leaf that a row of the root names, or whose dead entries a manifest vector lists."""
    is_vector = entry.content_type is ContentType.MANIFEST_DV
    return (entry.referenced_file if is_vector else None) or entry.location


def _named(entry: ContentEntry) -> str:
    return f"{entry.content_type.name} {entry.location}"
