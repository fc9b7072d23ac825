"""The kinds that begin and end what a name stands for: `create`, `drop`, `purge`, and the kinds of views.

A table is created empty, with its first files, or from an Iceberg table's snapshot. A view is a name that has versions
but no files.

Owns: the rules of these kinds, the objects needed to adopt a table, the fields of a tombstone, how `restore` restores
a dropped table, how a view begins, changes and ends. Does not own: the definition of a new table (`definition`), the
rules of an adopted table (`adoption`), the rules between roots where a name becomes something else
(`rootline.tree.parts.name`), who searches for tables (`addressable`), the first state of a new table
(`rootline.tree.draft.draft`), a view's metadata (`rootline.schemas.view_metadata`), deletion of files (the sweep).
Invariants:
* A uuid belongs to one table forever, also after a drop. A drop names the table's uuid, so that it never drops a later
  table of the name.
* The locations outside its folder that an adopted table references are stored with its first root, so that sweeps of
  other tables know them even after the source table changes.
* A dropped table keeps its entries, definition and ledger in its tombstones, so that it can be restored unchanged. A
  purged table keeps none of its entries.
* A view's root has no entries, and its definition no columns. The view's uuid is the table uuid of its roots. A dropped
  view cannot be restored.

Source: definitions page, sections 2 and 3. Decisions 0038 and 0067.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, NamedTuple
from uuid import UUID

from pyiceberg.schema import Schema

from rootline.schemas.bytes.root.foreign_names import names_of_adopted
from rootline.schemas.bytes.root.location_pages import CONDEMNED_PAGES
from rootline.schemas.bytes.root.retained_page import RETAINED_PAGES
from rootline.schemas.errors import Internal, Invalid
from rootline.schemas.intent import AdoptedRoot, Intent
from rootline.schemas.parts.definition import DEFINITION
from rootline.schemas.parts.locations import LOCATIONS, Locations
from rootline.schemas.parts.name import DROPS_MAX, NAME, Drop, NameRecord, NameState
from rootline.schemas.parts.tags import TAGS
from rootline.schemas.parts.versions import VERSIONS, Expiry, ReadableVersions
from rootline.schemas.table_definition import PartitionSpec, SortOrder, TableDefinition
from rootline.schemas.view_changes import changed_view, view_of_request
from rootline.schemas.view_metadata import ViewMetadata
from rootline.tree.draft.batch import FetchedObjects, Need, Needs
from rootline.tree.draft.change import Beginning, Change, Edit, Effect, SetPart
from rootline.tree.draft.draft import Draft
from rootline.tree.intents.definition import definition_of, stored_definition
from rootline.tree.proof.adoption import check_named
from rootline.tree.state.addressable import dropped_words
from rootline.tree.state.table_state import PendingObject, TableState, pending_page

KEPT_PROPERTY: Final = "rootline.drop.retention-seconds"
"""Property: seconds that a dropped table can be restored before workers purge it."""
KEPT_S_DEFAULT: Final = 7 * 24 * 3600
_PROPERTIES: Final = {"rootline.expire": "true"}
"""Properties of a view's definition: its old roots expire as a table's do."""


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
        Invalid: `definition-invalid`, with the name of the field; `property-invalid`; `table-uuid-mismatch`;
            `intent-malformed`; or a rule of adoption is broken.
    """
    definition = definition_of(intent)
    pending, reference = stored_definition(intent, definition)
    if intent.adopt is None:
        return Beginning(definition, reference, NameRecord(), None, Change(Effect.ADDS, objects=(pending,)))
    if intent.add_data_files or intent.add_manifests:
        raise Invalid(
            "intent-malformed",
            f"{intent.table}: an adopted table begins with the files of its snapshot: append the files afterwards",
        )
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
    for past in drops:
        if past.table_uuid == new_uuid:
            raise Invalid(
                "table-dropped",
                f"{draft.table}: the table with uuid {new_uuid} was dropped in version {past.version}: create the new "
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


def drop(draft: Draft, _intent: Intent, _fetched: FetchedObjects) -> Change:
    """Drop the table, which `restore` can undo. Raises `Invalid` (`table-dropped`)."""
    if draft.is_tombstone:
        raise Invalid("table-dropped", dropped_words(draft.table, draft.parts.of(NAME).drops[-1]))
    return Change(Effect.NOTHING, (SetPart(NAME, dropped(draft, is_purged=False)),))


def purge(draft: Draft, intent: Intent, _fetched: FetchedObjects) -> Beginning:
    """Remove the table and its files for good, whether it was dropped before or not.

    Every version before this root expires, tagged ones included: none can be read.

    Workers set `made_from_version`: then the table must have been dropped in that version, and its retention must be
    over.

    Raises:
        Invalid: `table-dropped`, it was purged before; `purge-stale`, the table's state is not the one the worker saw.
    """
    name = draft.parts.of(NAME)
    if intent.made_from_version is not None:
        _check_is_over(draft, intent.made_from_version)
    if not draft.is_tombstone:
        name = dropped(draft, is_purged=True)
    elif name.drops[-1].is_purged:
        raise Invalid("table-dropped", dropped_words(draft.table, name.drops[-1]))
    else:
        name = replace(name, drops=(*name.drops[:-1], name.drops[-1]._replace(is_purged=True)))
    change = Change(Effect.REMOVES, without_past(draft))
    return Beginning(draft.definition, draft.parts.of(DEFINITION), name, None, change)


def without_past(draft: Draft) -> tuple[Edit, ...]:
    """The edits after which no version before the next root can be read."""
    assert draft.parent is not None, "a root exists before this one"
    expiry = Expiry(draft.parent.header.earlier_bytes + draft.parent.root.size_in_bytes)
    return SetPart(VERSIONS, ReadableVersions(draft.version, expiry), {RETAINED_PAGES: ()}), SetPart(TAGS, {})


def kept_until_ms(drop: Drop, definition: TableDefinition) -> int:
    """The time until which a dropped table can be restored, unless somebody purges it (milliseconds, epoch).

    A property that is not a number counts as not set.
    """
    text = definition.properties.get(KEPT_PROPERTY, "")
    is_number = text.isascii() and text.isdigit() and len(text) <= 10
    return drop.dropped_ms + (int(text) if is_number else KEPT_S_DEFAULT) * 1000


def _check_is_over(draft: Draft, made_from: int) -> None:
    last = draft.parts.of(NAME).drops[-1] if draft.is_tombstone else None
    if last is None or last.version != made_from or not last.dropped_ms:
        raise Invalid("purge-stale", f"{draft.table} was not last dropped in version {made_from}: plan the purge again")
    until_ms = kept_until_ms(last, draft.definition)
    if draft.appended_ms < until_ms:
        raise Invalid(
            "purge-stale",
            f"{draft.table} was dropped in version {made_from} and is kept until {until_ms}, but the intent was "
            f"published at {draft.appended_ms}: publish it again after that time",
        )


def restored_table(draft: Draft, intent: Intent) -> Change:
    """The dropped table, restored unchanged under its uuid.

    Raises:
        Invalid: `table-dropped`, it was purged; `restore-impossible`, the intent names another version than the drop's.
    """
    last = draft.parts.of(NAME).drops[-1]
    if last.is_purged:
        raise Invalid("table-dropped", dropped_words(draft.table, last))
    if intent.ref is None or intent.ref.version != last.version:
        raise Invalid(
            "restore-impossible",
            f"{draft.table} was dropped in version {last.version}: restore that version first, and then an earlier "
            "one if needed",
        )
    return Change(Effect.NOTHING, (SetPart(NAME, replace(draft.parts.of(NAME), state=NameState.TABLE)),))


def dropped(draft: Draft, *, is_purged: bool) -> NameRecord:
    """The record of the tombstone that replaces the table or view of `draft`."""
    record = Drop(draft.definition.table_uuid, draft.version, 0, is_purged)  # the header sets the time
    return NameRecord(NameState.TOMBSTONE, (*draft.parts.of(NAME).drops, record)[-DROPS_MAX:])


def create_view(intent: Intent, _fetched: FetchedObjects, appended_ms: int) -> Beginning:
    """A view under a name without a root.

    Raises:
        Invalid: `view-invalid`, `view-dialect-twice`, `view-too-large`; `table-uuid-mismatch`.
    """
    view = view_of_request(intent.definition or "", appended_ms, name=intent.table)
    if view.view_uuid is None or view.view_uuid != intent.table_uuid:
        raise Invalid(
            "table-uuid-mismatch",
            f"{intent.table}: the intent names uuid {intent.table_uuid}, but its view {view.view_uuid}: use one uuid",
        )
    definition = definition_of_view(view.view_uuid)
    pending, reference = stored_definition(intent, definition)
    name = NameRecord(NameState.VIEW, view=view.to_json())
    return Beginning(definition, reference, name, None, Change(Effect.NOTHING, objects=(pending,)))


def replace_view(draft: Draft, intent: Intent, _fetched: FetchedObjects) -> Change:
    """Give the view a new or earlier version, or other properties. Raises as `changed_view`."""
    name = draft.table
    view = ViewMetadata.from_json(_view_of(draft), name=name)
    after = changed_view(view, intent.definition or "", draft.appended_ms, name=name)
    return Change(Effect.NOTHING, (SetPart(NAME, replace(draft.parts.of(NAME), view=after.to_json())),))


def drop_view(draft: Draft, _intent: Intent, _fetched: FetchedObjects) -> Change:
    """Drop the view. None of its versions can be read afterwards."""
    return Change(Effect.NOTHING, (*without_past(draft), SetPart(NAME, dropped(draft, is_purged=True))))


@lru_cache(maxsize=64)
def definition_of_view(view_uuid: UUID) -> TableDefinition:
    """The definition that a view's roots reference. It only has the view's uuid."""
    return TableDefinition(
        table_uuid=view_uuid,
        schemas=(Schema(schema_id=0),),
        current_schema_id=0,
        expressions=(),
        partition_specs=(PartitionSpec(0),),
        default_spec_id=0,
        sort_orders=(SortOrder(0),),
        default_sort_order_id=0,
        last_column_id=0,
        properties=_PROPERTIES,
    )


def _view_of(draft: Draft) -> bytes:
    view = draft.parts.of(NAME).view
    if view is None:
        raise Internal("invariant-broken", f"{draft.table} is recorded as a view, but has no view metadata")
    return view
