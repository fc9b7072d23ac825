"""Entries that may stand in a root, of every type: what the rules of shape let through.

Owns: making any entry sound. Does not own: entries of any shape (`entry_values`).
Invariants: every field that may be there sometimes is, sometimes not.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from rootline.schemas.content_entry import (
    ContentEntry,
    ContentStats,
    ContentType,
    DeletionVector,
    FileFormat,
    ManifestStats,
    VersionInfo,
)
from tests.schemas.entry_values import entries


def root_rows(statistics: st.SearchStrategy[ContentStats] | None = None) -> st.SearchStrategy[ContentEntry]:
    """Any entry that may be a row of a root."""
    return entries(statistics).map(_made_sound)


def _made_sound(entry: ContentEntry) -> ContentEntry:
    """The nearest entry whose fields are those of its type."""
    kind, info = entry.content_type, entry.version_info
    number = abs(info.sequence_number or 0) % 2**62
    is_leaf = kind in (ContentType.DATA_MANIFEST, ContentType.DELETE_MANIFEST)
    is_vector = kind in (ContentType.POSITION_DELETE, ContentType.MANIFEST_DV)
    is_inline = kind is ContentType.MANIFEST_DV and entry.partition_spec_id % 2 == 0
    referenced = entry.referenced_file or entry.location or "x"
    formats = {True: FileFormat.PUFFIN, False: FileFormat.PARQUET}
    return replace(
        entry,
        location=referenced if kind is ContentType.MANIFEST_DV else entry.location or "x",
        referenced_file=(
            referenced if is_vector else entry.referenced_file if kind is ContentType.DELETE_MANIFEST else None
        ),
        file_format=formats[is_vector],
        version_info=VersionInfo(info.status, 1, number, number if is_leaf else number + 1),
        partition_spec_id=abs(entry.partition_spec_id) % 2**31,
        record_count=abs(entry.record_count) % 2**62 + 1 if kind is not ContentType.MANIFEST_DV else 7,
        file_size_in_bytes=None if is_inline else abs(entry.file_size_in_bytes or 0) % 2**62,
        deletion_vector=(
            None if not is_vector else DeletionVector(inline_content=b"x") if is_inline else DeletionVector(4, 2**33)
        ),
        sort_order_id=entry.sort_order_id if kind is ContentType.DATA else None,
        manifest_stats=ManifestStats(1, 2, 3, 4, 5, 6, number) if is_leaf else None,
        split_offsets=None if entry.split_offsets is None else tuple(sorted(entry.split_offsets)),
        equality_ids=(*(entry.equality_ids or ()), 1) if kind is ContentType.EQUALITY_DELETE else None,
        first_row_id=(
            abs(entry.first_row_id or 0) % 2**62 if kind in (ContentType.DATA, ContentType.DATA_MANIFEST) else None
        ),
    )
