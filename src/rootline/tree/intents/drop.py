"""The kinds `drop` and `purge`: remove the table and free its name.

Owns: their rules, the fields of a tombstone, how `restore` restores a dropped table. Does not own: the rules between
roots where a name stops being a table or becomes one (`rootline.tree.parts.name`), who searches for tables
(`addressable`), the first state of a new table (`rootline.tree.draft.draft`), deletion of files (the sweep).
Invariants: A dropped table keeps its entries, definition and ledger in its tombstones, so that it can be restored
unchanged. A purged table keeps none of its entries. A drop names the table's uuid, so that it never drops a later table
of the name.

Source: definitions page, section 2. Decision 0067.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rootline.schemas.bytes.root.retained_page import RETAINED_PAGES
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import Intent
from rootline.schemas.parts.definition import DEFINITION
from rootline.schemas.parts.name import DROPS_MAX, NAME, Drop, NameRecord, NameState
from rootline.schemas.parts.tags import TAGS
from rootline.schemas.parts.versions import VERSIONS, Expiry, ReadableVersions
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.draft.batch import FetchedObjects
from rootline.tree.draft.change import Beginning, Change, Edit, Effect, SetPart
from rootline.tree.draft.draft import Draft
from rootline.tree.state.addressable import dropped_words

KEPT_PROPERTY: Final = "rootline.drop.retention-seconds"
"""Property: seconds that a dropped table can be restored before workers purge it."""
KEPT_S_DEFAULT: Final = 7 * 24 * 3600


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
