"""Rules for the deletion vectors that an intent adds: their checks, entries, merges and merged Puffin files.

Owns: the vectors to fetch, the checks of a description and of positions, when a merge is allowed, its result, the
Puffin file of a batch's merged vectors. Does not own: which kinds may add vectors and their other rules (`intents`),
vectors in a writer's leaves (`delete_rules`), a blob's bytes (`vector_codec`).
Invariants:
* A vector deletes no more rows than its data file has, lies within its Puffin file, and has its data file's partition.
* The result of a merge has every position of the live vector, and every position that the intent is the first to
  delete. A row that the writer read as deleted, and that a restore has made live since, stays live.
* An intent that also adds files merges only if its new positions are disjoint from those deleted since it read.
  Otherwise two updates of one row would both be committed.
* The same merged vectors give the same file name and bytes, so a retry reuses the object. The object of a lost commit
  is an orphan.

Source: protocol page, section 2, "Validation", `row_delta`, and section 3.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from pyroaring import BitMap64

from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.bytes.root.root_codec import Row
from rootline.schemas.bytes.vector_codec import VectorBlob, encode_puffin, puffin_name
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentType,
    DeletionVector,
    EntryPlace,
    FileFormat,
)
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.identifiers import Location
from rootline.schemas.intent import AddedVector, Intent, VectorReference
from rootline.schemas.object_keys import is_absolute, vector_location
from rootline.tree.draft.batch import Absent, FetchedObjects, Need
from rootline.tree.draft.change import MergedVector
from rootline.tree.draft.draft import Draft
from rootline.tree.state.live_index import Live
from rootline.tree.state.table_state import PendingObject

MERGED_LOCATION: Final = "\0merged/"
"""Prefix for the location of a merged vector until its Puffin file is written. No real location has this prefix."""
UNKNOWN_SIZE: Final = -1


@dataclass(frozen=True, slots=True, order=True)
class VectorNeed(Need[BitMap64 | Absent]):
    """The deletion vector at a place: the Puffin file as its entry names it, and the blob's offset (bytes).

    A blob begins with its own length. If an entry states the lengths of blob and file, the code that fetches the vector
    checks them. `UNKNOWN_SIZE`: not stated.
    """

    location: str
    offset: int
    size_in_bytes: int = UNKNOWN_SIZE
    file_size_in_bytes: int = UNKNOWN_SIZE


class Settled(Enum):
    """A merge whose result is the added vector, or the live one, so that no new blob is needed."""

    AS_ADDED = auto()
    AS_LIVE = auto()


def place_of(vector: AddedVector) -> VectorNeed:
    """The place of an added vector, with all lengths."""
    return VectorNeed(vector.location, vector.offset, vector.size_in_bytes, vector.file_size_in_bytes)


def vectors_to_merge(intent: Intent, vector: AddedVector, current: ContentEntry, draft: Draft) -> set[VectorNeed]:
    """The vectors to read besides the added one, except vectors that this batch wrote.

    Raises:
        Invalid: `row-conflict`, the writer replaces an adopted table's vector that no leaf lists any more. It is not
            read, because an intent must not make the coordinator read an arbitrary location.
    """
    places = vector_to_read(current, draft)
    read = vector.replaces_vector
    if read is not None and all((at.location, at.offset) != (read.location, read.offset) for at in places):
        if not _may_read(read, draft):
            raise Invalid(
                "row-conflict",
                f"the vector of {current.referenced_file!r} that the writer read, {read.location!r}, is no longer part "
                "of the table: read the table again, and delete the rows that are still there",
            )
        places.add(VectorNeed(read.location, read.offset))
    return places


def seen_to_compare(seen: VectorReference, current: ContentEntry, draft: Draft) -> set[VectorNeed]:
    """The places of both vectors of a data file, if they may delete the same rows. Empty if they cannot be compared.

    A compaction of vectors only changes a vector's place, so a writer may have seen the old place.
    """
    if not _may_read(seen, draft):
        return set()
    return vector_to_read(current, draft) | {VectorNeed(seen.location, seen.offset)}


def deletes_as_seen(seen: VectorReference, current: ContentEntry, draft: Draft, fetched: FetchedObjects) -> bool:
    """Whether the live vector of a data file deletes the rows that the writer saw as deleted."""
    return fetched.of(VectorNeed(seen.location, seen.offset)) == live_positions(current, draft, fetched)


def _may_read(read: VectorReference, draft: Draft) -> bool:
    """Whether a vector that a writer references may be read: one at an absolute location only if a leaf lists it."""
    place = EntryPlace(ContentType.POSITION_DELETE, read.location, read.offset)
    return not is_absolute(read.location) or draft.is_listed(place)


def proven(vector: AddedVector, data: ContentEntry, fetched: FetchedObjects) -> BitMap64:
    """The positions of an added vector.

    Raises:
        Invalid: `vector-invalid`, it cannot be read, or does not match the intent.
    """
    positions = _read(fetched, place_of(vector), vector.cardinality)
    if positions.max() >= data.record_count:
        raise Invalid(
            "vector-invalid",
            f"the vector of {data.location!r} deletes row {positions.max()}, but the file has {data.record_count} rows",
        )
    return positions


def merge(
    added: BitMap64,
    intent: Intent,
    vector: AddedVector,
    current: ContentEntry,
    draft: Draft,
    fetched: FetchedObjects,
) -> BitMap64 | Settled:
    """The live vector merged with the positions that the intent adds, or `AS_ADDED` or `AS_LIVE` if it equals one of
    them.

    Raises:
        Invalid: `vector-invalid`, a vector cannot be read or does not match its entry; `row-conflict`.
    """
    target = current.referenced_file or ""
    live = live_positions(current, draft, fetched)
    base = BitMap64()
    if vector.replaces_vector is not None:
        base = _read(fetched, VectorNeed(vector.replaces_vector.location, vector.replaces_vector.offset), None)
    if adds_files(intent):
        both = (added - base) & (live - base)
        if both:
            raise Invalid(
                "row-conflict",
                f"row {both.min()} of {target!r} (and {len(both) - 1} more) was deleted by another intent "
                "after the writer read: read the table again",
            )
    union = live | (added - base)
    if union == live:
        return Settled.AS_LIVE
    return Settled.AS_ADDED if union == added else union


def check_keeps(added: BitMap64, current: ContentEntry, draft: Draft, fetched: FetchedObjects) -> None:
    """Check that a vector has all positions of the live vector that it replaces. Otherwise deleted rows would become
    live.

    Raises:
        Invalid: `vector-invalid`.
    """
    dropped = live_positions(current, draft, fetched) - added
    if dropped:
        raise Invalid(
            "vector-invalid",
            f"the vector of {current.referenced_file!r} lacks row {dropped.min()} (and {len(dropped) - 1} more) of the "
            "one it replaces: write all deleted positions",
        )


def vector_to_read(entry: ContentEntry, draft: Draft) -> set[VectorNeed]:
    """The place of a live vector, or nothing if this batch wrote it."""
    return {place_of_vector(entry)} if _written_positions(entry, draft) is None else set()


def live_positions(current: ContentEntry, draft: Draft, fetched: FetchedObjects) -> BitMap64:
    """The rows that a live vector deletes. Raises `Invalid` (`vector-invalid`)."""
    known = _written_positions(current, draft)
    return known if known is not None else _read(fetched, place_of_vector(current), current.record_count)


def _written_positions(entry: ContentEntry, draft: Draft) -> BitMap64 | None:
    """The positions of a vector that this batch wrote. It may not be stored yet."""
    target = entry.referenced_file or ""
    merged = draft.merged.get(target)
    if merged is not None and merged.entry.place == entry.place:
        return merged.positions
    return draft.written.get(entry.location, {}).get(target)


def write_merged(
    merged: Iterable[MergedVector], codec: EntryCodec, salt: bytes = b""
) -> tuple[PendingObject, list[Row]]:
    """The Puffin file of at least one merged vector, and the rows that reference it, in the order of their data files.

    `salt`: part of the file's name, so that only the root being made references this object.
    """
    ordered = sorted(merged, key=lambda vector: vector.entry.referenced_file or "")
    puffin = encode_puffin([VectorBlob(vector.entry.referenced_file or "", vector.positions) for vector in ordered])
    inputs = hashlib.sha256(salt)
    for vector in ordered:
        inputs.update(f"{vector.entry.referenced_file}\0{len(vector.positions)}\0".encode())
    stem = vector_location(inputs.hexdigest()[:32]).removesuffix(".puffin")
    location = Location(puffin_name(stem, puffin.body))
    rows = [
        Row.of(
            replace(
                vector.entry,
                location=location,
                file_size_in_bytes=len(puffin.body),
                deletion_vector=DeletionVector(place.offset, place.size),
            ),
            codec,
        )
        for vector, place in zip(ordered, puffin.places, strict=True)
    ]
    return PendingObject(location, puffin.body), rows


def adds_files(intent: Intent) -> bool:
    """Whether an intent adds data files, directly or in leaves."""
    leaves = (manifest.content_type for manifest in intent.add_manifests)
    return bool(intent.add_data_files) or ContentType.DATA_MANIFEST in leaves


def place_of_vector(entry: ContentEntry) -> VectorNeed:
    """The place of a stored vector, with its exact length. Raises `Corrupt` when its entry lacks it."""
    stored = entry.deletion_vector
    if stored is None or stored.offset is None or stored.size_in_bytes is None or entry.file_size_in_bytes is None:
        raise Corrupt("vector-corrupt", f"the entry of {entry.location!r} lacks the place of its vector")
    return VectorNeed(entry.location, stored.offset, stored.size_in_bytes, entry.file_size_in_bytes)


def _read(fetched: FetchedObjects, at: VectorNeed, cardinality: int | None) -> BitMap64:
    found = fetched.of(at)
    if isinstance(found, Absent):
        raise Invalid("vector-invalid", f"the vector at {at.offset} of {at.location!r} is absent or cannot be read")
    if not found or (cardinality is not None and len(found) != cardinality):
        raise Invalid(
            "vector-invalid",
            f"the vector at {at.offset} of {at.location!r} has {len(found)} positions, not {cardinality}",
        )
    return found


def check_added_vector(draft: Draft, vector: AddedVector, data: ContentEntry) -> None:
    """Raises `Invalid`: `file-already-live`, `vector-invalid`."""
    if draft.find(EntryPlace(ContentType.POSITION_DELETE, vector.location, vector.offset)) is not None:
        raise Invalid(
            "file-already-live", f"the vector at {vector.offset} of {vector.location!r} is already part of the table"
        )
    if vector.cardinality > data.record_count:
        raise Invalid(
            "vector-invalid",
            f"the vector of {vector.referenced_file!r} deletes {vector.cardinality} rows, the file has "
            f"{data.record_count}",
        )
    if not 0 < vector.size_in_bytes <= vector.file_size_in_bytes - vector.offset:
        raise Invalid(
            "vector-invalid", f"the vector at {vector.offset} of {vector.location!r} is empty or ends after its file"
        )


def merged_entry(entry: ContentEntry, positions: BitMap64) -> ContentEntry:
    """The entry of a merged vector. Location, offset and sizes are set when its Puffin file is written."""
    return ContentEntry(
        content_type=ContentType.POSITION_DELETE,
        location=f"{MERGED_LOCATION}{entry.referenced_file}",
        file_format=FileFormat.PUFFIN,
        version_info=entry.version_info,
        partition_spec_id=entry.partition_spec_id,
        record_count=len(positions),
        deletion_vector=DeletionVector(0, 0),
        referenced_file=entry.referenced_file,
        content_stats=entry.content_stats,
    )


def reference_of(vector: Live | None) -> VectorReference | None:
    """The reference that writers use for a live vector."""
    return None if vector is None else reference_of_entry(vector.entry)


def reference_of_entry(entry: ContentEntry) -> VectorReference:
    """The reference that writers use for a vector's entry."""
    stored = entry.deletion_vector
    return VectorReference(location=entry.location, offset=(stored.offset if stored is not None else None) or 0)
