"""The table while a batch is applied: the parent's live set, and what the batch's accepted intents did to it.

Owns: the overlay, and looking through it. Does not own: the rules (`apply_*`), how it becomes a root (`next_root`).
Invariants: a later intent sees what the earlier ones left; what a batch adds and removes again leaves no trace;
sequence numbers are handed out one by one, row ids only forward.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyroaring import BitMap

from rootline.schemas.content_entry import (
    ContentEntry,
    ContentType,
    EntryPlace,
    Status,
    VersionInfo,
    quick_version_info,
)
from rootline.schemas.entry_codec import EntryCodec
from rootline.schemas.identifiers import SequenceNumber, SnapshotId, Version, snapshot_id_of
from rootline.schemas.leaf_codec import Leaf
from rootline.schemas.root_codec import Row
from rootline.schemas.root_header import Totals
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.change import Change, Effect, FlushedLeaf, MergedVector
from rootline.tree.leaf_lookup import LeafLookup
from rootline.tree.live_index import Live, LiveIndex
from rootline.tree.table_state import TableState
from rootline.tree.totals import Tally, totals_after

LONG_MAX = 2**63 - 1


class Draft:
    """Made with `on` or `of_new_table`; changed by `accept` only."""

    def __init__(self, definition: TableDefinition, codec: EntryCodec, parent: TableState | None) -> None:
        self.definition = definition
        self.codec = codec
        self.live = LiveIndex() if parent is None else parent.live
        self.leaves: Mapping[str, Leaf] = {} if parent is None else parent.leaves
        self.totals_before = Totals() if parent is None else parent.header.totals
        self.version = Version(0 if parent is None else parent.header.version + 1)
        self.snapshot_id: SnapshotId = snapshot_id_of(definition.table_uuid, self.version)
        self.sequence_number = SequenceNumber(0 if parent is None else parent.header.snapshot.sequence_number)
        self.next_row_id = 0 if parent is None else parent.header.next_row_id
        self.effect = Effect.NOTHING
        self.added_bytes = 0
        self.added: dict[EntryPlace, Row] = {}
        self.removed: dict[EntryPlace, Row] = {}
        self.moved: dict[EntryPlace, Row] = {}
        self.merged: dict[str, MergedVector] = {}
        self.flushed: dict[str, FlushedLeaf] = {}
        self.dropped_leaves: set[str] = set()
        self.removed_ordinals: dict[str, BitMap] = {}
        self.removed_at: dict[str, SequenceNumber] = {}
        self.tally_added = Tally()
        self.tally_removed = Tally()
        self._vectors: dict[str, ContentEntry] = {}

    @staticmethod
    def on(parent: TableState) -> Draft:
        """A draft of the root after `parent`'s."""
        return Draft(parent.definition, parent.root.codec, parent)

    @staticmethod
    def of_new_table(definition: TableDefinition) -> Draft:
        """A draft of root 0."""
        return Draft(definition, EntryCodec.of_definition(definition), None)

    @property
    def totals(self) -> Totals:
        """The live totals as the batch leaves them so far."""
        return totals_after(self.totals_before, self.tally_added, self.tally_removed)

    @property
    def data_bytes(self) -> int:
        """The live data files' bytes so far."""
        return self.totals_before.data_bytes + self.tally_added.data_bytes - self.tally_removed.data_bytes

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
        row = self.root_row(place)
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
        if not self.live.lookups and not self.flushed:
            return False
        return (
            self._ordinal_in_leaves(EntryPlace(ContentType.DATA, location)) is not None
            or self._ordinal_in_leaves(EntryPlace(ContentType.EQUALITY_DELETE, location)) is not None
        )

    def is_dead(self, leaf: str, ordinal: int) -> bool:
        """Whether an entry of a leaf is not live any more."""
        removed = self.removed_ordinals.get(leaf)
        if removed is not None and ordinal in removed:
            return True
        flushed = self.flushed.get(leaf)
        return ordinal in flushed.masked if flushed is not None else self.live.is_dead(leaf, ordinal)

    def _find_in_leaves(self, place: EntryPlace) -> Live | None:
        found = self._ordinal_in_leaves(place)
        if found is None:
            return None
        lookup, ordinal = found
        return Live(lookup.entry(ordinal), leaf=lookup.location, ordinal=ordinal)

    def _ordinal_in_leaves(self, place: EntryPlace) -> tuple[LeafLookup, int] | None:
        for lookup in (*self.live.lookups.values(), *(flushed.lookup for flushed in self.flushed.values())):
            ordinal = lookup.ordinal_of(place)
            if ordinal is not None and not self.is_dead(lookup.location, ordinal):
                return lookup, ordinal
        return None

    def _vector_in_leaves(self, data_location: str) -> Live | None:
        for lookup in (*self.live.lookups.values(), *(flushed.lookup for flushed in self.flushed.values())):
            ordinal = lookup.vectors.get(data_location)
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
        for row in change.added:
            self._add(row)
        for merged in change.merged:
            self._add(Row(merged.entry, b""))
            self.merged[merged.entry.referenced_file or ""] = merged
        for row in change.moved:
            self.moved[row.entry.place] = row
        for flushed in change.flushed:
            self.flushed[flushed.row.entry.location] = flushed
            self.tally_added.count(flushed.row.entry)
        return number

    def place_merged(self, rows: Iterable[Row]) -> None:
        """Put the written rows of merged vectors in the place of the unwritten ones."""
        for row in rows:
            unplaced = self.merged.pop(row.entry.referenced_file or "").entry
            del self.added[unplaced.place]
            self.tally_added.count(unplaced, -1)
            self._add(row)

    def drop_leaf(self, location: str) -> None:
        """Take out a leaf all of whose entries were dead in the parent already."""
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
            self.next_row_id = entry.first_row_id + entry.record_count

    def _remove(self, live: Live, number: SequenceNumber) -> None:
        entry = live.entry
        place = entry.place
        if live.leaf is not None:
            self.removed_ordinals.setdefault(live.leaf, BitMap()).add(live.ordinal)
            self.removed_at[live.leaf] = number
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
