"""How all tables of a lake are, by its store and its log: for `rootline status` and for the console.

Owns: putting together what both say, and the one word for a table's state. Does not own: asking them (`head_board`,
`rootline.adapters.log_state`), how it is shown.
Invariants: changes nothing and hosts nothing; what one of store and log does not say is left out, and said.
"""

from __future__ import annotations

from collections.abc import Mapping

from rootline.cli.head_board import HeadBoard
from rootline.connect import LogState, look_at_log
from rootline.coordinator.http.lake_view import TableStatus
from rootline.ports.pausing import ALL_TABLES, pause_of
from rootline.schemas.errors import RootlineError
from rootline.schemas.identifiers import TableName, Version


async def look_at_tables(
    board: HeadBoard, warehouse: str, log: str | None, only: TableName | None = None
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
    return [_status(name, heads.get(name), state) for name in sorted(names)], troubles


def _named_by(state: LogState) -> set[TableName]:
    return {name for name in state.tables if name and name != ALL_TABLES}


def _status(name: TableName, head: Version | None, state: LogState | None) -> TableStatus:
    if state is None:
        return TableStatus(name, "unknown", head)
    waiting, owner = state.waiting_of(name), state.owner_of(name)
    parked = [each for each in state.parked if each.table == name]
    held = sum(each.records for each in parked)
    known = [waiting.oldest_ms, *(each.oldest_ms for each in parked)]
    oldest_ms = min((found for found in known if found is not None), default=None)
    what, why = _state_of(name, state, waiting.records, owner)
    return TableStatus(name, what, head, waiting.records + held, oldest_ms, owner, why, held)


def _state_of(name: TableName, state: LogState, waiting: int, owner: str | None) -> tuple[str, str]:
    pause = pause_of(state.pauses, name)
    if pause is not None:
        return "paused", pause.reason
    stuck = next((each.why for each in state.parked if each.table == name), None)
    if stuck is not None:
        return ("quarantined" if stuck.startswith("quarantined") else "parked"), stuck
    if owner is None:
        return "unowned", "no coordinator has it: start one with `rootline up` or `rootline coordinator`"
    if waiting:
        return "pending", "intents of its partition wait for verdicts" if state.of_partition else "intents wait"
    return "idle", ""
