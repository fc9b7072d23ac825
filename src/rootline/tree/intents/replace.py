"""The kind `replace`: the table goes on empty, or with other rows, perhaps with other columns.

Owns: what leaves, and which intents were meant for what the table held before. Does not own: the definition that the
table goes on with (`redefinition`), files that come (`append`).
Invariants: whatever is live when the intent is applied leaves, and no leaf is written for it; uuid, history and ledger
stay; the definition gets a schema that is new, so an intent that names an earlier one is told from those made since.

Theory. The root shows what left as it shows any removal: its own rows as removed, and of each leaf a vector of all
ordinals, which is a few bytes. So changes, exports and restores know it without knowing the kind. Of a writer who names
no schema no one can say what its rows are for, as of one who names no uuid after a drop.

Source: docs/decisions/0074.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace as with_fields
from typing import Final

import pyarrow.compute as pc
from pyroaring import BitMap

from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import SequenceNumber
from rootline.schemas.intent import Intent
from rootline.schemas.intent_rules import MAINTENANCE_KINDS, IntentKind
from rootline.schemas.root_header import RootHeader
from rootline.tree.draft.batch import FetchedObjects, Needs
from rootline.tree.draft.change import Change, Effect
from rootline.tree.draft.draft import Draft
from rootline.tree.draft.summary import REPLACED_TABLE
from rootline.tree.rules.file_rules import added_rows
from rootline.tree.rules.writer_leaves import missing_leaves, writer_leaves
from rootline.tree.state.live_mask import live_mask

_BRINGS: Final = ("add_data_files", "add_equality_deletes", "add_manifests")
"""What an intent may bring that fits any table, whatever is live there."""


def replace(draft: Draft, intent: Intent, fetched: FetchedObjects) -> Change | Needs:
    """Everything leaves; the intent's files come. `draft` is under the definition of after. Raises `Invalid`."""
    needs = missing_leaves(draft, intent, fetched)
    if needs is not None:
        return needs
    leaving = tuple(draft.live_rows())
    leaving_leaves = dict(_live_in_leaves(draft))
    added = added_rows(draft, intent)
    leaves = writer_leaves(draft, intent, fetched, added)
    effect = Effect.REMOVES if leaving or leaving_leaves else Effect.NOTHING
    return Change(
        effect | (Effect.ADDS if added or leaves else Effect.NOTHING),
        added=tuple(added),
        incoming=leaves,
        removed=leaving,
        removed_from=leaving_leaves,
        carried=with_fields(draft.carried, replaced_at=SequenceNumber(draft.sequence_number + 1)),
        new_schema_id=draft.definition.oldest_schema_id,
    )


def check_meant_for_this(draft: Draft, intent: Intent) -> None:
    """Raises `Invalid` (`table-replaced`, `schema-id-missing`) for rows that may be meant for what was here before.

    A replace itself names the definition that it was made for, and maintenance the root.
    """
    first = draft.definition.oldest_schema_id
    if not first or intent.kind is IntentKind.REPLACE or intent.kind in MAINTENANCE_KINDS:
        return
    if intent.schema_id is None:
        if any(getattr(intent, name) for name in _BRINGS):
            raise Invalid(
                "schema-id-missing",
                f"{draft.table}: the table was replaced, with schema {first}, and the intent does not say which schema "
                "it was made for: name its schema_id",
            )
    elif intent.schema_id < first:
        raise Invalid(
            "table-replaced",
            f"{draft.table}: the intent was made for schema {intent.schema_id}, and the table was replaced since, with "
            f"schema {first}: open the table again",
        )


def summary_of_replaces(_before: RootHeader | None, draft: Draft) -> dict[str, str]:
    """What a root's summary says of replaces: the first schema that counts after the last of them."""
    ids = [change.new_schema_id for change in draft.changes if change.new_schema_id is not None]
    return {REPLACED_TABLE: str(ids[-1])} if ids else {}


def replace_violations(before: RootHeader, after: RootHeader) -> Iterator[str]:
    """What is wrong with what a root says of replaces, given the root before it, in words."""
    if (after.replaced_at > before.replaced_at) != (REPLACED_TABLE in after.snapshot.summary):
        yield f"replaced at sequence number {after.replaced_at}, which its summary does not say"
    if not before.replaced_at <= after.replaced_at <= after.snapshot.sequence_number:
        yield f"replaced at sequence number {after.replaced_at}, before it was at {before.replaced_at}"
    if after.replaced_at > before.replaced_at and after.definition == before.definition:
        yield "the table was replaced, and has no new schema"


def _live_in_leaves(draft: Draft) -> Iterator[tuple[str, BitMap]]:
    """Leaf → the ordinals that are live in it, of leaves that have some."""
    for location in draft.in_leaves.locations():
        lookup = draft.in_leaves.lookup(location)
        if lookup is None:
            continue
        mask = live_mask(lookup.leaf.columns(["version_info"]), draft.in_leaves.dead_in(location))
        live = BitMap(pc.indices_nonzero(mask).to_numpy())
        if live:
            yield location, live
