"""Rows and leaves while a batch is applied: the parent's, without removed ones, and the ones that the batch adds.

Owns: which rows and entries are live, which changes the next root shows, and the counts of both. Does not own: the
order of edits (`draft`), the next root's bytes and the vectors that it writes (`next_root`).
Invariants:
* At most one row is live at a place. An entry is found only where it is live. A dead ordinal stays dead.
* A row that the batch both adds and removes leaves no trace. A rewritten row that is removed is shown as removed,
  because its content was in the table before the batch.
* An overlay counts each of its changes, by the origin of the entry. Nothing else counts them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace

from pyroaring import BitMap

from rootline.schemas.bytes.leaf import place_key
from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.bytes.root.root_codec import Row
from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace, Status
from rootline.schemas.identifiers import SequenceNumber
from rootline.tree.draft.change import IncomingLeaf, is_added_leaf
from rootline.tree.state.aggregates import tally_of_leaf
from rootline.tree.state.leaf_lookup import LeafLookup, vector_key
from rootline.tree.state.live_index import Live, LiveIndex
from rootline.tree.state.totals import Counts


class RowOverlay:
    """Changes over the rows of `before`. A new overlay has no changes."""

    def __init__(self, before: LiveIndex, counts: Counts) -> None:
        self.before, self.counts = before, counts
        self.new_rows: dict[EntryPlace, Row] = {}
        """Rows that the batch adds: ADDED ones, and EXISTING ones of rewrites."""
        self.new_bytes = 0
        """Bytes of the tails of all rows that were added, before compression. Removed rows are not subtracted."""
        self.removed: dict[EntryPlace, Row] = {}
        """The parent's rows that the next root shows as removed."""
        self.moved: dict[EntryPlace, Row] = {}
        """The parent's rows removed without a trace: a leaf or a rewritten file has their content."""
        self.rewritten_removed: list[Row] = []
        """Rows that the next root shows as removed, although its parent does not have them: rewritten ones."""
        self._vectors: dict[str, ContentEntry] = {}

    def __len__(self) -> int:
        """The most rows that the next root can have."""
        return len(self.before.rows) + len(self.new_rows) + len(self.removed)

    def of_parent(self, place: EntryPlace) -> Row | None:
        """The parent's row at `place`, if it is still live."""
        row = self.before.rows.get(place)
        return None if row is None or place in self.removed or place in self.moved else row

    def at(self, place: EntryPlace) -> Row | None:
        """The live row at `place`."""
        return self.new_rows.get(place) or self.of_parent(place)

    def vector_of(self, data_location: str) -> Live | None:
        """The live vector of a data file, if a row of the root is one."""
        new_vector = self._vectors.get(data_location)
        if new_vector is not None:
            return Live(new_vector)
        row = self.before.vectors.get(data_location)
        return Live(row.entry, row=row) if row is not None and self.of_parent(row.entry.place) is not None else None

    def removed_vector_of(self, data_location: str) -> Row | None:
        """The deletion vector of a data file that the next root lists as DELETED, if it was a row of the root."""
        own = (row for row in self.rewritten_removed if row.entry.referenced_file == data_location)
        found = next((row for row in own if row.entry.content_type is ContentType.POSITION_DELETE), None)
        before = self.before.vectors.get(data_location)
        return before if found is None and before is not None and before.entry.place in self.removed else found

    def live(self) -> Iterator[Row]:
        """The live rows: the parent's, then the batch's."""
        for place, row in self.before.rows.items():
            if place not in self.removed and place not in self.moved:
                yield row
        yield from self.new_rows.values()

    def added(self) -> Iterator[Row]:
        """The rows that the next root shows as added."""
        return (row for row in self.new_rows.values() if row.entry.version_info.status is Status.ADDED)

    def rewritten(self) -> Iterator[Row]:
        """The new rows with the status EXISTING, which rewrites and conversions of the batch made."""
        return (row for row in self.new_rows.values() if row.entry.version_info.status is Status.EXISTING)

    def add(self, row: Row) -> None:
        """Add a row: ADDED, which the next root shows, or EXISTING, whose content was in the table before."""
        entry = row.entry
        self.new_rows[entry.place] = row
        self.new_bytes += len(row.tail)
        if entry.content_type is ContentType.POSITION_DELETE:
            self._vectors[entry.referenced_file or ""] = entry
        is_new = entry.version_info.status is Status.ADDED
        (self.counts.added if is_new else self.counts.rewritten).count(entry)

    def remove(self, place: EntryPlace) -> None:
        """Remove the live row at `place`. The next root shows it as removed, unless this batch added it."""
        row = self._take_back(place)
        if row is None:
            row = self.removed[place] = self.before.rows[place]
        elif row.entry.version_info.status is Status.ADDED:
            self.counts.added.count(row.entry, -1)
            return
        else:
            self.rewritten_removed.append(row)
        self.counts.removed.count(row.entry)

    def replace(self, place: EntryPlace) -> None:
        """Remove the live row at `place` without a trace. The same change adds its content elsewhere."""
        row = self._take_back(place)
        if row is not None:
            assert row.entry.version_info.status is Status.EXISTING, "the next root shows ADDED rows"
            self.counts.rewritten.count(row.entry, -1)
        else:
            row = self.moved[place] = self.before.rows[place]
            self.counts.replaced.count(row.entry)

    def move(self, row: Row) -> None:
        """Drop a row of the parent without a trace. A leaf takes over its entry, so the counts stay."""
        self.moved[row.entry.place] = row

    def show_removed(self, row: Row) -> None:
        """Show an EXISTING row as removed that neither the parent nor the batch had as a live row."""
        self.rewritten_removed.append(row)
        self.counts.rewritten.count(row.entry)
        self.counts.removed.count(row.entry)

    def unshow(self, row: Row) -> None:
        """Turn the removal of `row` into one without a trace, not shown by the next root."""
        self.counts.removed.count(row.entry, -1)
        others = [other for other in self.rewritten_removed if other is not row]
        if len(others) < len(self.rewritten_removed):
            self.rewritten_removed = others
            self.counts.rewritten.count(row.entry, -1)
        else:
            self.moved[row.entry.place] = self.removed.pop(row.entry.place)
            self.counts.replaced.count(row.entry)

    def encode_in_layout_of(self, codec: EntryCodec) -> None:
        """Encode the new rows in the layout of `codec`, except rows that have no place yet."""
        self.new_rows = {place: row.in_layout_of(codec) if row.tail else row for place, row in self.new_rows.items()}
        self.rewritten_removed = [row.in_layout_of(codec) for row in self.rewritten_removed]

    def _take_back(self, place: EntryPlace) -> Row | None:
        """The row that the batch added at `place`, no longer live, or `None`."""
        row = self.new_rows.pop(place, None)
        if row is not None and place.content_type is ContentType.POSITION_DELETE:
            self._vectors.pop(row.entry.referenced_file or "", None)
        return row


@dataclass(slots=True)
class RemovedOrdinals:
    """Ordinals removed from one leaf in this batch, and the sequence number of the last intent that removed some."""

    ordinals: BitMap
    number: SequenceNumber


class LeafOverlay:
    """Changes over the leaves of `before`. A new overlay has no changes."""

    def __init__(self, before: LiveIndex, counts: Counts) -> None:
        self.before, self.counts = before, counts
        self.incoming: dict[str, IncomingLeaf] = {}
        self.dropped: set[str] = set()
        self.removed: dict[str, RemovedOrdinals] = {}
        """Entries that the next root shows as removed, by leaf."""
        self.moved: dict[str, RemovedOrdinals] = {}
        """Entries removed without a trace, by leaf of the parent: another leaf or row contains them."""
        self.reaffiliated: dict[str, Row] = {}
        """New root rows of the parent's delete leaves that now belong to another data leaf."""

    def locations(self) -> Iterator[str]:
        """The locations of the table's leaves."""
        yield from (location for location in self.before.leaf_rows if location not in self.dropped)
        yield from self.incoming

    def rows(self) -> Iterator[ContentEntry]:
        """The root rows of the table's leaves."""
        yield from (row.entry for location, row in self.before.leaf_rows.items() if location not in self.dropped)
        yield from (incoming.row.entry for incoming in self.incoming.values())

    def is_added(self, location: str) -> bool:
        """Whether this leaf adds entries in this batch."""
        return is_added_leaf(self.incoming.get(location))

    def lookup(self, location: str) -> LeafLookup | None:
        """The leaf at `location`, of the parent or of this batch, if it is part of the table."""
        incoming = self.incoming.get(location)
        if incoming is not None:
            return incoming.lookup
        return None if location in self.dropped else self.before.lookups.get(location)

    def lookups(self) -> Iterator[LeafLookup]:
        """All leaves of the parent and of the batch, dropped ones included."""
        yield from self.before.lookups.values()
        yield from (incoming.lookup for incoming in self.incoming.values())

    def dead_in(self, location: str) -> BitMap:
        """The dead ordinals of a leaf."""
        incoming = self.incoming.get(location)
        dead = self.before.dead.get(location, _NONE) if incoming is None else incoming.dead
        return BitMap.union(dead, *(removed.ordinals for removed in self._removed_ordinals(location)))

    def is_dead(self, location: str, ordinal: int) -> bool:
        """Whether an entry of a leaf is dead."""
        if any(ordinal in removed.ordinals for removed in self._removed_ordinals(location)):
            return True
        incoming = self.incoming.get(location)
        return ordinal in incoming.dead if incoming is not None else self.before.is_dead(location, ordinal)

    def find(self, place: EntryPlace) -> tuple[LeafLookup, int] | None:
        """The leaf and ordinal of the live entry at `place`."""
        for lookup in self._with_key(place_key(place)):
            ordinal = lookup.keys.find(place)
            if ordinal is not None and not self.is_dead(lookup.location, ordinal):
                return lookup, ordinal
        return None

    def lists(self, place: EntryPlace) -> bool:
        """Whether a leaf has an entry at `place`, dead or not."""
        return any(lookup.keys.find(place) is not None for lookup in self._with_key(place_key(place)))

    def vector_of(self, data_location: str) -> Live | None:
        """The live vector of a data file, if a leaf contains it."""
        for lookup in self._with_key(vector_key(data_location)):
            ordinal = lookup.keys.find_vector(data_location)
            if ordinal is not None and not self.is_dead(lookup.location, ordinal):
                return Live(lookup.entry(ordinal), leaf=lookup.location, ordinal=ordinal)
        return None

    def removed_vector_of(self, data_location: str) -> Live | None:
        """The vector that the next root shows as removed from a data file, if an existing leaf contained it."""
        for lookup in self._with_key(vector_key(data_location)):
            ordinal, removed = lookup.keys.find_vector(data_location), self.removed.get(lookup.location)
            incoming = self.incoming.get(lookup.location)
            if ordinal is None or removed is None or is_added_leaf(incoming):
                continue
            if ordinal in removed.ordinals:
                return Live(lookup.entry(ordinal), leaf=lookup.location, ordinal=ordinal)
        return None

    def take(self, leaf: IncomingLeaf) -> None:
        """Add a leaf to the table."""
        self.incoming[leaf.row.entry.location] = leaf
        self.counts.added.count(leaf.row.entry)
        if leaf.added_tally is not None:
            self.counts.added.take(leaf.added_tally)

    def drop(self, location: str) -> None:
        """Drop a leaf without live entries, from which this batch removed nothing."""
        self.dropped.add(location)
        self.counts.removed.count(self.before.leaf_rows[location].entry)

    def remove(self, location: str, ordinals: BitMap, number: SequenceNumber) -> None:
        """Remove many entries. The next root shows the removal, unless the leaf adds entries in this batch."""
        lookup = self.lookup(location)
        assert lookup is not None, "a leaf of the table"
        tally = tally_of_leaf(lookup.leaf, BitMap(range(lookup.leaf.length)) - ordinals)
        _more(self.removed, location, ordinals, number)
        if self.is_added(location):
            self.counts.added.take(tally, -1)
        else:
            self.counts.removed.take(tally)

    def remove_entry(self, location: str, ordinal: int, entry: ContentEntry, number: SequenceNumber) -> None:
        """Remove one entry. The next root shows the removal, unless the leaf adds entries in this batch."""
        _more(self.removed, location, BitMap([ordinal]), number)
        if self.is_added(location):
            self.counts.added.count(entry, -1)
        else:
            self.counts.removed.count(entry)

    def replace(self, location: str, ordinal: int, entry: ContentEntry, number: SequenceNumber) -> None:
        """Remove one entry without a trace. The same change adds its content elsewhere."""
        self.move(location, BitMap([ordinal]), number)
        self.counts.replaced.count(entry)

    def unshow(self, location: str, ordinal: int, entry: ContentEntry, number: SequenceNumber) -> None:
        """Turn the removal of an entry into one without a trace, not shown by the next root."""
        removed = self.removed[location]
        removed.ordinals.remove(ordinal)
        if not removed.ordinals:
            del self.removed[location]
        self.counts.removed.count(entry, -1)
        self.replace(location, ordinal, entry, number)

    def move(self, location: str, ordinals: BitMap, number: SequenceNumber) -> None:
        """Remove entries without a trace. Another leaf takes them over, so the counts stay."""
        incoming = self.incoming.get(location)
        if incoming is None:
            _more(self.moved, location, ordinals, number)
        else:
            self.incoming[location] = replace(incoming, dead=incoming.dead | ordinals)

    def encode_in_layout_of(self, codec: EntryCodec) -> None:
        """Encode the rows of new leaves in the layout of `codec`."""
        for location, leaf in self.incoming.items():
            self.incoming[location] = replace(leaf, row=leaf.row.in_layout_of(codec))

    def affiliate(self, delete_leaf: ContentEntry, owner: str | None, codec: EntryCodec) -> None:
        """Affiliate a delete leaf, given by its root row, with the data leaf `owner`."""
        entry = replace(delete_leaf, referenced_file=owner)
        incoming = self.incoming.get(delete_leaf.location)
        if incoming is not None:
            self.incoming[delete_leaf.location] = replace(incoming, row=Row.of(entry, codec))
        else:  # a leaf of the parent, whose row may still be ADDED
            settled = replace(entry, version_info=replace(entry.version_info, status=Status.EXISTING))
            self.reaffiliated[delete_leaf.location] = Row.of(settled, codec)

    def _removed_ordinals(self, location: str) -> Iterator[RemovedOrdinals]:
        for removed in (self.removed.get(location), self.moved.get(location)):
            if removed is not None:
                yield removed

    def _with_key(self, key: Hashable) -> Iterator[LeafLookup]:
        yield from self.before.leaves_of(key)
        yield from (incoming.lookup for incoming in self.incoming.values())


def _more(removed: dict[str, RemovedOrdinals], location: str, ordinals: BitMap, number: SequenceNumber) -> None:
    before = removed.get(location)
    if before is None:
        removed[location] = RemovedOrdinals(BitMap(ordinals), number)
    else:
        before.ordinals |= ordinals
        before.number = number


_NONE = BitMap()
