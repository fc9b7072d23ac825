"""The kinds `create_view`, `replace_view` and `drop_view`: a name can be a view, which has versions but no files.

Owns: how a view begins, changes and ends on the chain of its name. Does not own: the rules between two of its roots
(`rootline.tree.parts.name`), a view's metadata (`rootline.schemas.view_metadata`), tombstones (`drop`).
Invariants: A view's root has no entries, and its definition no columns. The view's uuid is the table uuid of its roots.
A dropped view cannot be restored.

Source: definitions page, section 3. Decision 0067.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Final
from uuid import UUID

from pyiceberg.schema import Schema

from rootline.schemas.errors import Internal, Invalid
from rootline.schemas.intent import Intent
from rootline.schemas.parts.name import NAME, NameRecord, NameState
from rootline.schemas.table_definition import PartitionSpec, SortOrder, TableDefinition
from rootline.schemas.view_changes import changed_view, view_of_request
from rootline.schemas.view_metadata import ViewMetadata
from rootline.tree.draft.batch import FetchedObjects
from rootline.tree.draft.change import Beginning, Change, Effect, SetPart
from rootline.tree.draft.draft import Draft
from rootline.tree.draft.summary import check_user_summary
from rootline.tree.intents.create import stored_definition
from rootline.tree.intents.drop import dropped, without_past

_PROPERTIES: Final = {"rootline.expire": "true"}
"""Properties of a view's definition: its old roots expire as a table's do."""


def create_view(intent: Intent, _fetched: FetchedObjects, appended_ms: int) -> Beginning:
    """A view under a name without a root.

    Raises:
        Invalid: `view-invalid`, `view-dialect-twice`, `view-too-large`; `table-uuid-mismatch`.
    """
    check_user_summary(intent.summary)
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
