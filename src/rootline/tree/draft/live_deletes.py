"""The live equality deletes of a draft.

Owns: the iteration over them. Does not own: the files that they reach (`delete_index`).
Invariants: Costs nothing for a table without equality deletes.
"""

from __future__ import annotations

from collections.abc import Iterator

from rootline.schemas.content_entry import ContentEntry, ContentType
from rootline.tree.draft.draft import Draft


def live_equality_deletes(draft: Draft) -> Iterator[ContentEntry]:
    """The live equality deletes of the root, of the batch and of leaves."""
    if not draft.totals.equality_deletes:
        return
    for place, row in draft.live.equality_deletes.items():
        if draft.rows.of_parent(place) is not None:
            yield row.entry
    for row in draft.rows.new_rows.values():
        if row.entry.content_type is ContentType.EQUALITY_DELETE:
            yield row.entry
    for lookup in draft.in_leaves.lookups():
        for ordinal, entry in lookup.equality_deletes:
            if not draft.in_leaves.is_dead(lookup.location, ordinal):
                yield entry
