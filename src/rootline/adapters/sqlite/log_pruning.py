"""Deleting from the embedded log what was decided long ago, a little at a time.

Owns: the SQL of one step. Does not own: what may go (`pruning_state`), the transaction (`log_file`), when it is done
(`pruning_loop`).
Invariants: a record without a verdict is never deleted; a record, its verdict and its dead letter go in one
transaction; a record that was rejected stays as long as its dead letter; a step deletes at most `limit` rows of a
table, so that publishers wait for it no longer than for another publisher.

The file does not shrink: SQLite uses the pages again for the records that follow.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, replace
from typing import Final

from rootline.adapters.sqlite.pruning_state import LogRetention, PruningState, looked_at, may_go_below

_STATE: Final = "pruning"
_RECORDS: Final = (
    "DELETE FROM intents WHERE log_offset >= ? AND log_offset < ?"
    " AND EXISTS (SELECT 1 FROM verdicts v WHERE v.log_offset = intents.log_offset)"
    " AND NOT EXISTS (SELECT 1 FROM dead_letters d WHERE d.log_offset = intents.log_offset)",
    "DELETE FROM verdicts WHERE log_offset >= ? AND log_offset < ?"
    " AND NOT EXISTS (SELECT 1 FROM intents i WHERE i.log_offset = verdicts.log_offset)",
)
_DEAD_LETTERS: Final = (
    "DELETE FROM intents WHERE log_offset >= ? AND log_offset < ?"
    " AND EXISTS (SELECT 1 FROM verdicts v WHERE v.log_offset = intents.log_offset)",
    "DELETE FROM verdicts WHERE log_offset >= ? AND log_offset < ?"
    " AND NOT EXISTS (SELECT 1 FROM intents i WHERE i.log_offset = verdicts.log_offset)",
    "DELETE FROM dead_letters WHERE log_offset >= ? AND log_offset < ?"
    " AND NOT EXISTS (SELECT 1 FROM intents i WHERE i.log_offset = dead_letters.log_offset)",
)


@dataclass(frozen=True, slots=True)
class Pruned:
    """What a step did: the log's beginning after it, and whether more may go now."""

    beginning: int
    more: bool


def prune_step(
    connection: sqlite3.Connection, retention: LogRetention, *, now_ms: int, decided_below: int, limit: int
) -> Pruned:
    """One step, inside the caller's transaction. `decided_below`: the log's first undecided offset."""
    state = looked_at(pruning_state(connection), now_ms=now_ms, decided_below=decided_below, retention=retention)
    records_to = may_go_below(state, retention.records_ms)
    records_end = _end_of_step(connection, "intents", state.records_below, records_to, limit)
    _delete(connection, _RECORDS, state.records_below, records_end)
    letters_to = min(may_go_below(state, retention.dead_letters_ms), records_end)
    letters_end = _end_of_step(connection, "dead_letters", state.dead_letters_below, letters_to, limit)
    _delete(connection, _DEAD_LETTERS, state.dead_letters_below, letters_end)
    state = replace(state, records_below=records_end, dead_letters_below=letters_end)
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_STATE, state.encode()))
    return Pruned(records_end, records_end < records_to or letters_end < letters_to)


def pruning_state(connection: sqlite3.Connection) -> PruningState:
    """What is stored; nothing may have been deleted yet."""
    found = connection.execute("SELECT value FROM meta WHERE name = ?", (_STATE,)).fetchone()
    return PruningState.decode(None if found is None else found[0])


def _end_of_step(connection: sqlite3.Connection, table: str, begin: int, to: int, limit: int) -> int:
    """The offset to which a step from `begin` goes: after `limit` rows, or `to`; never below `begin`."""
    if to <= begin:
        return begin
    query = (
        f"SELECT log_offset FROM {table} WHERE log_offset >= ? AND log_offset < ? ORDER BY log_offset LIMIT 1 OFFSET ?"
    )
    found = connection.execute(query, (begin, to, limit)).fetchone()
    return to if found is None else int(found[0])


def _delete(connection: sqlite3.Connection, statements: tuple[str, ...], begin: int, end: int) -> None:
    if begin < end:
        for statement in statements:
            connection.execute(statement, (begin, end))
