"""The part `name`: how a name becomes a table, a view or a tombstone, and what the summary states of it.

Owns: the words of the summary, the rules between roots where a name stops being a table or becomes one. Does not own:
the kinds that do it (`rootline.tree.intents`), who searches for tables (`rootline.tree.state.addressable`).
Invariants: Drops are only added. A purged table has no entries and no readable version before its purge.

Source: definitions page, sections 2 and 3. Decision 0067.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from rootline.schemas.parts.name import Drop, NameRecord, NameState
from rootline.schemas.root_header import RootHeader, Totals
from rootline.schemas.view_metadata import ViewMetadata
from rootline.tree.parts.part_rules import Advance, BatchFacts, PartRules

NAME_IS: Final = "rootline.name"
"""Key of a snapshot's summary: `dropped`, `purged`, `restored` or `created`, if it changed the name's state."""
VIEW_VERSION: Final = "rootline.view"
"""Key of a snapshot's summary: the view's current version, if its intents changed the view."""
_WORDS: Final = {
    (NameState.TABLE, NameState.TOMBSTONE): "dropped",
    (NameState.TOMBSTONE, NameState.TABLE): "restored",
}


def _advance(name: NameRecord, step: Advance) -> NameRecord:
    """Date the drop of this root."""
    if all(item.dropped_ms for item in name.drops):
        return name
    dated = [item if item.dropped_ms else item._replace(dropped_ms=step.latest_ms) for item in name.drops]
    return replace(name, drops=tuple(dated))


def starts_new_table(before: RootHeader, after: RootHeader) -> bool:
    """Whether `after` is the first root of a new table under the name of a dropped one."""
    return before.is_tombstone and after.table_uuid != before.table_uuid


def purges(before: RootHeader, after: RootHeader) -> bool:
    """Whether the table of `before` was purged in `after`."""
    return _is_purged(after.name.state, after.name.drops) and not _is_purged(before.name.state, before.name.drops)


def _summary(before: NameRecord | None, after: NameRecord, facts: BatchFacts) -> Mapping[str, str]:
    summary = {}
    if before is None:
        word = "dropped" if after.state is NameState.TOMBSTONE else None
    else:
        word = _word(before, after, is_new=facts.is_new)
    if word is not None:
        summary[NAME_IS] = word
    view = (
        None if before is not None and facts.is_new else _view_word(None if before is None else before.view, after.view)
    )
    if view is not None:
        summary[VIEW_VERSION] = view
    return summary


def _rule(before: RootHeader, after: RootHeader) -> Iterator[str]:
    yield from _state_violations(before, after)
    stated, word = after.snapshot.summary.get(VIEW_VERSION), _view_word(before.name.view, after.name.view)
    if stated != word:
        yield f"its view is at version {word}, but its summary states {stated!r:.40}"
    if (after.name.view is not None) is not (after.name.state is NameState.VIEW):
        yield f"its name is {after.name.state}, but it has {'a' if after.name.view else 'no'} view"
    if after.name.view is not None and after.totals != Totals():
        yield f"it is a view, but its totals are {after.totals}"


def _state_violations(before: RootHeader, after: RootHeader) -> Iterator[str]:
    was, now = before.name, after.name
    stated = after.snapshot.summary.get(NAME_IS)
    word = _word(was, now, is_new=after.table_uuid != before.table_uuid)
    if stated != word:
        yield f"its name is {now.state} after {was.state}: {word}, but its summary states {stated!r:.40}"
    if len(now.drops) < len(was.drops):
        yield f"it records {len(now.drops)} drops, its parent {len(was.drops)}"
    if after.is_tombstone and not before.is_tombstone and now.drops[-1].version != after.version:
        yield f"the table was dropped in version {after.version}, but it records {now.drops[-1].version}"
    if purges(before, after):
        if after.totals != Totals():
            yield f"its table was purged, but the totals are {after.totals}"
        if after.versions.oldest != after.version or after.tags:
            yield f"its table was purged, but versions from {after.versions.oldest} on can be read"
    elif before.is_tombstone and after.is_tombstone and after.totals != before.totals:
        yield f"the totals of a dropped table changed from {before.totals} to {after.totals}"


def _begins(before: RootHeader, after: RootHeader) -> Iterator[str]:
    yield from _state_violations(before, after)
    if after.snapshot.parent_id is not None:
        yield f"it is the first root of its table, but its parent snapshot is {after.snapshot.parent_id}"
    was, now = before.name.drops, after.name.drops
    if now != was or after.table_uuid in {item.table_uuid for item in was}:
        yield f"table {after.table_uuid} begins after {len(was)} drops, but records {len(now)}"


def _word(before: NameRecord, after: NameRecord, *, is_new: bool) -> str | None:
    if is_new:
        return "dropped" if after.state is NameState.TOMBSTONE else "created"
    if _is_purged(after.state, after.drops) and not _is_purged(before.state, before.drops):
        return "purged"
    return _WORDS.get((before.state, after.state))


def _is_purged(state: NameState, drops: tuple[Drop, ...]) -> bool:
    return state is NameState.TOMBSTONE and bool(drops) and drops[-1].is_purged


def _view_word(before: bytes | None, after: bytes | None) -> str | None:
    if after is None or after == before:
        return None
    return str(ViewMetadata.from_json(after).current_version_id)


NAME: Final = PartRules("name", _summary, _rule, _begins, advance=_advance)
