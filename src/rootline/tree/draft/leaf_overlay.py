"""Leaves while a batch is applied: the parent's leaves, without removed entries, and the leaves that the batch adds.

Owns: the set of leaves, which entries are live, and lookups of entries. Does not own: rows of the root (`row_overlay`),
the vectors that the next root writes (`manifest_vectors`), counting (`draft`).
Invariants: A dead ordinal stays dead. An entry is found only where it is live.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace

from pyroaring import BitMap

from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.bytes.root.root_codec import Row
from rootline.schemas.content_entry import ContentEntry, EntryPlace, Status
from rootline.schemas.identifiers import SequenceNumber
from rootline.tree.draft.change import IncomingLeaf, is_added_leaf
from rootline.tree.state.leaf_keys import place_key, vector_key
from rootline.tree.state.leaf_lookup import LeafLookup
from rootline.tree.state.live_index import Live, LiveIndex


@dataclass(slots=True)
class RemovedOrdinals:
    """Ordinals removed from one leaf in this batch, and the sequence number of the last intent that removed some."""

    ordinals: BitMap
    number: SequenceNumber


class LeafOverlay:
    """Changes over the leaves of `before`. A new overlay has no changes."""

    def __init__(self, before: LiveIndex) -> None:
        self.before = before
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
            is_new = incoming is not None and incoming.added_tally is not None
            if ordinal is not None and removed is not None and ordinal in removed.ordinals and not is_new:
                return Live(lookup.entry(ordinal), leaf=lookup.location, ordinal=ordinal)
        return None

    def unshow(self, location: str, ordinal: int, number: SequenceNumber) -> None:
        """Turn the removal of an entry into one without a trace, not shown by the next root."""
        removed = self.removed[location]
        removed.ordinals.remove(ordinal)
        if not removed.ordinals:
            del self.removed[location]
        self.move(location, BitMap([ordinal]), number)

    def remove(self, location: str, ordinals: BitMap, number: SequenceNumber) -> None:
        """Remove entries. The next root shows the removal."""
        _more(self.removed, location, ordinals, number)

    def move(self, location: str, ordinals: BitMap, number: SequenceNumber) -> None:
        """Remove entries without a trace."""
        incoming = self.incoming.get(location)
        if incoming is None:
            _more(self.moved, location, ordinals, number)
        else:
            self.incoming[location] = replace(incoming, dead=incoming.dead | ordinals)

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
