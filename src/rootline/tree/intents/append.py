"""The kind `append`: new data files, listed one by one or in leaves.

The most common append has a faster implementation (`fast_append`), which makes the same row.
"""

from __future__ import annotations

from rootline.schemas.intent import Intent
from rootline.tree.draft.batch import FetchedObjects, Needs
from rootline.tree.draft.change import Add, Change, Effect, TakeLeaf
from rootline.tree.draft.draft import Draft
from rootline.tree.rules.file_rules import added_rows
from rootline.tree.rules.leaf_rules import missing_leaves, writer_leaves


def append(draft: Draft, intent: Intent, fetched: FetchedObjects) -> Change | Needs:
    """Add data files, listed one by one or in leaves. Raises `Invalid`."""
    needs = missing_leaves(draft, intent, fetched)
    if needs is not None:
        return needs
    rows = added_rows(draft, intent)
    return Change.of(Effect.ADDS, Add(tuple(rows)), *map(TakeLeaf, writer_leaves(draft, intent, fetched, rows)))
