"""Changes of the definition that an intent carries: they come first, and the result is what its files are judged by.

Owns: what the changes make of the table, and how that goes into the intent's `Change`. Does not own: what they say and
whether they are legal (`rootline.tree.evolution`), the rest of the intent (its kind).
Invariants: the draft is not touched before the whole intent is accepted, so a rejected one changes no definition; of
two intents that were made for one definition and add to its schemas the second is rejected, or two columns would get
one id.

Source: docs/protocol.md, "Changing a definition"; docs/decisions/0064.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rootline.schemas.errors import Invalid
from rootline.schemas.intent import Intent
from rootline.schemas.intent_rules import CHANGING_KINDS, IntentKind
from rootline.schemas.root_header import DefinitionReference
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.draft.change import Change
from rootline.tree.draft.draft import Draft
from rootline.tree.evolution.changes import DefinitionChanges
from rootline.tree.evolution.evolve import evolved, replaced_definition
from rootline.tree.intents.create import stored_definition
from rootline.tree.state.pending_object import PendingObject


@dataclass(frozen=True, slots=True)
class Redefinition:
    """The definition that a table goes on with, and its object to store."""

    definition: TableDefinition
    reference: DefinitionReference
    pending: PendingObject

    @staticmethod
    def of(intent: Intent, definition: TableDefinition) -> Redefinition:
        """Of a definition that `intent` makes; the same intent makes the same object."""
        pending, reference = stored_definition(intent, definition)
        return Redefinition(definition, reference, pending)

    def seen(self, draft: Draft) -> Draft:
        """`draft` under this definition, to judge by; `draft` itself stays as it is."""
        return draft.with_definition(self.definition, replace(draft.carried, definition=self.reference))

    def with_change(self, draft: Draft, change: Change) -> Change:
        """What the rest of the intent does, and this, as one change of `draft`."""
        carried = replace(change.carried or draft.carried, definition=self.reference)
        return replace(change, objects=(self.pending, *change.objects), carried=carried, definition=self.definition)


def redefinition(draft: Draft, intent: Intent) -> Redefinition | None:
    """What the changes that `intent` carries make of the table; `None` when it carries none, or they change nothing.

    Raises:
        Invalid: `definition-invalid`, `column-untracked`, `evolution-illegal`; `definition-changed`, the changes were
            made for another definition.

    """
    if intent.definition is None or intent.kind not in CHANGING_KINDS:
        return None
    changes = DefinitionChanges.from_json(intent.definition)
    before = draft.definition
    current = draft.carried.definition.digest
    if changes.replaces not in (None, current):
        raise Invalid(
            "definition-changed",
            f"the changes were made for definition {changes.replaces.hex()[:16]}…, "
            f"the table's is {current.hex()[:16]}… by now: plan them on that one",
        )
    after = (replaced_definition if intent.kind is IntentKind.REPLACE else evolved)(before, changes)
    if after is before:
        return None
    if changes.replaces is None and _numbered(after) != _numbered(before):
        raise Invalid(
            "definition-invalid",
            "definition changes: those that add a schema, a partition spec or a sort order need replaces-definition, "
            "the SHA-256 of the definition that they were made for, because ids follow from it",
        )
    return Redefinition.of(intent, after)


def _numbered(definition: TableDefinition) -> tuple[int, ...]:
    """How many there are of what gets an id when it is added."""
    return len(definition.schemas), len(definition.partition_specs), len(definition.sort_orders)
