"""The kind `alter`: change the table's definition, and nothing else.

Owns: the summary of changed definitions. Does not own: the changes themselves, which any kind may contain
(`redefinition`).
"""

from __future__ import annotations

from collections.abc import Iterator

from rootline.schemas.intent import Intent
from rootline.schemas.root_header import RootHeader
from rootline.tree.draft.batch import FetchedObjects
from rootline.tree.draft.change import Change, Define, Effect
from rootline.tree.draft.draft import Draft
from rootline.tree.draft.summary import CHANGED_DEFINITION


def alter(_draft: Draft, _intent: Intent, _fetched: FetchedObjects) -> Change:
    """An empty change: the definition is changed by `redefinition`, and no file is."""
    return Change(Effect.NOTHING)


def summary_of_alters(_before: RootHeader | None, draft: Draft) -> dict[str, str]:
    """Keys for the snapshot's summary: the digest of the definition, if it changed."""
    if draft.accepted(Define):
        return {CHANGED_DEFINITION: draft.carried.definition.digest.hex()}
    return {}


def alter_violations(before: RootHeader, after: RootHeader) -> Iterator[str]:
    """Violations in a root's definition, compared with the root before it, as sentences."""
    stated = after.snapshot.summary.get(CHANGED_DEFINITION)
    changed = after.definition.digest.hex() if after.definition != before.definition else None
    if stated != changed:
        yield f"its intents changed the definition to {changed}, but its summary states {stated!r:.80}"
