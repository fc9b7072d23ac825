"""The table while a batch is applied: the parent's live set with the changes of the accepted intents.

Owns: lookups over both, applying changes, the room that is left in the root. Does not own: the rules of each kind
(`intents`), rows and leaves and their counts (`overlays`), the root made from the draft (`next_root`, `next_header`).
Invariants: A later intent sees the changes of earlier ones. Every accepted intent gets the next sequence number. Row
ids only increase. A batch never makes a root that readers reject.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Final, TypeVar, assert_never

from pyroaring import BitMap64

from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.bytes.root.location_pages import CONDEMNED_PAGES, RETIRED_PAGES
from rootline.schemas.bytes.root.retained_page import RETAINED_PAGES
from rootline.schemas.bytes.root.root_codec import Row
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentType,
    EntryPlace,
    Status,
    VersionInfo,
    unchecked_version_info,
)
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import SequenceNumber, SnapshotId, Version, snapshot_id_of
from rootline.schemas.parts.definition import DEFINITION, DefinitionReference
from rootline.schemas.parts.locations import LOCATIONS
from rootline.schemas.parts.name import NAME, NameState
from rootline.schemas.parts.removals import Removals
from rootline.schemas.parts.restores import RESTORES
from rootline.schemas.parts.tags import TAGS
from rootline.schemas.parts.versions import VERSIONS
from rootline.schemas.root_header import Totals
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.draft.change import (
    Add,
    Beginning,
    Change,
    Define,
    Edit,
    Effect,
    Merge,
    MergedVector,
    MoveOrdinals,
    MoveRows,
    Reattach,
    Remove,
    RemoveOrdinals,
    Replace,
    ReplaceTable,
    RestoreVersion,
    SetPart,
    ShowPrior,
    StoreVector,
    TakeLeaf,
)
from rootline.tree.draft.overlays import LeafOverlay, RowOverlay
from rootline.tree.parts.locations import ClosedLocations, RetiredDraft
from rootline.tree.parts.part_rules import INITIAL, PartValues
from rootline.tree.parts.removals import removals_after, removals_of
from rootline.tree.proof.file_proof import RowLimits, limits_of
from rootline.tree.state.addressable import Addressable
from rootline.tree.state.live_index import Live, LiveIndex
from rootline.tree.state.table_state import NO_PAGES, TablePages, TableState
from rootline.tree.state.totals import Counts

LONG_MAX: Final = 2**63 - 1
ROWS_MAX: Final = 200_000
"""The most rows of a root. Less than `root_codec` reads, as DELETED rows and rows of leaves are added."""
ADDED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of the rows that one batch adds, before compression."""
_Kind = TypeVar("_Kind")


class Draft:
    """Made by `on`, `to_plan_on` or `beginning`, changed by `accept`, `accept_row` and `place_merged`."""

    def __init__(
        self,
        parent: TableState | None,
        version: Version,
        definition: TableDefinition,
        parts: PartValues,
        pages: TablePages = NO_PAGES,
    ) -> None:
        self.parent = parent
        """The state that the next root continues: its parent root, or an adopted table."""
        self.table = "" if parent is None else parent.header.table
        self.definition = definition
        self._row_limits = definition, limits_of(definition)
        self.parts = parts
        """The parts of the header after the intents accepted so far, except parts that follow from the whole batch."""
        self.pages = pages
        """The pages that the parts name."""
        self.live = LiveIndex() if parent is None else parent.live
        self.codec = EntryCodec.of_definition(definition) if parent is None else parent.root.codec
        self.version = version
        self.snapshot_id: SnapshotId = snapshot_id_of(definition.table_uuid, version)
        self.sequence_number = SequenceNumber(0 if parent is None else parent.header.snapshot.sequence_number)
        self.read_number_max = self.sequence_number
        """The newest sequence number that a writer can have read."""
        self.next_row_id = 0 if parent is None else parent.header.row_ids.next
        self.removals = removals_of(None if parent is None else parent.header)
        self.counts = Counts(Totals() if parent is None else parent.header.totals)
        self.rows = RowOverlay(self.live, self.counts)
        self.in_leaves = LeafOverlay(self.live, self.counts)
        self.merged: dict[str, MergedVector] = {}
        self.written: dict[str, Mapping[str, BitMap64]] = {}
        """The vectors that conversions wrote in this batch, as in `Replace.vectors`."""
        self._edits: dict[type, list[Any]] = defaultdict(list)
        self.effect = Effect.NOTHING
        self.retired = RetiredDraft()
        self.appended_ms = 0
        """The log's append time of the intent that is being decided."""
        self.log_retention_s = 0
        """Seconds that the log keeps a record."""
        self.file_prefixes: Sequence[str] = ()
        """Absolute locations below which an intent may add data files."""
        self.is_first = False
        """Whether a table begins in this root. A `parent` is then the state of an adopted table, not a root."""
        self._read_parts()

    @staticmethod
    def on(parent: TableState) -> Draft:
        """A draft of the root after `parent`'s. `parent` must be loaded with its pages."""
        header, parts, pages = parent.header, PartValues.in_header(parent.header), parent.known_pages
        draft = Draft(parent, Version(header.version + 1), parent.definition, parts, pages)
        if header.locations.retired:
            draft.retired = RetiredDraft(header.locations.retired, draft.pages.of(RETIRED_PAGES))
        return draft

    @staticmethod
    def to_plan_on(parent: TableState) -> Draft:
        """A draft for plans, which need the live set only. `parent` may be without its pages."""
        parts = PartValues.in_header(parent.header)
        return Draft(parent, Version(parent.header.version + 1), parent.definition, parts)

    @staticmethod
    def beginning(begun: Beginning, before: Draft | None = None) -> Draft:
        """A draft of a table's first root, or of the root that purges it.

        `before`: the draft of the same root so far. `None`: this is root 0 of the name.
        """
        is_first = before is None or before.definition.table_uuid != begun.definition.table_uuid
        parts = INITIAL if before is None or is_first else before.parts
        draft = Draft(
            begun.adopted,
            Version(0) if before is None else before.version,
            begun.definition,
            parts.having(DEFINITION, begun.reference).having(NAME, begun.name),
            NO_PAGES if before is None else before.pages,
        )
        draft.is_first = is_first
        if before is not None:
            draft.next_row_id = before.next_row_id
            draft.sequence_number = draft.read_number_max = before.sequence_number
            draft.removals = Removals(before.sequence_number)
            if not draft.is_first:
                draft.retired = before.retired
            draft.appended_ms, draft.log_retention_s = before.appended_ms, before.log_retention_s
            draft.file_prefixes = before.file_prefixes
        return draft

    @property
    def restored_at(self) -> SequenceNumber:
        """The sequence number of the last restore."""
        return self.parts.of(RESTORES).restored_at

    @property
    def addressable(self) -> Addressable:
        """The versions that an intent may reference."""
        if self.is_first or self.parent is None:
            return Addressable.of(None)
        newest, kept = self.parent.header, self.pages.newest(RETAINED_PAGES)
        return Addressable(newest.table, self.parts.of(VERSIONS).oldest, newest.version, self.parts.of(TAGS), kept)

    @property
    def totals(self) -> Totals:
        """The live totals after the intents accepted so far."""
        return self.counts.totals

    @property
    def salt(self) -> bytes:
        """A part of the names of content-addressed objects, unique to each root of a swept table.

        A late or repeated deletion of a condemned object therefore never deletes a newer object.
        """
        return f"root {self.version}".encode() if self.sweeps else b""

    @property
    def row_limits(self) -> RowLimits:
        """The most rows of a file and of an intent, by the current definition of the draft."""
        if self._row_limits[0] is not self.definition:
            self._row_limits = self.definition, limits_of(self.definition)
        return self._row_limits[1]

    def numbers(self, status: Status = Status.ADDED) -> VersionInfo:
        """Snapshot id and sequence numbers of the entries that the next accepted intent adds."""
        number = self.sequence_number + 1
        return unchecked_version_info(status, self.snapshot_id, number, number)

    def numbers_at(self, number: int, status: Status = Status.EXISTING) -> VersionInfo:
        """Snapshot id and sequence numbers of entries of the intent with sequence number `number`."""
        return unchecked_version_info(status, self.snapshot_id, number, number)

    def with_definition(self, definition: TableDefinition, reference: DefinitionReference) -> Draft:
        """A read-only view of this draft under a changed definition. `self` is unchanged."""
        seen = copy(self)
        seen.definition, seen.codec = definition, EntryCodec.of_definition(definition)
        seen.parts = self.parts.having(DEFINITION, reference)
        return seen

    def find(self, place: EntryPlace) -> Live | None:
        """The live entry at `place`."""
        row = self.rows.at(place)
        if row is not None:
            return Live(row.entry, row=row)
        found = self.in_leaves.find(place)
        if found is None:
            return None
        lookup, ordinal = found
        return Live(lookup.entry(ordinal), leaf=lookup.location, ordinal=ordinal)

    def vector_of(self, data_location: str) -> Live | None:
        """The live vector of a data file."""
        return self.rows.vector_of(data_location) or self.in_leaves.vector_of(data_location)

    def removed_vector_of(self, data_location: str) -> Live | None:
        """The vector that the next root shows as removed from a data file, so far."""
        row = self.rows.removed_vector_of(data_location)
        return self.in_leaves.removed_vector_of(data_location) if row is None else Live(row.entry, row=row)

    @property
    def retired_locations(self) -> ClosedLocations:
        """The locations of files that were rewritten or removed."""
        return ClosedLocations(self.table, self.retired, self.parts.of(RESTORES).through)

    @property
    def swept_locations(self) -> ClosedLocations:
        """The locations that no intent may add, because a sweep condemned them or its horizon has passed them."""
        horizon_ms = self.parts.of(LOCATIONS).horizon_ms
        return ClosedLocations(self.table, condemned=self.pages.of(CONDEMNED_PAGES), horizon_ms=horizon_ms)

    def is_live(self, location: str) -> bool:
        """Whether a live entry has exactly this location (of vectors in a shared Puffin file, only the first blob is
        found).
        """
        new_rows, before = self.rows.new_rows, self.rows.before.rows
        for place in ((ContentType.DATA, location, None), (ContentType.EQUALITY_DELETE, location, None)):
            if place in new_rows or (
                place in before and place not in self.rows.removed and place not in self.rows.moved
            ):
                return True
        if not self.live.lookups and not self.in_leaves.incoming:
            return False
        return (
            self.in_leaves.find(EntryPlace(ContentType.DATA, location)) is not None
            or self.in_leaves.find(EntryPlace(ContentType.EQUALITY_DELETE, location)) is not None
        )

    def is_listed(self, place: EntryPlace) -> bool:
        """Whether an entry is live at `place`, or is in one of the table's leaves, dead or not."""
        return self.find(place) is not None or self.in_leaves.lists(place)

    def live_rows(self) -> Iterator[Live]:
        """The live entries outside leaves."""
        return (Live(row.entry, row=row) for row in self.rows.live())

    def live_equality_deletes(self) -> Iterator[ContentEntry]:
        """The live equality deletes of the root, of the batch and of leaves. A table without any costs nothing."""
        if not self.totals.equality_deletes:
            return
        for place, row in self.live.equality_deletes.items():
            if self.rows.of_parent(place) is not None:
                yield row.entry
        for row in self.rows.new_rows.values():
            if row.entry.content_type is ContentType.EQUALITY_DELETE:
                yield row.entry
        for lookup in self.in_leaves.lookups():
            for ordinal, entry in lookup.equality_deletes:
                if not self.in_leaves.is_dead(lookup.location, ordinal):
                    yield entry

    def has_room(self, rows: int, size_in_bytes: int) -> bool:
        """Whether `rows` more rows fit into the root, whose tails have `size_in_bytes` bytes."""
        return len(self.rows) + rows <= ROWS_MAX and self.rows.new_bytes + size_in_bytes <= ADDED_BYTES_MAX

    def check_room(self, change: Change) -> None:
        """Raises `Invalid` (`root-full`) if the root would have too many rows or bytes with `change`."""
        rows, size = change.room()
        if not self.has_room(rows, size):
            raise Invalid(
                "root-full",
                f"the root would have {rows + len(self.rows)} rows, {size + self.rows.new_bytes} bytes of them new; "
                f"at most {ROWS_MAX} and {ADDED_BYTES_MAX} fit: flush the table, then publish again",
            )

    def accepted(self, kind: type[_Kind]) -> list[_Kind]:
        """The edits of one class that were accepted so far, except rows of `accept_row`."""
        return self._edits.get(kind, [])

    def stored_vectors(self) -> dict[str, StoreVector]:
        """The manifest vectors that move to Puffin files, by leaf."""
        return {edit.leaf: edit for edit in self.accepted(StoreVector)}

    def accept(self, change: Change) -> SequenceNumber:
        """Apply a change that passed every check. Returns its sequence number, which `numbers` gave its rows already.

        The overlays count the rows that they add and remove. `totals` are the parent's totals with these counts.
        """
        self.sequence_number = number = SequenceNumber(self.sequence_number + 1)
        self.effect |= change.effect
        for edit in change.edits:
            self._edits[type(edit)].append(edit)
            self._apply(edit, number)
        if not change.adds_only:
            replaced = change.replaced
            self.retired.note(replaced, number)  # a late copy of an intent that added them is a duplicate
            if not change.starts_over:
                self.removals = removals_after(  # for later intents with serializable isolation
                    self.removals, change.removed, replaced, number, self.definition, self.codec.statistics
                )
        return number

    def accept_row(self, row: Row) -> SequenceNumber:
        """Apply a change that only adds one row. Returns its sequence number."""
        self.sequence_number = number = SequenceNumber(self.sequence_number + 1)
        if self.effect is not Effect.ADDS:
            self.effect |= Effect.ADDS
        self._add(row)
        return number

    def _apply(self, edit: Edit, number: SequenceNumber) -> None:
        match edit:  # in the order of `change.ORDER`, which a change checks
            case Define(definition, reference):
                self._redefine(definition)
                self.parts = self.parts.having(DEFINITION, reference)
            case Remove(lives):
                for live in lives:
                    self._remove(live, number)
            case Replace(lives, by, vectors):
                for live in lives:
                    self._replace(live, number)
                for row in by:
                    self._add(row)
                self.written.update(vectors)
            case RemoveOrdinals(location, ordinals):
                self.in_leaves.remove(location, ordinals, number)
            case Add(rows):
                for row in rows:
                    self._add(row)
            case ShowPrior(rows):
                for row in rows:
                    self._show_prior(row, number)
            case Merge(merged):
                for vector in merged:
                    self._add(Row(vector.entry, b""))
                    self.merged[vector.entry.referenced_file or ""] = vector
            case MoveRows(rows):
                for row in rows:
                    self.rows.move(row)
            case TakeLeaf(leaf):
                self.in_leaves.take(leaf)
                first_row_id = leaf.row.entry.first_row_id
                if leaf.added_tally is not None and first_row_id is not None:  # its rows begin at `next_row_id`
                    self.next_row_id = first_row_id + leaf.added_tally.rows
            case MoveOrdinals(location, ordinals):
                self.in_leaves.move(location, ordinals, number)
            case Reattach() | StoreVector():
                pass  # read when the root is made
            case SetPart(part, value, by_kind):
                self.parts = self.parts.having(part, value)
                for kind, pages in by_kind.items():
                    self.pages = self.pages.having(kind, pages)
                self._read_parts()
            case RestoreVersion():
                self.parts = self.parts.having(RESTORES, replace(self.parts.of(RESTORES), restored_at=number))
            case ReplaceTable():
                self.parts = self.parts.having(RESTORES, replace(self.parts.of(RESTORES), replaced_at=number))
            case _:
                assert_never(edit)

    def place_merged(self, rows: Iterable[Row]) -> None:
        """Replace the rows of merged vectors with rows that state their place in the Puffin file."""
        for row in rows:
            unplaced = self.merged.pop(row.entry.referenced_file or "").entry
            self.rows.remove(unplaced.place)
            self.rows.add(row)

    def _read_parts(self) -> None:
        state = self.parts.of(NAME).state
        self.is_tombstone = state is NameState.TOMBSTONE
        """Whether the table is dropped after the intents accepted so far."""
        self.is_table = state is NameState.TABLE
        """Whether the name is a table after the intents accepted so far."""
        self.sweeps = bool(self.parts.of(LOCATIONS).horizon_ms or self.pages.of(CONDEMNED_PAGES))
        """Whether the table has a horizon, or locations that no intent may add."""

    def _redefine(self, definition: TableDefinition) -> None:
        """Continue under another definition. Rows of the parent are encoded in its layout when the root is made."""
        before, self.codec = self.codec, EntryCodec.of_definition(definition)
        self.definition = definition
        if self.codec.layout == before.layout:
            return
        self.rows.encode_in_layout_of(self.codec)
        self.in_leaves.encode_in_layout_of(self.codec)

    def _add(self, row: Row) -> None:
        self.rows.add(row)
        entry = row.entry
        if entry.first_row_id is not None and entry.content_type is not ContentType.POSITION_DELETE:
            self.next_row_id = max(self.next_row_id, entry.first_row_id + entry.record_count)

    def _remove(self, live: Live, number: SequenceNumber) -> None:
        if live.leaf is not None:
            self.in_leaves.remove_entry(live.leaf, live.ordinal, live.entry, number)
            return
        self.rows.remove(live.entry.place)
        if live.entry.content_type is ContentType.POSITION_DELETE:
            self.merged.pop(live.entry.referenced_file or "", None)

    def _replace(self, live: Live, number: SequenceNumber) -> None:
        if live.leaf is not None:
            self.in_leaves.replace(live.leaf, live.ordinal, live.entry, number)
        else:
            self.rows.replace(live.entry.place)

    def _show_prior(self, row: Row, number: SequenceNumber) -> None:
        """Show `row` as removed, in place of the vector that its data file had before the batch."""
        before = self.removed_vector_of(row.entry.referenced_file or "")
        if before is not None and before.leaf is not None:
            self.in_leaves.unshow(before.leaf, before.ordinal, before.entry, number)
        elif before is not None and before.row is not None:
            self.rows.unshow(before.row)
        self.rows.show_removed(row)
