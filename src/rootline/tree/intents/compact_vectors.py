"""The kind `compact_vectors`: manifest vectors move from the root into Puffin files.

Owns: which vectors may, and their rows. Does not own: which are worth it (`rootline.maintenance`), what becomes of the
rows that they replace (`manifest_vectors`).
Invariants: what is dead in a leaf does not change: a vector that does not hold just what was dead in the parent, as one
made before the last removal, stays where it is.

Source: format page, "Manifest vectors".
"""

from __future__ import annotations

from typing import Final

from pyroaring import BitMap

from rootline.schemas.bytes.root.root_codec import Row
from rootline.schemas.content_entry import ContentEntry, ContentType, DeletionVector, FileFormat, Status
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import AddedVector, Intent
from rootline.schemas.location_rules import check_location
from rootline.tree.draft.batch import FetchedObjects, Needs
from rootline.tree.draft.change import Change, Effect, StoredManifestVector
from rootline.tree.draft.draft import Draft
from rootline.tree.rules.vector_merge import place_of

VECTORS_PREFIX: Final = "metadata/vectors/"


def compact_vectors(draft: Draft, intent: Intent, fetched: FetchedObjects) -> Change | Needs:
    """Raises `Invalid`: `vector-invalid`, `location-invalid`, `version-unknown`, `compaction-stale`."""
    for vector in intent.add_vectors:
        check_location(vector.location)
        if not vector.location.startswith(VECTORS_PREFIX):
            raise Invalid("location-invalid", f"manifest vector {vector.location[:80]!r} is not in {VECTORS_PREFIX}")
    absent = frozenset(at for vector in intent.add_vectors if (at := place_of(vector)) not in fetched.vectors)
    if absent:
        return Needs(vectors=absent)
    vectors = {
        vector.referenced_file: _stored_vector(draft, vector, _proven(vector, fetched)) for vector in intent.add_vectors
    }
    stored = {leaf: stored for leaf, stored in vectors.items() if stored is not None}
    if not stored:
        raise Invalid(
            "compaction-stale", "each leaf of the vectors has left the table, or other entries of it are dead"
        )
    return Change(Effect.MAINTAINS, stored_vectors=stored)


def _proven(vector: AddedVector, fetched: FetchedObjects) -> BitMap:
    found = fetched.vectors[place_of(vector)]
    if found is None or len(found) != vector.cardinality or found.max() >= 2**32:
        raise Invalid(
            "vector-invalid", f"{vector.location!r} at {vector.offset} is not the vector that the intent names"
        )
    return BitMap(found)


def _stored_vector(draft: Draft, vector: AddedVector, ordinals: BitMap) -> StoredManifestVector | None:
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
    return StoredManifestVector(Row.of(entry, draft.codec), ordinals)
