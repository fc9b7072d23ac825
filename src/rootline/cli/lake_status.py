"""The states of all tables of a lake, from its store and its log, for `rootline status` and for the console.

Owns: joining what both report. Does not own: reading them (`head_board`, `rootline.adapters.log_state`), the word
for a table's state (`rootline.coordinator.runtime.table.table_states`), how it is shown.
Invariants: changes nothing and hosts nothing; what store or log does not report is left out, and that is reported.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rootline.cli.head_board import HeadCache
from rootline.connect import LogState, log_behind_root, look_at_log
from rootline.coordinator.http.lake_view import TableStatus
from rootline.coordinator.runtime.table.table_states import TableFacts, TableState, facts_of_written, state_of
from rootline.ports.parking import ParkedTable
from rootline.ports.pausing import ALL_TABLES, Pause, pause_of
from rootline.schemas.errors import RootlineError
from rootline.schemas.identifiers import TableName, Version

_COMPARED_MAX: Final = 50
"""Of tables whose records wait: so many are compared with the log at each look."""


async def look_at_tables(
    board: HeadCache, warehouse: str, log: str | None, only: TableName | None = None
) -> tuple[list[TableStatus], list[str]]:
    """Every table, or `only` one, by name; and what did not answer."""
    troubles: list[str] = []
    state: LogState | None = None
    heads: Mapping[TableName, Version] = {}
    try:
        state = await look_at_log(warehouse, log)
    except RootlineError as error:
        troubles.append(f"the log: {error}")
    try:
        heads = await board.refresh(() if state is None else state.tables)
    except RootlineError as error:
        troubles.append(f"the store: {error}")
    names = {only} if only is not None else {*heads, *(() if state is None else _named_by(state))}
    if state is None:
        return [TableStatus(name, TableState.UNKNOWN, heads.get(name)) for name in sorted(names)], troubles
    pauses, parked = {pause.table: pause for pause in state.pauses}, _parked(state)
    behind = await _behind_root(board, warehouse, log, [name for name in sorted(names) if _may_be_behind(state, name)])
    held = {
        name: _Held(pause_of(pauses, name), parked.get(name, []), board.damaged.get(name, ""), behind.get(name, ""))
        for name in names
    }
    return [_status(name, heads.get(name), state, held[name]) for name in sorted(names)], troubles


def facts_of_log(pause: Pause | None, parked: Sequence[ParkedTable]) -> TableFacts:
    """The facts that a log states about a table that is paused or cannot go on."""
    found = facts_of_written(parked[0].why) if parked else TableFacts()
    return found if pause is None else replace(found, paused=pause.reason)


def _named_by(state: LogState) -> set[TableName]:
    return {name for name in state.tables if name and name != ALL_TABLES}


@dataclass(frozen=True, slots=True)
class _Held:
    """The obstacles to deciding a table's intents, or to reading its rows."""

    pause: Pause | None
    parked: Sequence[ParkedTable]
    damaged: str
    behind: str


def _may_be_behind(state: LogState, name: TableName) -> bool:
    """Whether records of the table wait on an embedded log, which can be compared with its root."""
    return not state.of_partition and state.waiting_of(name).records > 0


async def _behind_root(
    board: HeadCache, warehouse: str, log: str | None, names: Sequence[TableName]
) -> dict[TableName, str]:
    """Why the log is not the one whose records a table's root has decided, for each of `names` where it is not."""
    found: dict[TableName, str] = {}
    for name in names[:_COMPARED_MAX]:
        with contextlib.suppress(RootlineError):  # a store or a root that cannot be read is told elsewhere
            root = await board.newest_root(name)
            why = None if root is None else await asyncio.to_thread(log_behind_root, log, warehouse, root.header)
            if why is not None:
                found[name] = why
    return found


def _parked(state: LogState) -> dict[TableName, list[ParkedTable]]:
    found: dict[TableName, list[ParkedTable]] = {}
    for each in state.parked:
        found.setdefault(each.table, []).append(each)
    return found


def _status(name: TableName, head: Version | None, state: LogState, held: _Held) -> TableStatus:
    waiting, owner = state.waiting_of(name), state.owner_of(name)
    parked = sum(each.records for each in held.parked)
    known = [waiting.oldest_ms, *(each.oldest_ms for each in held.parked)]
    oldest_ms = min((found for found in known if found is not None), default=None)
    what, why = _state_of(held, state, waiting.records, owner)
    return TableStatus(name, what, head, waiting.records + parked, oldest_ms, owner, why, parked)


def _state_of(held: _Held, state: LogState, waiting: int, owner: str | None) -> tuple[TableState, str]:
    nobody = "no coordinator has it: start one with `rootline up` or `rootline coordinator`"
    waits = "intents of its partition wait for verdicts" if state.of_partition else "intents wait"
    of_log = facts_of_log(held.pause, held.parked)
    return state_of(
        replace(
            of_log,
            quarantined=of_log.quarantined or (f"log-behind-root: {held.behind}" if held.behind else ""),
            damaged=held.damaged,
            unowned=nobody if owner is None else "",
            waits=waits if waiting else "",
        )
    )
