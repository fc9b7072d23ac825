"""The live data files of a draft that equality deletes may reach, by the rule that scans apply.

Owns: the iteration over root and leaves. Does not own: the rule (`rootline.tree.scan.delete_index`, and over columns
`delete_index`).
Invariants: No file within reach is omitted. A leaf whose files are all newer than the deletes is not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from rootline.schemas.content_entry import ContentEntry, ContentType, Status
from rootline.tree.draft.draft import Draft
from rootline.tree.scan.delete_index import DeleteIndex, may_have_deletes

_AT_ONCE: Final = 64


def reached_files(draft: Draft, index: DeleteIndex) -> Iterator[ContentEntry]:
    """The live data files that a delete of `index` may reach. Raises `Invalid` (`equality-delete-unread`)."""
    for live in draft.live_rows():
        if live.entry.content_type is ContentType.DATA and index.of_file(live.entry):
            yield live.entry
    for leaf_row in draft.in_leaves.rows():
        lookup = draft.in_leaves.lookup(leaf_row.location)
        if lookup is None or not lookup.holds(ContentType.DATA) or not _has_older_files(index, leaf_row):
            continue
        near = np.flatnonzero(may_have_deletes(index, lookup.leaf, leaf_row)).tolist()
        alive = [ordinal for ordinal in near if not draft.in_leaves.is_dead(lookup.location, ordinal)]
        for start in range(0, len(alive), _AT_ONCE):
            for entry in lookup.leaf.entries_at(alive[start : start + _AT_ONCE]):
                if entry.version_info.status is not Status.DELETED and index.of_file(entry):
                    yield entry


def _has_older_files(index: DeleteIndex, leaf_row: ContentEntry) -> bool:
    stats, deletes = leaf_row.manifest_stats, index.reaching(leaf_row.partition_spec_id).equality
    newest = max((entry.version_info.sequence_number or 0 for entry in deletes), default=0)
    return bool(deletes) and (stats is None or stats.min_sequence_number < newest)
