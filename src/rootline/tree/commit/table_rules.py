"""Rules that relate an intent to one of the tables of a name. They run before the ledger, which belongs to one table.

Owns: these rules, the kinds that a tombstone accepts, the kinds that wait for the next root. Does not own: the kinds
(`rootline.tree.intents`), the ledger.
Invariants: An intent never applies to a table with another uuid. Once a table of the name was dropped, an intent
without a uuid never applies.

Source: definitions page, section 2. Decision 0067.
"""

from __future__ import annotations

from typing import Final

from rootline.schemas.errors import Invalid
from rootline.schemas.intent import Intent
from rootline.schemas.intent_rules import VIEW_KINDS, IntentKind
from rootline.schemas.parts.name import NameState
from rootline.tree.draft.draft import Draft
from rootline.tree.intents.create import uuid_of
from rootline.tree.state.name_state import dropped_words

_OF_TOMBSTONES: Final = frozenset(
    (IntentKind.DROP, IntentKind.PURGE, IntentKind.RESTORE, IntentKind.EXPIRE, IntentKind.SWEEP)
)
_OF_VIEWS: Final = VIEW_KINDS | {IntentKind.EXPIRE, IntentKind.SWEEP}
AFTER_DROP: Final = frozenset((IntentKind.RESTORE, IntentKind.EXPIRE, IntentKind.SWEEP))
"""Kinds that wait for the next root if this root drops or purges the table, besides those that create one."""
AFTER_CREATE: Final = frozenset((IntentKind.DROP, IntentKind.DROP_VIEW))
"""Kinds that wait for the next root if this root creates or restores the table. `purge` always waits."""


def is_of_this_table(draft: Draft, intent: Intent) -> bool:
    """Whether the ledger applies to the intent: `False` for a `create` of another table.

    Raises:
        Invalid: `table-uuid-mismatch`, the intent is for another table. `table-uuid-missing`, the intent has no uuid
            and needs one.
    """
    named, known, drops = intent.table_uuid, draft.definition.table_uuid, draft.carried.name.drops
    if named is not None and named.int == known.int:
        return True
    if intent.kind is IntentKind.CREATE:
        return uuid_of(intent) == known
    if intent.kind is IntentKind.CREATE_VIEW:
        return named == known
    if named is None:
        if drops:
            raise Invalid(
                "table-uuid-missing",
                f"{draft.table}: a table of this name was dropped in version {drops[-1].version}, and "
                "the intent does not name the table it is for: set its table_uuid",
            )
        return True
    dropped_in = next((drop.version for drop in reversed(drops) if drop.table_uuid == named), None)
    after = "" if dropped_in is None else f", which was dropped in version {dropped_in}"
    raise Invalid("table-uuid-mismatch", f"{draft.table} has uuid {known}, the intent names {named}{after}")


def check_kind_of_name(draft: Draft, intent: Intent) -> None:
    """Raises `Invalid` (`table-dropped`, `name-is-view`, `name-is-table`) if the kind does not fit the object of the
    name.
    """
    if draft.is_tombstone and intent.kind not in _OF_TOMBSTONES:
        raise Invalid("table-dropped", dropped_words(draft.table, draft.carried.name.drops[-1]))
    if draft.carried.name.state is NameState.VIEW and intent.kind not in _OF_VIEWS:
        raise Invalid("name-is-view", f"{draft.table} is a view, and an intent of kind {intent.kind} is for a table")
    if draft.is_table and intent.kind in VIEW_KINDS:
        raise Invalid("name-is-table", f"{draft.table} is a table, and an intent of kind {intent.kind} is for a view")


def check_name_is_free(draft: Draft) -> None:
    """Raises `Invalid` (`table-exists`, `view-exists`) unless the newest root is a tombstone."""
    if draft.is_table:
        raise Invalid("table-exists", f"{draft.table} already exists")
    if not draft.is_tombstone:
        raise Invalid("view-exists", f"{draft.table} is a view: replace it, drop it first, or choose another name")
