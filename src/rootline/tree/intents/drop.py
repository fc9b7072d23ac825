"""The kinds `drop` and `purge`: the table goes, its name comes free.

Owns: their rules, what a drop leaves behind, how `restore` brings a table back, and what must hold between roots where
a name stops being a table or becomes one again. Does not own: who looks for tables (`name_state`), what a new table of
the name begins with (`rootline.tree.draft.draft`), deletion (the sweep).
Invariants: a dropped table keeps its entries, definition and ledger in its tombstones, so that it can come back as it
was; one that is purged keeps none. A drop names the table's uuid, so that it never hits the table that came after.

Source: definitions page, section 2; decision 0067.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from rootline.schemas.bytes.root.header_name import DROPS_MAX
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import Intent
from rootline.schemas.root_header import Drop, Expiry, NameState, RootHeader, Totals
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.draft.batch import FetchedObjects
from rootline.tree.draft.carried import CarriedFields
from rootline.tree.draft.change import Beginning, Change, Effect
from rootline.tree.draft.draft import Draft
from rootline.tree.state.name_state import dropped_words

NAME_IS: Final = "rootline.name"
"""In a snapshot's summary: `dropped`, `purged`, `restored` or `created`, where its intents changed what the name is."""
KEPT_PROPERTY: Final = "rootline.drop.retention-seconds"
"""How long a dropped table can be brought back, before workers purge it."""
KEPT_S_DEFAULT: Final = 7 * 24 * 3600
_WORDS: Final = {
    (NameState.TABLE, NameState.TOMBSTONE): "dropped",
    (NameState.TOMBSTONE, NameState.TABLE): "restored",
}


def drop(draft: Draft, _intent: Intent, _fetched: FetchedObjects) -> Change:
    """The table is no longer there; `restore` brings it back. Raises `Invalid` (`table-dropped`)."""
    if draft.is_tombstone:
        raise Invalid("table-dropped", dropped_words(draft.table, draft.carried.drops[-1]))
    return Change(Effect.NOTHING, carried=dropped(draft, is_purged=False))


def purge(draft: Draft, intent: Intent, _fetched: FetchedObjects) -> Beginning:
    """The table and its files go for good, dropped before or not.

    Every version before it is given up, tagged ones included: no one can read them any more.

    `made_from_version`, which workers name: only what was dropped in that version, and only when its time is over.

    Raises:
        Invalid: `table-dropped`, it was purged before; `purge-stale`, what a worker saw is not so.

    """
    carried = draft.carried
    if intent.made_from_version is not None:
        _check_is_over(draft, intent.made_from_version)
    if not draft.is_tombstone:
        carried = dropped(draft, is_purged=True)
    elif carried.drops[-1].is_purged:
        raise Invalid("table-dropped", dropped_words(draft.table, carried.drops[-1]))
    else:
        carried = replace(carried, drops=(*carried.drops[:-1], carried.drops[-1]._replace(is_purged=True)))
    carried = without_past(draft, carried)
    return Beginning(draft.definition, carried.definition, None, Effect.REMOVES, carried=carried)


def without_past(draft: Draft, carried: CarriedFields) -> CarriedFields:
    """`carried` where no version before the next root can be read any more."""
    assert draft.parent is not None, "a root that other intents made"
    given_up = Expiry(draft.parent.header.earlier_bytes + draft.parent.root.size_in_bytes)
    return replace(carried, oldest_version=draft.version, tags={}, expiry=given_up)


def kept_until_ms(drop: Drop, definition: TableDefinition) -> int:
    """Until when a dropped table can be brought back, if no one purges it (milliseconds, epoch).

    A property that is no number counts as not set.
    """
    text = definition.properties.get(KEPT_PROPERTY, "")
    is_number = text.isascii() and text.isdigit() and len(text) <= 10
    return drop.dropped_ms + (int(text) if is_number else KEPT_S_DEFAULT) * 1000


def _check_is_over(draft: Draft, made_from: int) -> None:
    last = draft.carried.drops[-1] if draft.is_tombstone else None
    if last is None or last.version != made_from or not last.dropped_ms:
        raise Invalid("purge-stale", f"{draft.table} is not what was dropped in version {made_from}: look at it again")
    until_ms = kept_until_ms(last, draft.definition)
    if draft.appended_ms < until_ms:
        raise Invalid(
            "purge-stale",
            f"{draft.table} was dropped in version {made_from} and is kept until {until_ms}; the intent was published "
            f"at {draft.appended_ms}",
        )


def brought_back(draft: Draft, intent: Intent) -> Change:
    """The dropped table as it was, under its uuid.

    Raises:
        Invalid: `table-dropped`, it was purged; `restore-impossible`, the intent names another version than the drop's.

    """
    last = draft.carried.drops[-1]
    if last.is_purged:
        raise Invalid("table-dropped", dropped_words(draft.table, last))
    if intent.ref is None or intent.ref.version != last.version:
        raise Invalid(
            "restore-impossible",
            f"{draft.table} was dropped in version {last.version}: name that one to bring the table back, and restore "
            "an earlier version after it",
        )
    return Change(Effect.NOTHING, carried=replace(draft.carried, name_is=NameState.TABLE))


def summary_of_drops(before: RootHeader | None, draft: Draft) -> dict[str, str]:
    """What a root's summary says of what its name is."""
    if before is None:
        return {NAME_IS: "dropped"} if draft.is_tombstone else {}
    word = _word(
        before, draft.carried.name_is, draft.carried.drops, is_new=draft.definition.table_uuid != before.table_uuid
    )
    return {} if word is None else {NAME_IS: word}


def drop_violations(before: RootHeader, after: RootHeader) -> Iterator[str]:
    """What is wrong with what a root says of its name, given the root before it, in words."""
    stated = after.snapshot.summary.get(NAME_IS)
    word = _word(before, after.name_is, after.drops, is_new=after.table_uuid != before.table_uuid)
    if stated != word:
        yield f"its name is {after.name_is} after {before.name_is}: {word}, its summary says {stated!r:.40}"
    if len(after.drops) < len(before.drops):
        yield f"{len(after.drops)} drops are remembered, the parent remembers {len(before.drops)}"
    if after.is_tombstone and not before.is_tombstone and after.drops[-1].version != after.version:
        yield f"the table is dropped in version {after.version}, it says {after.drops[-1].version}"
    if purges(before, after):
        if after.totals != Totals():
            yield f"its table was purged, and the totals are {after.totals}"
        if after.oldest_version != after.version or after.tags:
            yield f"its table was purged, and versions from {after.oldest_version} on can be read"
    elif before.is_tombstone and after.is_tombstone and after.totals != before.totals:
        yield f"the totals of a dropped table are {after.totals}, they were {before.totals}"


def starts_new_table(before: RootHeader, after: RootHeader) -> bool:
    """Whether `after` is the first root of another table of the name."""
    return before.is_tombstone and after.table_uuid != before.table_uuid


def purges(before: RootHeader, after: RootHeader) -> bool:
    """Whether the table of `before` was purged in `after`."""
    is_purged = bool(after.drops) and after.drops[-1].is_purged and after.is_tombstone
    return is_purged and not (before.is_tombstone and before.drops[-1].is_purged)


def beginning_violations(before: RootHeader, after: RootHeader) -> Iterator[str]:
    """What is wrong with the first root of another table of the name, given the tombstone before it, in words."""
    yield from drop_violations(before, after)
    if after.snapshot.parent_id is not None:
        yield f"it is the first of its table, its parent snapshot is {after.snapshot.parent_id}"
    if after.oldest_version != after.version or after.tags or after.restored_at or after.replaced_at:
        yield "it can reach versions, tags, restores or replaces of the table that had the name before"
    if after.expiry is None or after.expiry.given_up_bytes != after.earlier_bytes or after.expiry.kept is not None:
        yield f"it gives up {after.expiry}, of {after.earlier_bytes} bytes of roots before it"
    if after.drops != before.drops or after.table_uuid in {item.table_uuid for item in before.drops}:
        yield f"table {after.table_uuid} begins after {len(before.drops)} drops and remembers {len(after.drops)}"
    if after.horizon_ms != before.horizon_ms or len(after.condemned) != len(before.condemned):
        yield "what no root may add any more changed"


def dropped(draft: Draft, *, is_purged: bool) -> CarriedFields:
    """What a tombstone carries of the table or view that `draft` is."""
    said = Drop(draft.definition.table_uuid, draft.version, 0, is_purged)  # the header puts the root's time in
    drops = (*draft.carried.drops, said)[-DROPS_MAX:]
    return replace(draft.carried, name_is=NameState.TOMBSTONE, drops=drops, view=None)


def _word(before: RootHeader, name_is: NameState, drops: tuple[Drop, ...], *, is_new: bool) -> str | None:
    if is_new:
        return "dropped" if name_is is NameState.TOMBSTONE else "created"
    purged = name_is is NameState.TOMBSTONE and drops[-1].is_purged
    if purged and not (before.is_tombstone and before.drops[-1].is_purged):
        return "purged"
    return _WORDS.get((before.name_is, name_is))
