"""The kind `create`: a new table, empty or from an Iceberg table's snapshot.

Owns: reading the definition, its location, the objects needed to adopt a table. Does not own: the rules of a definition
(`definition_rules`) and of an adopted table (`adoption`).
Invariants: The definition's location follows from the intent and the definition, so a retry writes the same object. A
uuid belongs to one table forever, also after a drop. The locations outside its folder that an adopted table references
are stored with its first root, so that sweeps of other tables know them even after the source table changes.

Source: format page, "Table definition". Decision 0038.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple
from uuid import UUID, uuid5

from rootline.schemas.bytes.root.foreign_names import names_of_adopted
from rootline.schemas.bytes.root.location_pages import CONDEMNED_PAGES
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import AdoptedRoot, Intent
from rootline.schemas.object_keys import definition_location
from rootline.schemas.parts.definition import DefinitionReference
from rootline.schemas.parts.locations import LOCATIONS, Locations
from rootline.schemas.parts.name import NAME, NameRecord
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.table_properties import check_adopted
from rootline.tree.draft.batch import FetchedObjects, Need, Needs
from rootline.tree.draft.change import Beginning, Change, Effect, SetPart
from rootline.tree.draft.draft import Draft
from rootline.tree.draft.summary import check_user_summary
from rootline.tree.intents.drop import without_past
from rootline.tree.proof.adoption import check_named
from rootline.tree.proof.definition_rules import check_added, check_definition, given_definition
from rootline.tree.state.table_state import PendingObject, TableState, pending_page

_DEFINITIONS: Final = UUID("6b1f3a52-6f0e-5d6c-9d4e-2f8f6a3f1c57")


class AdoptedTable(NamedTuple):
    """The state that a new table continues from.

    `foreign_names`: the object of the names outside its folder (`ForeignNames`).
    """

    state: TableState
    foreign_names: bytes


@dataclass(frozen=True, slots=True)
class AdoptionNeed(Need[AdoptedTable | Invalid]):
    """The table that a root describes, with everything that the root references, or the reason against its adoption.

    `definition`: of the new table, as `definition_digest` identifies it.
    """

    root: AdoptedRoot
    definition_digest: bytes
    definition: TableDefinition = field(compare=False)


def create(intent: Intent, fetched: FetchedObjects, _appended_ms: int = 0) -> Beginning | Needs:
    """A table with the intent's definition.

    Raises:
        Invalid: `definition-invalid`, with the name of the field; `property-invalid`; `table-uuid-mismatch`; or a rule
            of adoption is broken.
    """
    check_user_summary(intent.summary)
    definition = definition_of(intent)
    pending, reference = stored_definition(intent, definition)
    if intent.adopt is None:
        return Beginning(definition, reference, NameRecord(), None, Change(Effect.ADDS, objects=(pending,)))
    check_named(intent.adopt)
    need = AdoptionNeed(intent.adopt, reference.digest, definition)
    if need not in fetched:
        return Needs.of([need])
    adopted = fetched.of(need)
    if isinstance(adopted, Invalid):
        raise adopted
    state, foreign_names = adopted
    named = PendingObject(names_of_adopted(intent.adopt.location), foreign_names)
    change = Change(Effect.NOTHING, objects=(pending, named))
    return Beginning(state.definition, reference, NameRecord(), state, change)


def after_drop(draft: Draft, begun: Beginning) -> Beginning:
    """`begun`, with the fields that a tombstone passes on: horizon, condemned pages, drops. Raises `Invalid`
    (`table-dropped`).
    """
    new_uuid, drops = begun.definition.table_uuid, draft.parts.of(NAME).drops
    for drop in drops:
        if drop.table_uuid == new_uuid:
            raise Invalid(
                "table-dropped",
                f"{draft.table}: the table with uuid {new_uuid} was dropped in version {drop.version}: create the new "
                "table with another uuid",
            )
    earlier = draft.parts.of(LOCATIONS)
    encoded = [
        pending_page(CONDEMNED_PAGES, new_uuid, page.content, draft.salt) for page in draft.pages.of(CONDEMNED_PAGES)
    ]
    pages = tuple([page for page, _ in encoded])
    condemned = [item._replace(page=page.reference) for item, page in zip(earlier.condemned, pages, strict=True)]
    locations = SetPart(LOCATIONS, Locations(earlier.horizon_ms, tuple(condemned)), {CONDEMNED_PAGES: pages})
    change = Change(
        begun.change.effect,
        (*without_past(draft), locations),
        (*begun.change.objects, *(pending for _, pending in encoded)),
    )
    return replace(begun, name=replace(begun.name, drops=drops), change=change)


def uuid_of(intent: Intent) -> UUID | None:
    """The uuid of the table that a `create` makes, or `None` if its definition cannot be read."""
    if intent.table_uuid is not None:
        return intent.table_uuid
    try:
        return definition_of(intent).table_uuid
    except Invalid:
        return None


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
