"""The kind `compact_vectors`: move vectors unchanged into Puffin files that a worker wrote.

A manifest vector moves out of the root. The vectors of many data files are joined in a few Puffin files, so that a scan
opens few files. The intent names the vector that each of these replaces.

Owns: which vectors may move, and their rows. Does not own: which moves are worthwhile (`rootline.maintenance`), the
replaced rows of manifest vectors (`manifest_vectors`).
Invariants: No row that a scan returns changes. If a vector changed since the worker read it, by a removal from its leaf
or a delete from its data file, it does not move, and the others of the intent do. A joined vector keeps the sequence
number of the vector it replaces, because it deletes the same rows since the same commit.

Source: format page, "Manifest vectors" and "Deletion vectors". Decision 0034.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyroaring import BitMap

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
from rootline.tree.draft.change import Change, Effect, Replace, StoreVector
from rootline.tree.draft.draft import Draft
from rootline.tree.draft.summary import JOINED_VECTORS
from rootline.tree.rules.file_rules import check_own_location
from rootline.tree.rules.vector_rules import (
    check_added_vector,
    live_positions,
    place_of,
    proven,
    reference_of,
    vector_entry,
    vector_to_read,
)
from rootline.tree.state.live_index import Live

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
    return _Joined(vector, data.entry, current, Row.of(vector_entry(draft, vector, data.entry, numbers), draft.codec))


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
