"""The kinds `drop` and `purge`: remove the table and free its name.

Owns: their rules, the fields of a tombstone, how `restore` restores a dropped table, and the rules between roots where
a name stops being a table or becomes one. Does not own: who searches for tables (`name_state`), the first state of a
new table of the name (`rootline.tree.draft.draft`), deletion of files (the sweep).
Invariants: A dropped table keeps its entries, definition and ledger in its tombstones, so that it can be restored
unchanged. A purged table keeps none of its entries. A drop names the table's uuid, so that it never drops a later table
of the name.

Source: definitions page, section 2. Decision 0067.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from rootline.schemas.errors import Invalid
from rootline.schemas.intent import Intent
from rootline.schemas.parts.name import DROPS_MAX, Drop, NameState
from rootline.schemas.parts.versions import Expiry
from rootline.schemas.root_header import RootHeader, Totals
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.draft.batch import FetchedObjects
from rootline.tree.draft.carried import CarriedFields
from rootline.tree.draft.change import Beginning, Change, Effect, SetCarried
from rootline.tree.draft.draft import Draft
from rootline.tree.state.name_state import dropped_words

NAME_IS: Final = "rootline.name"
"""Key of a snapshot's summary: `dropped`, `purged`, `restored` or `created`, if it changed the name's state."""
KEPT_PROPERTY: Final = "rootline.drop.retention-seconds"
"""Property: seconds that a dropped table can be restored before workers purge it."""
KEPT_S_DEFAULT: Final = 7 * 24 * 3600
_WORDS: Final = {
    (NameState.TABLE, NameState.TOMBSTONE): "dropped",
    (NameState.TOMBSTONE, NameState.TABLE): "restored",
}


def drop(draft: Draft, _intent: Intent, _fetched: FetchedObjects) -> Change:
    """Drop the table, which `restore` can undo. Raises `Invalid` (`table-dropped`)."""
    if draft.is_tombstone:
        raise Invalid("table-dropped", dropped_words(draft.table, draft.carried.name.drops[-1]))
    return Change(Effect.NOTHING, (SetCarried(dropped(draft, is_purged=False)),))


def purge(draft: Draft, intent: Intent, _fetched: FetchedObjects) -> Beginning:
    """Remove the table and its files for good, whether it was dropped before or not.

    Every version before this root expires, tagged ones included: none can be read.

    Workers set `made_from_version`: then the table must have been dropped in that version, and its retention must be
    over.

    Raises:
        Invalid: `table-dropped`, it was purged before; `purge-stale`, the table's state is not the one the worker saw.
    """
    carried = draft.carried
    if intent.made_from_version is not None:
        _check_is_over(draft, intent.made_from_version)
    if not draft.is_tombstone:
        carried = dropped(draft, is_purged=True)
    elif carried.name.drops[-1].is_purged:
        raise Invalid("table-dropped", dropped_words(draft.table, carried.name.drops[-1]))
    else:
        carried = replace(
            carried,
            name=replace(
                carried.name, drops=(*carried.name.drops[:-1], carried.name.drops[-1]._replace(is_purged=True))
            ),
        )
    carried = without_past(draft, carried)
    return Beginning(draft.definition, carried, None, Change(Effect.REMOVES))


def without_past(draft: Draft, carried: CarriedFields) -> CarriedFields:
    """`carried`, changed so that no version before the next root can be read."""
    assert draft.parent is not None, "a root exists before this one"
    expiry = Expiry(draft.parent.header.earlier_bytes + draft.parent.root.size_in_bytes)
    return replace(carried, versions=replace(carried.versions, oldest=draft.version, expiry=expiry), tags={})


def kept_until_ms(drop: Drop, definition: TableDefinition) -> int:
    """The time until which a dropped table can be restored, unless somebody purges it (milliseconds, epoch).

    A property that is not a number counts as not set.
    """
    text = definition.properties.get(KEPT_PROPERTY, "")
    is_number = text.isascii() and text.isdigit() and len(text) <= 10
    return drop.dropped_ms + (int(text) if is_number else KEPT_S_DEFAULT) * 1000


def _check_is_over(draft: Draft, made_from: int) -> None:
    last = draft.carried.name.drops[-1] if draft.is_tombstone else None
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
    last = draft.carried.name.drops[-1]
    if last.is_purged:
        raise Invalid("table-dropped", dropped_words(draft.table, last))
    if intent.ref is None or intent.ref.version != last.version:
        raise Invalid(
            "restore-impossible",
            f"{draft.table} was dropped in version {last.version}: restore that version first, and then an earlier "
            "one if needed",
        )
    return Change(
        Effect.NOTHING, (SetCarried(replace(draft.carried, name=replace(draft.carried.name, state=NameState.TABLE))),)
    )


def summary_of_drops(before: RootHeader | None, draft: Draft) -> dict[str, str]:
    """Keys for the snapshot's summary: the change of the name's state."""
    if before is None:
        return {NAME_IS: "dropped"} if draft.is_tombstone else {}
    word = _word(
        before,
        draft.carried.name.state,
        draft.carried.name.drops,
        is_new=draft.definition.table_uuid != before.table_uuid,
    )
    return {} if word is None else {NAME_IS: word}


def drop_violations(before: RootHeader, after: RootHeader) -> Iterator[str]:
    """Violations in a root's name fields, compared with the root before it, as sentences."""
    stated = after.snapshot.summary.get(NAME_IS)
    word = _word(before, after.name.state, after.name.drops, is_new=after.table_uuid != before.table_uuid)
    if stated != word:
        yield f"its name is {after.name.state} after {before.name.state}: {word}, but its summary states {stated!r:.40}"
    if len(after.name.drops) < len(before.name.drops):
        yield f"it records {len(after.name.drops)} drops, its parent {len(before.name.drops)}"
    if after.is_tombstone and not before.is_tombstone and after.name.drops[-1].version != after.version:
        yield f"the table was dropped in version {after.version}, but it records {after.name.drops[-1].version}"
    if purges(before, after):
        if after.totals != Totals():
            yield f"its table was purged, but the totals are {after.totals}"
        if after.versions.oldest != after.version or after.tags:
            yield f"its table was purged, but versions from {after.versions.oldest} on can be read"
    elif before.is_tombstone and after.is_tombstone and after.totals != before.totals:
        yield f"the totals of a dropped table changed from {before.totals} to {after.totals}"


def starts_new_table(before: RootHeader, after: RootHeader) -> bool:
    """Whether `after` is the first root of a new table under the name of a dropped one."""
    return before.is_tombstone and after.table_uuid != before.table_uuid


def purges(before: RootHeader, after: RootHeader) -> bool:
    """Whether the table of `before` was purged in `after`."""
    is_purged = bool(after.name.drops) and after.name.drops[-1].is_purged and after.is_tombstone
    return is_purged and not (before.is_tombstone and before.name.drops[-1].is_purged)


def beginning_violations(before: RootHeader, after: RootHeader) -> Iterator[str]:
    """Violations in the first root of a new table of the name, compared with the tombstone before, as sentences."""
    yield from drop_violations(before, after)
    if after.snapshot.parent_id is not None:
        yield f"it is the first root of its table, but its parent snapshot is {after.snapshot.parent_id}"
    if after.versions.oldest != after.version or after.tags or after.restores.restored_at or after.restores.replaced_at:
        yield "it can reach versions, tags, restores or replaces of the earlier table of its name"
    expiry, drops, known_drops = after.versions.expiry, after.name.drops, before.name.drops
    if expiry is None or expiry.given_up_bytes != after.earlier_bytes or expiry.kept is not None:
        yield f"its expiry is {expiry}, but the roots before it have {after.earlier_bytes} bytes"
    if drops != known_drops or after.table_uuid in {item.table_uuid for item in known_drops}:
        yield f"table {after.table_uuid} begins after {len(known_drops)} drops, but records {len(drops)}"
    was, now = before.locations, after.locations
    if now.horizon_ms != was.horizon_ms or len(now.condemned) != len(was.condemned):
        yield "the condemned locations or the horizon changed"


def dropped(draft: Draft, *, is_purged: bool) -> CarriedFields:
    """The carried fields of the tombstone that replaces the table or view of `draft`."""
    record = Drop(draft.definition.table_uuid, draft.version, 0, is_purged)  # the header sets the time
    drops = (*draft.carried.name.drops, record)[-DROPS_MAX:]
    return replace(draft.carried, name=replace(draft.carried.name, state=NameState.TOMBSTONE, drops=drops, view=None))


def _word(before: RootHeader, name_is: NameState, drops: tuple[Drop, ...], *, is_new: bool) -> str | None:
    if is_new:
        return "dropped" if name_is is NameState.TOMBSTONE else "created"
    purged = name_is is NameState.TOMBSTONE and drops[-1].is_purged
    if purged and not (before.is_tombstone and before.name.drops[-1].is_purged):
        return "purged"
    return _WORDS.get((before.name.state, name_is))
