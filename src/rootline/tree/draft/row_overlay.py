"""Rows of the root while a batch is applied: the parent's rows, without removed ones, and the rows that the batch adds.

Owns: which rows are live in the root, and which additions and removals the next root shows. Does not own: entries in
leaves (`leaf_overlay`), counting (`draft`).
Invariants: At most one row is live at a place. A row that the batch both adds and removes leaves no trace. A rewritten
row that is removed is shown as removed, because its content was in the table before the batch.
"""

from __future__ import annotations

from collections.abc import Iterator

from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.bytes.root.root_codec import Row
from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace, Status
from rootline.tree.state.live_index import Live, LiveIndex


class RowOverlay:
    """Changes over the rows of `before`. A new overlay has no changes."""

    def __init__(self, before: LiveIndex) -> None:
        self.before = before
        self.new_rows: dict[EntryPlace, Row] = {}
        """Rows that the batch adds: ADDED ones, and EXISTING ones of rewrites."""
        self.new_bytes = 0
        """Bytes of the tails of all rows that were added, before compression. Removed rows are not subtracted."""
        self.removed: dict[EntryPlace, Row] = {}
        """The parent's rows that the next root shows as removed."""
        self.moved: dict[EntryPlace, Row] = {}
        """The parent's rows removed without a trace: a leaf or a rewritten file has their content."""
        self.rewritten_removed: list[Row] = []
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

    def forget(self, place: EntryPlace) -> Row | None:
        """Remove a row that a rewrite or conversion of this batch made, without a trace. `None`: no such row."""
        row = self.new_rows.get(place)
        if row is None or row.entry.version_info.status is not Status.EXISTING:
            return None
        self.take_back(place)
        self.rewritten_removed.pop()
        return row

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
        """Add a row."""
        entry = row.entry
        self.new_rows[entry.place] = row
        self.new_bytes += len(row.tail)
        if entry.content_type is ContentType.POSITION_DELETE:
            self._vectors[entry.referenced_file or ""] = entry

    def encode_in_layout_of(self, codec: EntryCodec) -> None:
        """Encode the new rows in the layout of `codec`, except rows that have no place yet."""
        self.new_rows = {place: row.in_layout_of(codec) if row.tail else row for place, row in self.new_rows.items()}
        self.rewritten_removed = [row.in_layout_of(codec) for row in self.rewritten_removed]

    def take_back(self, place: EntryPlace) -> Row | None:
        """Remove a row that the batch added. `None`: the batch added no row at `place`."""
        row = self.new_rows.pop(place, None)
        if row is None:
            return None
        if row.entry.version_info.status is Status.EXISTING:
            self.rewritten_removed.append(row)
        if place.content_type is ContentType.POSITION_DELETE:
            self._vectors.pop(row.entry.referenced_file or "", None)
        return row
