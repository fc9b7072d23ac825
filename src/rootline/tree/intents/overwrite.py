"""The kind `overwrite`: replace files with new ones.

Owns: the rules that relate removed and added files. Does not own: the rules of files (`file_rules`).
Invariants: A row deleted by an equality delete that the writer had not read does not become live again.

Source: protocol page, section 2, "Validation".
"""

from __future__ import annotations

from rootline.schemas.content_entry import ContentType
from rootline.schemas.intent import Intent
from rootline.tree.draft.batch import FetchedObjects, Needs
from rootline.tree.draft.change import Add, Change, Effect, Remove, TakeLeaf
from rootline.tree.draft.draft import Draft
from rootline.tree.rules.file_rules import added_rows, removals
from rootline.tree.rules.isolation_rules import check_no_unseen_deletes
from rootline.tree.rules.leaf_rules import missing_leaves, writer_leaves


def overwrite(draft: Draft, intent: Intent, fetched: FetchedObjects) -> Change | Needs:
    """Remove files and add others. Raises `Invalid`."""
    needs = missing_leaves(draft, intent, fetched)
    if needs is not None:
        return needs
    removed = removals(draft, intent, fetched)
    if isinstance(removed, Needs):
        return removed
    data = (live.entry for live in removed if live.entry.content_type is ContentType.DATA)
    check_no_unseen_deletes(draft, intent, data, "stale-source")
    added = added_rows(draft, intent)
    leaves = writer_leaves(draft, intent, fetched, added)
    effect = (Effect.ADDS if added or leaves else Effect.NOTHING) | (Effect.REMOVES if removed else Effect.NOTHING)
    return Change.of(effect, Remove(tuple(removed)), Add(tuple(added)), *map(TakeLeaf, leaves))
