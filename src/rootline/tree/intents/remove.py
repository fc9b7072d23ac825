"""The kind `remove`: files leave, with their vectors."""

from __future__ import annotations

from rootline.schemas.intent import Intent
from rootline.tree.draft.batch import FetchedObjects
from rootline.tree.draft.change import Change, Effect
from rootline.tree.draft.draft import Draft
from rootline.tree.rules.removal_rules import removals


def remove(draft: Draft, intent: Intent, _fetched: FetchedObjects) -> Change:
    """Files that leave, with their vectors. Raises `Invalid`."""
    return Change(Effect.REMOVES, removed=tuple(removals(draft, intent)))
