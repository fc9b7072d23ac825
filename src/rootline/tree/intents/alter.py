"""The kind `alter`: change the table's definition, and nothing else. Any kind may contain such a change."""

from __future__ import annotations

from rootline.schemas.intent import Intent
from rootline.tree.draft.batch import FetchedObjects
from rootline.tree.draft.change import Change, Effect
from rootline.tree.draft.draft import Draft


def alter(_draft: Draft, _intent: Intent, _fetched: FetchedObjects) -> Change:
    """An empty change: the definition is changed by `redefinition`, and no file is."""
    return Change(Effect.NOTHING)
