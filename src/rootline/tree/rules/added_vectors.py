"""The checks of a deletion vector that need only its description in the intent, and its entry.

Owns: these rules, and the entries of vectors. Does not own: the vector's positions (`vector_merge`), which kinds may
add vectors, vectors in a writer's leaves (`writer_deletes`).
Invariants: A vector deletes no more rows than its data file has, lies within its Puffin file, and has its data file's
partition.
"""

from __future__ import annotations

from pyroaring import BitMap64

from rootline.schemas.content_entry import (
    ContentEntry,
    ContentType,
    DeletionVector,
    EntryPlace,
    FileFormat,
    VersionInfo,
)
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import AddedVector
from rootline.tree.draft.draft import Draft
from rootline.tree.proof.file_proof import partition_statistics
from rootline.tree.rules.vector_merge import MERGED_LOCATION


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


def vector_entry(draft: Draft, vector: AddedVector, data: ContentEntry, numbers: VersionInfo) -> ContentEntry:
    """The content entry of a deletion vector that an intent adds. `data`: the entry of its data file."""
    spec_ids = draft.definition.spec_by_id(data.partition_spec_id).expr_ids
    return ContentEntry(
        content_type=ContentType.POSITION_DELETE,
        location=vector.location,
        file_format=FileFormat.PUFFIN,
        version_info=numbers,
        partition_spec_id=data.partition_spec_id,
        record_count=vector.cardinality,
        file_size_in_bytes=vector.file_size_in_bytes,
        deletion_vector=DeletionVector(vector.offset, vector.size_in_bytes),
        referenced_file=data.location,
        content_stats=partition_statistics(data.content_stats, spec_ids) if spec_ids else {},
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
