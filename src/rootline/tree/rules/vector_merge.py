"""Prove the vector that an intent adds, and merge it with the one that is live by now.

Owns: what must be fetched, when a merge is allowed, and its result. Does not own: the blob (`merged_puffin`).
Invariants: the result holds every position of the live vector and every one that the intent is the first to delete;
what the writer read as deleted and a restore has brought back since stays; an intent that also adds files merges only
if its own new positions are disjoint from those deleted since it read (else two updates of one row would both land).

Source: protocol page, section 2, "Validation", `row_delta`.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from pyroaring import BitMap64

from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.intent import AddedVector, Intent, VectorReference
from rootline.schemas.object_keys import is_absolute
from rootline.tree.draft.batch import FetchedObjects, VectorAt
from rootline.tree.draft.draft import Draft

MERGED_LOCATION: Final = "\0merged/"
"""Begins the location of a merged vector until its Puffin is written; no real location can begin so."""


class Settled(Enum):
    """A merge that needs no new blob."""

    AS_ADDED = auto()
    AS_IT_WAS = auto()


def place_of(vector: AddedVector) -> VectorAt:
    """Where the vector that an intent adds must be, every byte of it said."""
    return VectorAt(vector.location, vector.offset, vector.size_in_bytes, vector.file_size_in_bytes)


def wanted(intent: Intent, vector: AddedVector, current: ContentEntry, draft: Draft) -> set[VectorAt]:
    """What must be read besides the added vector; one that this batch merged itself is at hand.

    Raises:
        Invalid: `row-conflict`, the writer replaces an adopted table's vector that no leaf lists any more: an intent
            cannot make anybody read where it pleases.

    """
    places = vector_to_read(current, draft)
    read = vector.replaces_vector
    if read is not None and all((at.location, at.offset) != (read.location, read.offset) for at in places):
        if not _may_read(read, draft):
            raise Invalid(
                "row-conflict",
                f"the vector of {current.referenced_file!r} that the writer read, {read.location!r}, has left the "
                "table: read the table again, and delete the rows that are still there",
            )
        places.add(VectorAt(read.location, read.offset))
    return places


def seen_to_compare(seen: VectorReference, current: ContentEntry, draft: Draft) -> set[VectorAt]:
    """The places of both vectors of a data file, if they may delete the same rows. Empty if they cannot be compared.

    A compaction of vectors changes the place of a vector and nothing else, so a writer may have seen the old place.
    """
    if not _may_read(seen, draft):
        return set()
    return vector_to_read(current, draft) | {VectorAt(seen.location, seen.offset)}


def deletes_as_seen(seen: VectorReference, current: ContentEntry, draft: Draft, fetched: FetchedObjects) -> bool:
    """Whether the live vector of a data file deletes the rows that the writer saw as deleted."""
    return fetched.vectors[VectorAt(seen.location, seen.offset)] == live_positions(current, draft, fetched)


def _may_read(read: VectorReference, draft: Draft) -> bool:
    """Whether a vector that a writer names may be read: an absolute one only if a leaf of the table lists it."""
    place = EntryPlace(ContentType.POSITION_DELETE, read.location, read.offset)
    return not is_absolute(read.location) or draft.is_listed(place)


def proven(vector: AddedVector, data: ContentEntry, fetched: FetchedObjects) -> BitMap64:
    """The positions of an added vector.

    Raises:
        Invalid: `vector-invalid`, it cannot be read, or is not what the intent says.

    """
    positions = _read(fetched, place_of(vector), vector.cardinality)
    if positions.max() >= data.record_count:
        raise Invalid(
            "vector-invalid",
            f"the vector of {data.location!r} deletes row {positions.max()}, the file has {data.record_count} rows",
        )
    return positions


def merge(
    ours: BitMap64,
    intent: Intent,
    vector: AddedVector,
    current: ContentEntry,
    draft: Draft,
    fetched: FetchedObjects,
) -> BitMap64 | Settled:
    """The live vector and what the intent adds to the one it read; `AS_ADDED`, `AS_IT_WAS` when that is one of them.

    Raises:
        Invalid: `vector-invalid`, one cannot be read or does not agree with its entry; `row-conflict`.

    """
    target = current.referenced_file or ""
    theirs = live_positions(current, draft, fetched)
    base = BitMap64()
    if vector.replaces_vector is not None:
        base = _read(fetched, VectorAt(vector.replaces_vector.location, vector.replaces_vector.offset), None)
    if adds_files(intent):
        both = (ours - base) & (theirs - base)
        if both:
            raise Invalid(
                "row-conflict",
                f"row {both.min()} of {target!r} (and {len(both) - 1} more) was deleted by another intent "
                "after the writer read",
            )
    union = theirs | (ours - base)
    if union == theirs:
        return Settled.AS_IT_WAS
    return Settled.AS_ADDED if union == ours else union


def check_keeps(ours: BitMap64, current: ContentEntry, draft: Draft, fetched: FetchedObjects) -> None:
    """A vector that replaces the live one holds all its positions: else deleted rows would come back.

    Raises:
        Invalid: `vector-invalid`.

    """
    dropped = live_positions(current, draft, fetched) - ours
    if dropped:
        raise Invalid(
            "vector-invalid",
            f"the vector of {current.referenced_file!r} lacks row {dropped.min()} (and {len(dropped) - 1} more) of the "
            "one it replaces: a vector holds all deleted positions",
        )


def vector_to_read(entry: ContentEntry, draft: Draft) -> set[VectorAt]:
    """Where a vector of the table is, unless this batch wrote it itself."""
    return {place_of_vector(entry)} if _at_hand(entry, draft) is None else set()


def live_positions(current: ContentEntry, draft: Draft, fetched: FetchedObjects) -> BitMap64:
    """What a vector of the table deletes. Raises `Invalid` (`vector-invalid`)."""
    known = _at_hand(current, draft)
    return known if known is not None else _read(fetched, place_of_vector(current), current.record_count)


def _at_hand(entry: ContentEntry, draft: Draft) -> BitMap64 | None:
    """The positions of a vector that this batch wrote itself: it may not be stored yet."""
    target = entry.referenced_file or ""
    merged = draft.merged.get(target)
    if merged is not None and merged.entry.place == entry.place:
        return merged.positions
    return draft.written.get(entry.location, {}).get(target)


def adds_files(intent: Intent) -> bool:
    """Whether an intent adds data files, by name or in leaves."""
    leaves = (manifest.content_type for manifest in intent.add_manifests)
    return bool(intent.add_data_files) or ContentType.DATA_MANIFEST in leaves


def place_of_vector(entry: ContentEntry) -> VectorAt:
    """Where a vector is stored, with its exact length. Raises `Corrupt` when its entry does not say."""
    stored = entry.deletion_vector
    if stored is None or stored.offset is None or stored.size_in_bytes is None or entry.file_size_in_bytes is None:
        raise Corrupt("vector-corrupt", f"the entry of {entry.location!r} does not say where its vector is")
    return VectorAt(entry.location, stored.offset, stored.size_in_bytes, entry.file_size_in_bytes)


def _read(fetched: FetchedObjects, at: VectorAt, cardinality: int | None) -> BitMap64:
    found = fetched.vectors[at]
    if found is None:
        raise Invalid("vector-invalid", f"the vector at {at.offset} of {at.location!r} is absent or cannot be read")
    if not found or (cardinality is not None and len(found) != cardinality):
        raise Invalid(
            "vector-invalid",
            f"the vector at {at.offset} of {at.location!r} has {len(found)} positions, not {cardinality}",
        )
    return found
