"""The kind `alter`: another definition for the table.

Owns: whether the changes fit the definition that there is, and what a root says of it. Does not own: what changes make
of a definition and which are legal (`rootline.tree.evolution`), encoding rows anew (`draft`, `next_root`).
Invariants: of two changes made for one definition the second is rejected, or two columns would get one id; no entry
comes or goes.

Source: docs/protocol.md, "Changing a definition"; docs/decisions/0064.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rootline.schemas.errors import Invalid
from rootline.schemas.intent import Intent
from rootline.schemas.root_header import RootHeader
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.draft.batch import FetchedObjects
from rootline.tree.draft.change import Change, Effect
from rootline.tree.draft.draft import Draft
from rootline.tree.draft.summary import CHANGED_DEFINITION
from rootline.tree.evolution.changes import DefinitionChanges
from rootline.tree.evolution.evolve import evolved
from rootline.tree.intents.create import stored_definition


def alter(draft: Draft, intent: Intent, _fetched: FetchedObjects) -> Change:
    """Change the table's definition.

    Raises:
        Invalid: `definition-invalid`, `column-untracked`, `evolution-illegal`; `definition-changed`, the changes were
            made for another definition.

    """
    changes = DefinitionChanges.from_json(intent.definition or "")
    before = draft.definition
    current = draft.carried.definition.digest
    if changes.replaces not in (None, current):
        raise Invalid(
            "definition-changed",
            f"the changes were made for definition {changes.replaces.hex()[:16]}…, "
            f"the table's is {current.hex()[:16]}… by now: plan them on that one",
        )
    after = evolved(before, changes)
    if after is before:
        return Change(Effect.NOTHING)
    if changes.replaces is None and _numbered(after) != _numbered(before):
        raise Invalid(
            "definition-invalid",
            "definition changes: those that add a schema, a partition spec or a sort order need replaces-definition, "
            "the SHA-256 of the definition that they were made for, because ids follow from it",
        )
    pending, reference = stored_definition(intent, after)
    carried = replace(draft.carried, definition=reference)
    return Change(Effect.NOTHING, objects=(pending,), carried=carried, definition=after)


def _numbered(definition: TableDefinition) -> tuple[int, ...]:
    """How many there are of what gets an id when it is added."""
    return len(definition.schemas), len(definition.partition_specs), len(definition.sort_orders)


def says_of_alters(_before: RootHeader | None, draft: Draft) -> dict[str, str]:
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
