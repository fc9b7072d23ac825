"""The kind `replace`: the table continues empty, or with other rows, possibly with other columns.

Owns: which entries are removed, and rejecting intents that were meant for the earlier content. Does not own: the new
definition (`redefinition`), the added files (`append`).
Invariants: Everything that is live when the intent is applied is removed, without writing a leaf. Uuid, history and
ledger continue. The definition gets a new schema, so that an intent made for an earlier one can be recognized.

Theory. The root shows this like any removal: its own rows as removed, and for each leaf a vector of all ordinals, which
takes a few bytes. So changes, exports and restores need no code for this kind. If a writer names no schema, the table
cannot know which content its rows are meant for. The same is true of a writer without a uuid after a drop.

Source: docs/decisions/0074.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import starmap
from typing import Final

import pyarrow.compute as pc
from pyroaring import BitMap

from rootline.schemas.errors import Invalid
from rootline.schemas.intent import Intent
from rootline.schemas.intent_rules import MAINTENANCE_KINDS, IntentKind
from rootline.tree.draft.batch import FetchedObjects, Needs
from rootline.tree.draft.change import Add, Change, Effect, Remove, RemoveOrdinals, ReplaceTable, TakeLeaf
from rootline.tree.draft.draft import Draft
from rootline.tree.rules.file_rules import added_rows
from rootline.tree.rules.leaf_rules import missing_leaves, writer_leaves
from rootline.tree.state.leaf_lookup import live_mask

_ADDED: Final = ("add_data_files", "add_equality_deletes", "add_manifests")
"""The fields of an intent whose files could be added to any table, whatever is live there."""


def replace(draft: Draft, intent: Intent, fetched: FetchedObjects) -> Change | Needs:
    """Remove everything, and add the intent's files. `draft` has the new definition already. Raises `Invalid`."""
    needs = missing_leaves(draft, intent, fetched)
    if needs is not None:
        return needs
    removed = tuple(draft.live_rows())
    removed_in_leaves = dict(_live_in_leaves(draft))
    added = added_rows(draft, intent)
    leaves = writer_leaves(draft, intent, fetched, added)
    effect = Effect.REMOVES if removed or removed_in_leaves else Effect.NOTHING
    return Change.of(
        effect | (Effect.ADDS if added or leaves else Effect.NOTHING),
        Remove(removed),
        *starmap(RemoveOrdinals, removed_in_leaves.items()),
        Add(tuple(added)),
        *map(TakeLeaf, leaves),
        ReplaceTable(draft.definition.oldest_schema_id),
    )


def check_meant_for_this(draft: Draft, intent: Intent) -> None:
    """Raises `Invalid` (`table-replaced`, `schema-id-missing`) for rows that may be meant for the table before a
    replace.

    A replace itself names the definition it was made for, and maintenance names the root.
    """
    first = draft.definition.oldest_schema_id
    if not first or intent.kind is IntentKind.REPLACE or intent.kind in MAINTENANCE_KINDS:
        return
    if intent.schema_id is None:
        if any(getattr(intent, name) for name in _ADDED):
            raise Invalid(
                "schema-id-missing",
                f"{draft.table}: the table was replaced, with schema {first}, and the intent does not name the schema "
                "it was made for: set its schema_id",
            )
    elif intent.schema_id < first:
        raise Invalid(
            "table-replaced",
            f"{draft.table}: the intent was made for schema {intent.schema_id}, but the table has been replaced since, "
            f"with schema {first}: open the table again",
        )


def _live_in_leaves(draft: Draft) -> Iterator[tuple[str, BitMap]]:
    """The leaves with live entries, and the live ordinals of each."""
    for location in draft.in_leaves.locations():
        lookup = draft.in_leaves.lookup(location)
        if lookup is None:
            continue
        mask = live_mask(lookup.leaf.columns(["version_info"]), draft.in_leaves.dead_in(location))
        live = BitMap(pc.indices_nonzero(mask).to_numpy())
        if live:
            yield location, live
