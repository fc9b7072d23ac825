"""The console's list of tables: what this coordinator has in memory and what the lake's log says, the worst first.

Owns: joining the two, the order, searching and paging. Does not own: where they come from (`own_tables`, `lake_view`).
Invariants: pure; a table is listed once; of two states the worse one is shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rootline.coordinator.http.lake_view import TableStatus
from rootline.coordinator.runtime.own_tables import OwnTable
from rootline.coordinator.runtime.table.table_states import BAD, LASTING, WARNS, TableState

STATES: Final = tuple(TableState)
"""The worst first."""
PENDING_BAD_MS: Final = 60_000
"""An intent that waits longer than that is trouble."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """One table. `is_here`: this coordinator has it in memory; numbers are `None` where no one said them."""

    name: str
    state: TableState
    severity: str
    why: str
    head: int | None
    owner: str | None
    is_here: bool
    lag: int | None
    oldest_ms: int | None
    parked: int
    committed_ms: int | None = None
    root_bytes: int | None = None
    rows: int | None = None
    data_files: int | None = None
    phase: str = ""


def table_rows(own: Iterable[OwnTable], others: Iterable[TableStatus], me: str, now_ms: int) -> list[TableRow]:
    """Every table, the worst first, then by name; `me`: what this coordinator is called."""
    rows = {table.name: _own_row(table, me, now_ms) for table in own}
    for status in others:
        mine = rows.get(status.table)
        rows[status.table] = _other_row(status, now_ms) if mine is None else _worse(mine, status, now_ms)
    return sorted(rows.values(), key=_order)


def selected(rows: Sequence[TableRow], search: str, state: str) -> list[TableRow]:
    """Those whose name or reason contains `search`, in any case, and that are in `state`; empty: all."""
    wanted = search.casefold().strip()
    return [
        row
        for row in rows
        if (not state or row.state == state)
        and (not wanted or wanted in row.name.casefold() or wanted in row.why.casefold())
    ]


def counts_of(rows: Iterable[TableRow]) -> dict[str, int]:
    """How many tables are in each state."""
    found = Counter(row.state for row in rows)
    return {state: found[state] for state in STATES if found[state]}


def _own_row(table: OwnTable, me: str, now_ms: int) -> TableRow:
    return TableRow(
        name=table.name,
        state=table.state,
        severity=_severity(table.state, table.pending_since_ms, now_ms),
        why=table.why,
        head=table.head,
        owner=me,
        is_here=True,
        lag=table.waiting + table.parked,
        oldest_ms=table.pending_since_ms,
        parked=table.parked,
        committed_ms=table.committed_ms,
        root_bytes=table.root_bytes,
        rows=table.rows,
        data_files=table.data_files,
        phase=table.phase,
    )


def _other_row(status: TableStatus, now_ms: int) -> TableRow:
    state = status.state
    return TableRow(
        name=status.table,
        state=state,
        severity=_severity(state, status.oldest_ms, now_ms),
        why=status.why,
        head=status.head,
        owner=status.owner,
        is_here=False,
        lag=status.lag,
        oldest_ms=status.oldest_ms,
        parked=status.parked or 0,
    )


def _worse(mine: TableRow, status: TableStatus, now_ms: int) -> TableRow:
    """This coordinator knows best, but for what others have said since: a pause, records that are parked, damage."""
    if mine.state is TableState.PAUSED or status.state not in LASTING:
        return mine
    is_worse = status.state is TableState.PAUSED or STATES.index(status.state) < STATES.index(mine.state)
    is_replaced = status.state is TableState.DAMAGED and (mine.head or 0) > (status.head or 0)
    if not is_worse or is_replaced:
        return mine
    return replace(
        mine,
        state=status.state,
        severity=_severity(status.state, mine.oldest_ms, now_ms),
        why=status.why or mine.why,
        parked=max(mine.parked, status.parked or 0),
    )


def _severity(state: TableState, oldest_ms: int | None, now_ms: int) -> str:
    waits_long = oldest_ms is not None and now_ms - oldest_ms > PENDING_BAD_MS
    if state in BAD or (state is TableState.PENDING and waits_long):
        return "bad"
    return "warn" if state in WARNS else "ok"


def _order(row: TableRow) -> tuple[int, int, int, str]:
    severities = ("bad", "warn", "ok")
    oldest = row.oldest_ms if row.oldest_ms is not None else 1 << 62
    return severities.index(row.severity), STATES.index(row.state), oldest, row.name
