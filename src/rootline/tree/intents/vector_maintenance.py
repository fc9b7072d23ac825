"""The kinds `compact_vectors` and `convert_equality_deletes`: maintenance that writes deletion vectors.

The first moves vectors unchanged into Puffin files that a worker wrote. A manifest vector moves out of the root. The
vectors of many data files are joined in a few Puffin files, so that a scan opens few files. The intent names the vector
that each of these replaces. The second replaces equality deletes with vectors that delete the same rows.

Owns: which vectors may move, the rules of a conversion, the resulting vectors and rows. Does not own: what is
worthwhile (`rootline.maintenance`), which rows equality deletes delete (`rootline.workers.jobs`), which files they may
reach (`delete_rules`), merging (`vector_rules`), the replaced rows of manifest vectors (`next_root`).
Invariants:
* No row that a scan returns changes, and no root shows the change.
* If a vector changed since the worker read it, by a removal from its leaf or a delete from its data file, it does not
  move, and the others of the intent do. A joined vector keeps the sequence number of the vector it replaces, because it
  deletes the same rows since the same commit.
* A conversion is applied as a whole or not at all. A deleted row stays deleted, whatever was committed after the worker
  read the table.

Theory of a conversion. The worker read the table at sequence number R and searched every file that a delete may reach
for its rows. A file added after R, by a rewrite or a restore, was not searched, but the delete may reach it: some of
its rows would become live. So every live file within reach must be listed by the intent and must have been added by R.
A file that is no longer live, or was added again under its name, needs nothing. Deletes only add up, so any set of them
may be converted without the others.

A vector may have grown since R. Then the two are merged here, and the worker's vector becomes an orphan for the sweep.
If the live vector was added in the same batch, the root must show it as added, with exactly the rows that its intent
deleted. So the conversion's rows are also added to the vector that the file had before the batch, which the root shows
as removed.

Source: format page, "Manifest vectors" and "Deletion vectors". Definitions page, section 4. Decision 0034.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyroaring import BitMap, BitMap64

from rootline.schemas.bytes.root.root_codec import Row
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentType,
    DeletionVector,
    EntryPlace,
    FileFormat,
    Status,
    VersionInfo,
)
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import AddedVector, Intent
from rootline.schemas.intent_rules import check_location
from rootline.tree.draft.batch import Absent, FetchedObjects, Needs
from rootline.tree.draft.change import Add, Change, Effect, MergedVector, Remove, Replace, ShowPrior, StoreVector
from rootline.tree.draft.draft import Draft
from rootline.tree.draft.summary import CONVERTED_DELETES, JOINED_VECTORS
from rootline.tree.proof.file_proof import vector_entry
from rootline.tree.rules.delete_rules import reached_files
from rootline.tree.rules.file_rules import check_own_location
from rootline.tree.rules.isolation_rules import read_number
from rootline.tree.rules.vector_rules import (
    Settled,
    VectorNeed,
    check_added_vector,
    check_keeps,
    live_positions,
    merge,
    merged_entry,
    place_of,
    proven,
    reference_of,
    vector_to_read,
    vectors_to_merge,
    write_merged,
)
from rootline.tree.scan.delete_index import DeleteIndex
from rootline.tree.state.live_index import Live
from rootline.tree.state.table_state import PendingObject

VECTORS_PREFIX: Final = "metadata/vectors/"


def compact_vectors(draft: Draft, intent: Intent, fetched: FetchedObjects) -> Change | Needs:
    """Move manifest vectors, and join vectors of data files.

    Raises:
        Invalid: `vector-invalid`, `location-invalid`, `file-already-live`; `compaction-stale`, every vector changed
            since the worker read it.
    """
    of_leaves = [vector for vector in intent.add_vectors if vector.replaces_vector is None]
    for vector in of_leaves:
        check_location(vector.location)
        if not vector.location.startswith(VECTORS_PREFIX):
            raise Invalid("location-invalid", f"manifest vector {vector.location[:80]!r} is not in {VECTORS_PREFIX}")
    joined = [_joined(draft, vector) for vector in intent.add_vectors if vector.replaces_vector is not None]
    joining = [item for item in joined if item is not None]
    places = {place_of(vector) for vector in of_leaves}
    for item in joining:
        places |= {place_of(item.vector), *vector_to_read(item.current.entry, draft)}
    missing = fetched.missing(places)
    if missing:
        return missing
    vectors = {vector.referenced_file: _stored_vector(draft, vector, _proven(vector, fetched)) for vector in of_leaves}
    stored = [stored for stored in vectors.values() if stored is not None]
    for item in joining:
        item.check_positions(draft, fetched)
    if not (stored or joining):
        raise Invalid(
            "compaction-stale",
            "every vector was replaced or removed since the worker read the table: plan the compaction again",
        )
    replaced = Replace(tuple(item.current for item in joining), tuple(item.row for item in joining))
    return Change.of(Effect.MAINTAINS, replaced, *stored)


def summary_of_joins(draft: Draft) -> dict[str, str]:
    """Keys for the snapshot's summary: the number of joined vectors, which no other key counts."""
    joined = sum(len(edit.by) for edit in draft.accepted(Replace) if _only_joins(edit))
    return {JOINED_VECTORS: str(joined)} if joined else {}


def _only_joins(edit: Replace) -> bool:
    """Whether only vectors are replaced. A rewrite also replaces data files, a conversion equality deletes."""
    types = {live.entry.content_type for live in edit.lives}
    return types == {ContentType.POSITION_DELETE}


@dataclass(frozen=True, slots=True)
class _Joined:
    """A vector that moves to the place of `row`. `current`: the live vector. `data`: its data file."""

    vector: AddedVector
    data: ContentEntry
    current: Live
    row: Row

    def check_positions(self, draft: Draft, fetched: FetchedObjects) -> None:
        """Raises `Invalid` (`vector-invalid`) unless the new blob deletes the same rows."""
        if proven(self.vector, self.data, fetched) != live_positions(self.current.entry, draft, fetched):
            raise Invalid(
                "vector-invalid",
                f"the vector of {self.data.location!r} at {self.vector.offset} of {self.vector.location!r} deletes "
                "other rows than the vector it replaces: write the same positions",
            )


def _joined(draft: Draft, vector: AddedVector) -> _Joined | None:
    """The join of one vector, or `None` if its data file now has another vector or no vector."""
    check_own_location(draft, vector.location)
    check_location(vector.referenced_file, is_live=draft.is_live)
    current = draft.vector_of(vector.referenced_file)
    data = draft.find(EntryPlace(ContentType.DATA, vector.referenced_file))
    if current is None or data is None or reference_of(current) != vector.replaces_vector:
        return None
    info = current.entry.version_info
    if info.snapshot_id == draft.snapshot_id:  # this root must show it as added
        return None
    check_added_vector(draft, vector, data.entry)
    numbers = VersionInfo(Status.EXISTING, draft.snapshot_id, info.sequence_number, draft.sequence_number + 1)
    return _Joined(
        vector, data.entry, current, Row.of(vector_entry(draft.definition, vector, data.entry, numbers), draft.codec)
    )


def _proven(vector: AddedVector, fetched: FetchedObjects) -> BitMap:
    found = fetched.of(place_of(vector))
    if isinstance(found, Absent) or len(found) != vector.cardinality or found.max() >= 2**32:
        raise Invalid(
            "vector-invalid", f"{vector.location!r} at {vector.offset} is not the vector that the intent describes"
        )
    return BitMap(found)


def _stored_vector(draft: Draft, vector: AddedVector, ordinals: BitMap) -> StoreVector | None:
    leaf = draft.live.leaf_rows.get(vector.referenced_file)
    if leaf is None or draft.live.dead.get(vector.referenced_file) != ordinals:
        return None
    entry = ContentEntry(
        content_type=ContentType.MANIFEST_DV,
        location=vector.location,
        file_format=FileFormat.PUFFIN,
        version_info=draft.numbers(Status.EXISTING),
        partition_spec_id=leaf.entry.partition_spec_id,
        record_count=len(ordinals),
        file_size_in_bytes=vector.file_size_in_bytes,
        deletion_vector=DeletionVector(vector.offset, vector.size_in_bytes),
        referenced_file=vector.referenced_file,
    )
    return StoreVector(Row.of(entry, draft.codec), ordinals)


def convert_equality_deletes(draft: Draft, intent: Intent, fetched: FetchedObjects) -> Change | Needs:
    """Replace equality deletes with vectors.

    Raises:
        Invalid: `version-unknown`; `stale-source`, a delete, a file within reach or a vector is not the one that was
            read; `vector-invalid`, `location-invalid`, `file-already-live`; `intent-malformed`, a file to remove is not
            an equality delete; `equality-delete-unread`.
    """
    read = read_number(draft, intent)
    deletes = [_delete_to_convert(draft, item.location, item.content_type, read) for item in intent.remove_files]
    reached = _reached(draft, intent, deletes, read)
    newest = max(_number(live.entry) for live in deletes)
    vectors = [item for vector in intent.add_vectors if (item := _incoming(draft, vector, reached, newest, read))]
    places = {at for item in vectors for at in _wanted(draft, intent, item)}
    missing = fetched.missing(places)
    if missing:
        return missing
    conversion = _Conversion(draft, intent, fetched, deletes)
    for item in vectors:
        conversion.take(item)
    return conversion.change()


def summary_of_conversions(draft: Draft) -> dict[str, str]:
    """Keys for the snapshot's summary: the number of converted deletes, which no other key counts."""
    converted = draft.counts.replaced.equality_deletes
    return {CONVERTED_DELETES: str(converted)} if converted else {}


@dataclass(frozen=True, slots=True)
class _Incoming:
    """A vector to add, its data file, the live vector of that file, and the entry of the new vector.

    `before`: the vector that the next root must show as removed, if it shows `current` as added.
    """

    vector: AddedVector
    data: ContentEntry
    current: Live | None
    entry: ContentEntry
    before: Live | None = None

    @property
    def is_shown(self) -> bool:
        """Whether the next root shows the live vector as added."""
        return (
            self.current is not None
            and self.current.entry.version_info.snapshot_id == (self.entry.version_info.snapshot_id)
            and self.current.entry.version_info.status is Status.ADDED
        )


def _delete_to_convert(draft: Draft, location: str, content_type: ContentType, read: int) -> Live:
    if content_type is not ContentType.EQUALITY_DELETE:
        raise Invalid(
            "intent-malformed", f"{location!r}: kind convert_equality_deletes removes equality deletes, nothing else"
        )
    check_location(location, is_live=draft.is_live)
    live = draft.find(EntryPlace(content_type, location))
    if live is None or _added_at(live.entry) > read:
        raise _stale(f"equality delete {location!r} is not the one that the worker read at sequence number {read}")
    return live


def _reached(draft: Draft, intent: Intent, deletes: Sequence[Live], read: int) -> Mapping[str, ContentEntry]:
    """The live files that one of the deletes may reach. The worker has read each of them."""
    listed = {*intent.replaces, *(vector.referenced_file for vector in intent.add_vectors)}
    found: dict[str, ContentEntry] = {}
    for entry in reached_files(draft, DeleteIndex.of((live.entry for live in deletes), draft.definition, None)):
        if entry.location not in listed or _added_at(entry) > read:
            raise _stale(
                f"{entry.location!r}, added at sequence number {_added_at(entry)}, may contain rows of the equality "
                f"deletes, but the worker, which read {read}, does not list it"
            )
        found[entry.location] = entry
    return found


def _incoming(
    draft: Draft, vector: AddedVector, reached: Mapping[str, ContentEntry], newest: int, read: int
) -> _Incoming | None:
    """Check one vector of the conversion against the live data file.

    Returns `None` if the data file was removed, or was added again after the worker read.
    """
    check_own_location(draft, vector.location)
    check_location(vector.referenced_file, is_live=draft.is_live)
    data = reached.get(vector.referenced_file)
    if data is None:
        live = draft.find(EntryPlace(ContentType.DATA, vector.referenced_file))
        if live is not None and _added_at(live.entry) <= read:
            raise Invalid(
                "vector-invalid",
                f"no converted equality delete can reach {vector.referenced_file!r}: remove its vector from the intent",
            )
        return None
    check_added_vector(draft, vector, data)
    current = draft.vector_of(vector.referenced_file)
    if current is None and vector.replaces_vector is not None:
        raise _stale(f"{vector.referenced_file!r} no longer has the deletion vector that the worker replaces")
    number = max(newest, 0 if current is None else _number(current.entry))
    numbers = VersionInfo(Status.EXISTING, draft.snapshot_id, number, draft.sequence_number + 1)
    item = _Incoming(vector, data, current, vector_entry(draft.definition, vector, data, numbers))
    if not item.is_shown:
        return item
    return replace(item, before=draft.removed_vector_of(data.location))


def _wanted(draft: Draft, intent: Intent, item: _Incoming) -> set[VectorNeed]:
    places = {place_of(item.vector)}
    if item.current is not None:
        places |= vectors_to_merge(intent, item.vector, item.current.entry, draft)
    if item.before is not None:
        places |= vector_to_read(item.before.entry, draft)
    return places


class _Conversion:
    """The change of one conversion, collected vector by vector."""

    def __init__(self, draft: Draft, intent: Intent, fetched: FetchedObjects, deletes: Sequence[Live]) -> None:
        self._draft, self._intent, self._fetched = draft, intent, fetched
        self._replaced, self._removed = list(deletes), list[Live]()
        self._stored: list[ContentEntry] = []
        self._merged: list[MergedVector] = []
        self._before: list[MergedVector] = []

    def take(self, item: _Incoming) -> None:
        """Add a vector. Raises `Invalid` (`vector-invalid`)."""
        draft, fetched, current = self._draft, self._fetched, item.current
        positions = proven(item.vector, item.data, fetched)
        outcome: BitMap64 | Settled = Settled.AS_ADDED
        if current is not None:
            if reference_of(current) == item.vector.replaces_vector:
                check_keeps(positions, current.entry, draft, fetched)
            else:
                outcome = merge(positions, self._intent, item.vector, current.entry, draft, fetched)
        if outcome is Settled.AS_LIVE:
            return
        after = outcome if isinstance(outcome, BitMap64) else positions
        entry = item.entry
        if current is not None and item.is_shown:
            self._removed.append(current)
            self._show_prior_vector(item, after - live_positions(current.entry, draft, fetched))
            entry = replace(entry, version_info=current.entry.version_info)
        elif current is not None:
            self._replaced.append(current)
        if isinstance(outcome, BitMap64):
            self._merged.append(MergedVector(merged_entry(entry, after), after))
        else:
            self._stored.append(entry)

    def change(self) -> Change:
        """The complete change. Merged vectors are encoded into Puffin files."""
        draft = self._draft
        rows = [Row.of(entry, draft.codec) for entry in self._stored]
        before: list[Row] = []
        objects: list[PendingObject] = []
        written: dict[str, dict[str, BitMap64]] = {}
        for merged, found in ((self._merged, rows), (self._before, before)):
            if merged:
                puffin, more = write_merged(merged, draft.codec, draft.salt)
                found += more
                objects.append(puffin)
                written[puffin.location] = {one.entry.referenced_file or "": one.positions for one in merged}
        is_added = [row.entry.version_info.status is Status.ADDED for row in rows]
        existing = tuple(row for row, added in zip(rows, is_added, strict=True) if not added)
        return Change.of(
            Effect.MAINTAINS,
            Remove(tuple(self._removed)),
            Replace(tuple(self._replaced), existing, written),
            Add(tuple(row for row, added in zip(rows, is_added, strict=True) if added)),
            ShowPrior(tuple(before)),
            objects=tuple(objects),
        )

    def _show_prior_vector(self, item: _Incoming, converted: BitMap64) -> None:
        """Build the vector that the change reports as removed: the earlier deleted positions and `converted`.

        `converted`: the positions that the conversion adds to a vector that was itself added in this batch.
        """
        if not converted:
            return
        positions = converted
        numbers = replace(item.entry.version_info, sequence_number=self._number_before(item))
        if item.before is not None:
            positions = converted | live_positions(item.before.entry, self._draft, self._fetched)
        entry = merged_entry(replace(item.entry, version_info=numbers), positions)
        self._before.append(MergedVector(entry, positions))

    def _number_before(self, item: _Incoming) -> int:
        """The data sequence number of the prior vector: at most the newest number that a writer can have read."""
        return min(_number(item.entry), self._draft.read_number_max)


def _added_at(entry: ContentEntry) -> int:
    return entry.version_info.file_sequence_number or 0


def _number(entry: ContentEntry) -> int:
    return entry.version_info.sequence_number or 0


def _stale(reason: str) -> Invalid:
    return Invalid("stale-source", f"{reason}: plan the conversion again")
