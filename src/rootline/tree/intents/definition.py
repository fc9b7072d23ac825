"""The definition in an intent: a new table's, and the changes that the kind `alter` and others make.

Owns: reading the definition of a `create`, its object to store, the table's definition after the changes of an intent,
and adding it to the intent's `Change`. Does not own: the rules of a definition (`definition_rules`), the changes and
whether they are legal (`rootline.tree.evolution`), the rest of the intent (its kind).
Invariants: The definition's location follows from the intent and the definition, so a retry writes the same object.
Changes are applied first, and the intent's files are checked against the result. The draft is unchanged until the whole
intent is accepted, so a rejected intent changes no definition. If two intents were made for one definition and both add
to its schemas, the second is rejected. Otherwise two columns would get the same id.

Source: format page, "Table definition". Protocol page, "Changing a definition". Decision 0064.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final
from uuid import UUID, uuid5

from rootline.schemas.errors import Invalid
from rootline.schemas.intent import Intent
from rootline.schemas.intent_rules import CHANGING_KINDS, IntentKind
from rootline.schemas.object_keys import definition_location
from rootline.schemas.parts.definition import DEFINITION, DefinitionReference
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.table_properties import check_adopted
from rootline.tree.draft.batch import FetchedObjects
from rootline.tree.draft.change import Change, Define, Effect
from rootline.tree.draft.draft import Draft
from rootline.tree.evolution.changes import DefinitionChanges
from rootline.tree.evolution.next_definition import evolved, replaced_definition
from rootline.tree.proof.definition_rules import check_added, check_definition, given_definition
from rootline.tree.state.table_state import PendingObject

_DEFINITIONS: Final = UUID("6b1f3a52-6f0e-5d6c-9d4e-2f8f6a3f1c57")


def definition_of(intent: Intent) -> TableDefinition:
    """The definition in a `create`.

    Raises:
        Invalid: `definition-invalid`, with the name of the field; `property-invalid`; `table-uuid-mismatch`.
    """
    text = intent.definition or ""
    definition = given_definition(text)
    if intent.table_uuid is not None and intent.table_uuid != definition.table_uuid:
        raise Invalid(
            "table-uuid-mismatch",
            f"the intent names uuid {intent.table_uuid}, but its definition {definition.table_uuid}: use one uuid",
        )
    if definition.oldest_schema_id:
        raise Invalid(
            "definition-invalid",
            "definition: oldest-schema-id is only valid for a table that was replaced: remove it",
        )
    check_definition(definition)
    if intent.adopt is None:
        check_added(None, definition)
    else:  # an adopted table is accepted unchanged, except for properties of our own
        check_adopted(definition.properties)
    return definition


def stored_definition(intent: Intent, definition: TableDefinition) -> tuple[PendingObject, DefinitionReference]:
    """The definition's object to store, and the root's reference to it."""
    body = definition.to_json()
    digest = hashlib.sha256(body).digest()
    location = definition_location(uuid5(_DEFINITIONS, f"{intent.intent_id}\0{digest.hex()}"))
    return PendingObject(location, body), DefinitionReference(location, digest)


def alter(_draft: Draft, _intent: Intent, _fetched: FetchedObjects) -> Change:
    """An empty change: the definition is changed by `redefinition`, and no file is."""
    return Change(Effect.NOTHING)


@dataclass(frozen=True, slots=True)
class Redefinition:
    """The definition that a table continues with, and its object to store."""

    definition: TableDefinition
    reference: DefinitionReference
    pending: PendingObject

    @staticmethod
    def of(intent: Intent, definition: TableDefinition) -> Redefinition:
        """A definition made by `intent`. The same intent always makes the same object."""
        pending, reference = stored_definition(intent, definition)
        return Redefinition(definition, reference, pending)

    def seen(self, draft: Draft) -> Draft:
        """A view of `draft` under this definition, for checks. `draft` is unchanged."""
        return draft.with_definition(self.definition, self.reference)

    def with_change(self, change: Change) -> Change:
        """`change` together with this redefinition, as one change."""
        define = Define(self.definition, self.reference)
        return Change(change.effect, (define, *change.edits), (self.pending, *change.objects))


def redefinition(draft: Draft, intent: Intent) -> Redefinition | None:
    """The table's definition after the changes of `intent`, or `None` if it has none, or they change nothing.

    Raises:
        Invalid: `definition-invalid`, `column-untracked`, `evolution-illegal`; `definition-changed`, the changes were
            made for another definition.
    """
    if intent.definition is None or intent.kind not in CHANGING_KINDS:
        return None
    changes = DefinitionChanges.from_json(intent.definition)
    before = draft.definition
    current = draft.parts.of(DEFINITION).digest
    if changes.replaces not in (None, current):
        raise Invalid(
            "definition-changed",
            f"the changes were made for definition {changes.replaces.hex()[:16]}…, "
            f"the table's is now {current.hex()[:16]}…: plan the changes again",
        )
    after = (replaced_definition if intent.kind is IntentKind.REPLACE else evolved)(before, changes)
    if after is before:
        return None
    if changes.replaces is None and _numbered(after) != _numbered(before):
        raise Invalid(
            "definition-invalid",
            "definition changes: a change that adds a schema, a partition spec or a sort order needs "
            "replaces-definition, the SHA-256 of the definition it was made for, because new ids depend on it",
        )
    return Redefinition.of(intent, after)


def _numbered(definition: TableDefinition) -> tuple[int, ...]:
    """The numbers of schemas, partition specs and sort orders, which get ids when they are added."""
    return len(definition.schemas), len(definition.partition_specs), len(definition.sort_orders)
