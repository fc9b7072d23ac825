"""The kind `remove`: remove files with their vectors."""

from __future__ import annotations

from rootline.schemas.intent import Intent
from rootline.tree.draft.batch import FetchedObjects, Needs
from rootline.tree.draft.change import Change, Effect, Remove
from rootline.tree.draft.draft import Draft
from rootline.tree.rules.file_rules import removals


def remove(draft: Draft, intent: Intent, fetched: FetchedObjects) -> Change | Needs:
    """Remove files with their vectors. Raises `Invalid`."""
    removed = removals(draft, intent, fetched)
    return removed if isinstance(removed, Needs) else Change.of(Effect.REMOVES, Remove(tuple(removed)))
