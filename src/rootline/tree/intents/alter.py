"""The kind `alter`: another definition for the table, and nothing else.

The changes are those of `redefinition`, which comes first whatever the kind; here is what a root says of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from rootline.schemas.intent import Intent
from rootline.schemas.root_header import RootHeader
from rootline.tree.draft.batch import FetchedObjects
from rootline.tree.draft.change import Change, Effect
from rootline.tree.draft.draft import Draft
from rootline.tree.draft.summary import CHANGED_DEFINITION


def alter(_draft: Draft, _intent: Intent, _fetched: FetchedObjects) -> Change:
    """No file comes or goes."""
    return Change(Effect.NOTHING)


def summary_of_alters(_before: RootHeader | None, draft: Draft) -> dict[str, str]:
    """What a root's summary says: the digest of the definition, if it is another one than before."""
    if any(change.definition is not None for change in draft.changes):
        return {CHANGED_DEFINITION: draft.carried.definition.digest.hex()}
    return {}


def alter_violations(before: RootHeader, after: RootHeader) -> Iterator[str]:
    """What is wrong with the definition that a root names, given the root before it, in words."""
    stated = after.snapshot.summary.get(CHANGED_DEFINITION)
    changed = after.definition.digest.hex() if after.definition != before.definition else None
    if stated != changed:
        yield f"the definition that its intents made is {changed}, its summary says {stated!r:.80}"
