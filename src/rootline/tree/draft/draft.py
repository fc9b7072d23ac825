"""The table while a batch is applied: the parent's live set, and what the batch's accepted intents did to it.

Owns: the overlay, and looking through it. Does not own: the rules (`intents`), how it becomes a root
(`next_root`).
Invariants: a later intent sees what the earlier ones left; what a batch adds and removes again leaves no trace;
sequence numbers are handed out one by one, row ids only forward.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace

from pyroaring import BitMap

from rootline.schemas.bytes.leaf.leaf_codec import Leaf
from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.bytes.root.root_codec import Row
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentType,
    EntryPlace,
    Status,
    VersionInfo,
    quick_version_info,
)
from rootline.schemas.identifiers import SequenceNumber, SnapshotId, Version, snapshot_id_of
from rootline.schemas.root_header import Totals
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.draft.change import Change, Effect, IncomingLeaf, MergedVector, StoredManifestVector
from rootline.tree.state.addressable import Addressable
from rootline.tree.state.leaf_keys import place_key, vector_key
from rootline.tree.state.leaf_lookup import LeafLookup
from rootline.tree.state.leaf_tally import tally_of_leaf
from rootline.tree.state.live_index import Live, LiveIndex
from rootline.tree.state.table_state import TableState
from rootline.tree.state.totals import Tally, totals_after

LONG_MAX = 2**63 - 1


def is_added_leaf(leaf: IncomingLeaf | None) -> bool:
    """Whether `leaf` adds entries in this batch, instead of taking them over."""
    return leaf is not None and leaf.brings is not None


class Draft:
    """Made with `on` or `of_new_table`; changed by `accept` only."""

    def __init__(
        self, definition: TableDefinition, codec: EntryCodec, parent: TableState | None, *, is_first: bool = False
    ) -> None:
        """`is_first`: `parent` is no root of the table, but what its root 0 goes on from."""
        self.definition = definition
        self.codec = codec
        self.live = LiveIndex() if parent is None else parent.live
        self.leaves: Mapping[str, Leaf] = {} if parent is None else parent.leaves
        self.totals_before = Totals() if parent is None else parent.header.totals
        self.version = Version(0 if parent is None or is_first else parent.header.version + 1)
        self.adopted = parent if is_first else None
        self.snapshot_id: SnapshotId = snapshot_id_of(definition.table_uuid, self.version)
        self.sequence_number = SequenceNumber(0 if parent is None else parent.header.snapshot.sequence_number)
        self.next_row_id = 0 if parent is None else parent.header.next_row_id
        self.effect = Effect.NOTHING
        self.added_bytes = 0
        self.added: dict[EntryPlace, Row] = {}
        self.removed: dict[EntryPlace, Row] = {}
        self.moved: dict[EntryPlace, Row] = {}
        self.merged: dict[str, MergedVector] = {}
        self.incoming: dict[str, IncomingLeaf] = {}
        self.dropped_leaves: set[str] = set()
        self.removed_ordinals: dict[str, BitMap] = {}
        self.removed_at: dict[str, SequenceNumber] = {}
        self.moved_ordinals: dict[str, BitMap] = {}
        self.moved_at: dict[str, VersionInfo] = {}
        self.stored_vectors: dict[str, StoredManifestVector] = {}
        self.reaffiliate: dict[str, str | None] = {}
        self.reaffiliated: dict[str, Row] = {}
        self.restored: list[Version] = []
        self.restored_at = SequenceNumber(0 if parent is None else parent.header.restored_at)
        self.addressable = Addressable.of(None if parent is None or is_first else parent.header)
        self.read_number_max = self.sequence_number
        self.rewritten: dict[EntryPlace, Row] = {}
        self.rewritten_removed: list[Row] = []
        self.tally_added = Tally()
        self.tally_removed = Tally()
        self.tally_rewritten = Tally()
        self.tally_replaced = Tally()
        self._vectors: dict[str, ContentEntry] = {}

    @staticmethod
    def on(parent: TableState) -> Draft:
        """A draft of the root after `parent`'s."""
        return Draft(parent.definition, parent.root.codec, parent)

    @staticmethod
    def of_new_table(definition: TableDefinition) -> Draft:
        """A draft of root 0."""
        return Draft(definition, EntryCodec.of_definition(definition), None)

    @staticmethod
    def on_adopted(adopted: TableState) -> Draft:
        """A draft of root 0 of a table that goes on from an Iceberg table."""
        return Draft(adopted.definition, adopted.root.codec, adopted, is_first=True)

    @property
    def totals(self) -> Totals:
        """The live totals as the batch leaves them so far."""
        totals = totals_after(self.totals_before, self.tally_added, self.tally_removed)
        return totals_after(totals, self.tally_rewritten, self.tally_replaced)

    @property
    def data_bytes(self) -> int:
        """The live data files' bytes so far."""
        came = self.tally_added.data_bytes + self.tally_rewritten.data_bytes
        return self.totals_before.data_bytes + came - self.tally_removed.data_bytes - self.tally_replaced.data_bytes

    def numbers(self, status: Status = Status.ADDED) -> VersionInfo:
        """Snapshot id and sequence numbers of what the next accepted intent adds."""
        number = self.sequence_number + 1
        return quick_version_info(status, self.snapshot_id, number, number)

    def root_row(self, place: EntryPlace) -> Row | None:
        """The parent's root row at `place`, if it is still live there."""
        row = self.live.rows.get(place)
        return None if row is None or place in self.removed or place in self.moved else row

    def find(self, place: EntryPlace) -> Live | None:
        """The live entry at `place`, as the accepted intents left it."""
        added = self.added.get(place)
        if added is not None:
            return Live(added.entry)
        row = self.rewritten.get(place) or self.root_row(place)
        return Live(row.entry, row=row) if row is not None else self._find_in_leaves(place)

    def vector_of(self, data_location: str) -> Live | None:
        """The live vector of a data file, as the accepted intents left it."""
        added = self._vectors.get(data_location)
        if added is not None:
            return Live(added)
        row = self.live.vectors.get(data_location)
        if row is not None and self.root_row(row.entry.place) is not None:
            return Live(row.entry, row=row)
        return self._vector_in_leaves(data_location)

    def is_live(self, location: str) -> bool:
        """Whether some live entry has exactly this location (vectors of a shared file by their first blob only)."""
        rows = self.live.rows
        for place in ((ContentType.DATA, location, None), (ContentType.EQUALITY_DELETE, location, None)):
            if place in self.added or (place in rows and place not in self.removed and place not in self.moved):
                return True
            if place in self.rewritten:
                return True
        if not self.live.lookups and not self.incoming:
            return False
        return (
            self._ordinal_in_leaves(EntryPlace(ContentType.DATA, location)) is not None
            or self._ordinal_in_leaves(EntryPlace(ContentType.EQUALITY_DELETE, location)) is not None
        )

    def is_listed(self, place: EntryPlace) -> bool:
        """Whether an entry is live at `place`, or stands in one of the table's leaves, dead or not."""
        if self.find(place) is not None:
            return True
        return any(lookup.keys.find(place) is not None for lookup in self._leaves_of(place_key(place)))

    def live_rows(self) -> Iterator[Live]:
        """The live entries outside leaves: the parent's root rows, and what the batch adds."""
        for place, row in self.live.rows.items():
            if place not in self.removed and place not in self.moved:
                yield Live(row.entry, row=row)
        for row in self.rewritten.values():
            yield Live(row.entry, row=row)
        for row in self.added.values():
            yield Live(row.entry)

    def leaf_locations(self) -> Iterator[str]:
        """The leaves that the table has."""
        yield from (location for location in self.live.leaf_rows if location not in self.dropped_leaves)
        yield from self.incoming

    def dead_in(self, leaf: str) -> BitMap:
        """The ordinals of a leaf that are not live any more."""
        incoming = self.incoming.get(leaf)
        dead = self.live.dead.get(leaf, BitMap()) if incoming is None else incoming.dead
        return BitMap.union(dead, self.removed_ordinals.get(leaf, BitMap()), self.moved_ordinals.get(leaf, BitMap()))

    def is_dead(self, leaf: str, ordinal: int) -> bool:
        """Whether an entry of a leaf is not live any more."""
        for gone in (self.removed_ordinals.get(leaf), self.moved_ordinals.get(leaf)):
            if gone is not None and ordinal in gone:
                return True
        incoming = self.incoming.get(leaf)
        return ordinal in incoming.dead if incoming is not None else self.live.is_dead(leaf, ordinal)

    def dead_of(self, leaf: str) -> BitMap:
        """The entries of a leaf of the parent that are not live any more."""
        gone = (self.live.dead.get(leaf), self.removed_ordinals.get(leaf), self.moved_ordinals.get(leaf))
        return BitMap.union(*(found for found in gone if found is not None)) if any(gone) else BitMap()

    def _find_in_leaves(self, place: EntryPlace) -> Live | None:
        found = self._ordinal_in_leaves(place)
        if found is None:
            return None
        lookup, ordinal = found
        return Live(lookup.entry(ordinal), leaf=lookup.location, ordinal=ordinal)

    def _ordinal_in_leaves(self, place: EntryPlace) -> tuple[LeafLookup, int] | None:
        for lookup in self._leaves_of(place_key(place)):
            ordinal = lookup.keys.find(place)
            if ordinal is not None and not self.is_dead(lookup.location, ordinal):
                return lookup, ordinal
        return None

    def _leaves_of(self, key: Hashable) -> Iterator[LeafLookup]:
        yield from self.live.leaves_of(key)
        yield from (incoming.lookup for incoming in self.incoming.values())

    def _vector_in_leaves(self, data_location: str) -> Live | None:
        for lookup in self._leaves_of(vector_key(data_location)):
            ordinal = lookup.keys.find_vector(data_location)
            if ordinal is not None and not self.is_dead(lookup.location, ordinal):
                return Live(lookup.entry(ordinal), leaf=lookup.location, ordinal=ordinal)
        return None

    def accept(self, change: Change) -> SequenceNumber:
        """Take in a change whose every rule has been checked; its sequence number."""
        self.sequence_number = number = SequenceNumber(self.sequence_number + 1)
        if change.effect is not self.effect:
            self.effect |= change.effect
        for live in change.removed:
            self._remove(live, number)
        for live in change.replaced:
            self._replace(live, number)
        for row in change.rewritten:
            self._take_rewritten(row)
        for leaf, ordinals in change.removed_from.items():
            self._remove_from(leaf, ordinals, number)
        for row in change.added:
            self._add(row)
        for merged in change.merged:
            self._add(Row(merged.entry, b""))
            self.merged[merged.entry.referenced_file or ""] = merged
        for row in change.moved:
            self.moved[row.entry.place] = row
        for incoming in change.incoming:
            self._take_leaf(incoming)
        for location, ordinals in change.moved_ordinals.items():
            self.moved_ordinals[location] = self.moved_ordinals.get(location, BitMap()) | ordinals
            self.moved_at[location] = VersionInfo(Status.EXISTING, self.snapshot_id, number, number)
        if change.restored is not None:
            self.restored.append(change.restored)
            self.restored_at = number
        if change.tags is not None:
            self.addressable = self.addressable.with_tags(change.tags)
        if change.reaffiliate:
            self.reaffiliate.update(change.reaffiliate)
        if change.stored_vectors:
            self.stored_vectors.update(change.stored_vectors)
        return number

    def _take_leaf(self, leaf: IncomingLeaf) -> None:
        entry = leaf.row.entry
        self.incoming[entry.location] = leaf
        self.tally_added.count(entry)
        if leaf.brings is not None:
            self.tally_added.take(leaf.brings)
            if entry.first_row_id is not None:
                self.next_row_id = entry.first_row_id + leaf.brings.rows

    def accept_row(self, row: Row) -> SequenceNumber:
        """Take in a change that adds one row and nothing else; its sequence number."""
        self.sequence_number = number = SequenceNumber(self.sequence_number + 1)
        if self.effect is not Effect.ADDS:
            self.effect |= Effect.ADDS
        self._add(row)
        return number

    def place_merged(self, rows: Iterable[Row]) -> None:
        """Put the written rows of merged vectors in the place of the unwritten ones."""
        for row in rows:
            unplaced = self.merged.pop(row.entry.referenced_file or "").entry
            del self.added[unplaced.place]
            self.tally_added.count(unplaced, -1)
            self._add(row)

    def lookup_of(self, location: str) -> LeafLookup | None:
        """The leaf at `location`, of the parent or of this batch, if it is part of the table."""
        incoming = self.incoming.get(location)
        if incoming is not None:
            return incoming.lookup
        return None if location in self.dropped_leaves else self.live.lookups.get(location)

    def belong(self, delete_leaf: ContentEntry, owner: str | None) -> None:
        """Let a delete leaf, named by its root row, belong to `owner` from now on."""
        entry = replace(delete_leaf, referenced_file=owner)
        incoming = self.incoming.get(delete_leaf.location)
        if incoming is not None:
            self.incoming[delete_leaf.location] = replace(incoming, row=Row.of(entry, self.codec))
        else:  # the parent's, which may have added it
            settled = replace(entry, version_info=replace(entry.version_info, status=Status.EXISTING))
            self.reaffiliated[delete_leaf.location] = Row.of(settled, self.codec)

    def drop_leaf(self, location: str) -> None:
        """Take out a leaf none of whose entries is live, or leaves in this batch."""
        self.dropped_leaves.add(location)
        self.tally_removed.count(self.live.leaf_rows[location].entry)

    def _add(self, row: Row) -> None:
        entry = row.entry
        self.added[entry.place] = row
        self.added_bytes += len(row.tail)
        self.tally_added.count(entry)
        if entry.content_type is ContentType.POSITION_DELETE:
            self._vectors[entry.referenced_file or ""] = entry
        elif entry.first_row_id is not None:
            self.next_row_id = max(self.next_row_id, entry.first_row_id + entry.record_count)

    def _remove_from(self, location: str, ordinals: BitMap, number: SequenceNumber) -> None:
        lookup = self.lookup_of(location)
        assert lookup is not None, "a leaf of the table"
        tally = tally_of_leaf(lookup.leaf, BitMap(range(lookup.leaf.length)) - ordinals)
        self.removed_ordinals[location] = self.removed_ordinals.get(location, BitMap()) | ordinals
        self.removed_at[location] = number
        if is_added_leaf(self.incoming.get(location)):
            self.tally_added.take(tally, -1)
        else:
            self.tally_removed.take(tally)

    def _replace(self, live: Live, number: SequenceNumber) -> None:
        """Let an entry that the parent has leave without a trace: what holds its rows comes with the same change."""
        self.tally_replaced.count(live.entry)
        if live.row is not None:
            self.moved[live.entry.place] = live.row
            return
        assert live.leaf is not None, "an entry that the parent has"
        incoming, ordinal = self.incoming.get(live.leaf), BitMap([live.ordinal])
        if incoming is not None:
            self.incoming[live.leaf] = replace(incoming, dead=incoming.dead | ordinal)
        else:
            self.moved_ordinals[live.leaf] = self.moved_ordinals.get(live.leaf, BitMap()) | ordinal
            self.moved_at[live.leaf] = VersionInfo(Status.EXISTING, self.snapshot_id, number, number)

    def _take_rewritten(self, row: Row) -> None:
        entry = row.entry
        self.rewritten[entry.place] = row
        self.added_bytes += len(row.tail)
        self.tally_rewritten.count(entry)
        self.next_row_id = max(self.next_row_id, (entry.first_row_id or 0) + entry.record_count)

    def _remove(self, live: Live, number: SequenceNumber) -> None:
        entry = live.entry
        place = entry.place
        if live.row is not None and live.row is self.rewritten.get(place):
            self.rewritten_removed.append(self.rewritten.pop(place))
            self.tally_removed.count(entry)
        elif live.leaf is not None:
            self.removed_ordinals.setdefault(live.leaf, BitMap()).add(live.ordinal)
            self.removed_at[live.leaf] = number
            if is_added_leaf(self.incoming.get(live.leaf)):
                self.tally_added.count(entry, -1)
            else:
                self.tally_removed.count(entry)
        elif live.row is not None:
            self.removed[place] = live.row
            self.tally_removed.count(entry)
        else:
            del self.added[place]
            self.tally_added.count(entry, -1)
            if entry.content_type is ContentType.POSITION_DELETE:
                self._vectors.pop(entry.referenced_file or "")
                self.merged.pop(entry.referenced_file or "", None)
