"""Deletes records of the embedded log that were decided long ago, a few at a time.

Owns: the pruning state in the log and its form as JSON, the choice of offsets, the SQL of one step, the loop that runs
in the process that hosts the coordinator. Does not own: the transaction (`log_file`), the retention (the settings).
Invariants: A record without a verdict is never deleted. A record, its verdict and its dead letter are deleted in one
transaction. A rejected record is kept as long as its dead letter. An offset may be deleted only if a checkpoint as old
as the retention shows that every record below it had a verdict by then. The limits never decrease. A clock that jumps
ages the log by at most a day at each check. A step deletes at most `limit` rows of a table, so that publishers wait for
it no longer than for another publisher. A failure is logged and retried later, and never ends the coordinator.

Theory. The log's age is the time between all its checks so far. A checkpoint is a pair: the log's age, and its first
undecided offset at that age. Once a checkpoint is as old
as the retention, everything below its offset was decided at least that long ago. So neither records nor verdicts need
a timestamp, and log files of earlier versions of Rootline can be pruned too. The file does not
shrink: SQLite reuses the pages for the records that follow.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final, Self

from rootline.library_log import library_logger
from rootline.schemas.errors import RootlineError

STEP_MS_MAX: Final = 86_400_000
_CHECKPOINTS_MAX: Final = 128
_CHECK_EVERY_MS: Final = 300_000


@dataclass(frozen=True, slots=True)
class LogRetention:
    """Retention of decided records, in milliseconds of the log's age.

    Dead letters are kept at least as long as records.
    """

    records_ms: int
    dead_letters_ms: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The fact that at `age_ms` of the log's age every record below `decided_below` had a verdict."""

    age_ms: int
    decided_below: int


@dataclass(frozen=True, slots=True)
class PruningState:
    """The log's age and the offsets that were pruned. `seen_ms`: the wall clock at the last check.

    Below `records_below` and `dead_letters_below`, everything that may be deleted was deleted.
    """

    seen_ms: int = 0
    age_ms: int = 0
    checkpoints: tuple[Checkpoint, ...] = ()
    records_below: int = 0
    dead_letters_below: int = 0

    @classmethod
    def decode(cls, text: str | None) -> Self:
        """Decode from JSON. For `None`, return the state of a log that was never pruned."""
        if text is None:
            return cls()
        body = json.loads(text)
        checkpoints = tuple(Checkpoint(age_ms, below) for age_ms, below in body["checkpoints"])
        return cls(body["seen_ms"], body["age_ms"], checkpoints, body["records_below"], body["dead_letters_below"])

    def encode(self) -> str:
        """Encode as JSON."""
        return json.dumps(
            {
                "seen_ms": self.seen_ms,
                "age_ms": self.age_ms,
                "checkpoints": [[point.age_ms, point.decided_below] for point in self.checkpoints],
                "records_below": self.records_below,
                "dead_letters_below": self.dead_letters_below,
            }
        )


def checked(state: PruningState, *, now_ms: int, decided_below: int, retention: LogRetention) -> PruningState:
    """The state after a check of the log.

    `now_ms`: the wall clock. `decided_below`: the log's first undecided offset.
    """
    passed_ms = 0 if state.seen_ms == 0 else min(max(now_ms - state.seen_ms, 0), STEP_MS_MAX)
    age_ms = state.age_ms + passed_ms
    spacing_ms = retention.dead_letters_ms // _CHECKPOINTS_MAX
    points = state.checkpoints
    if not points or (points[-1].decided_below < decided_below and age_ms - points[-1].age_ms >= spacing_ms):
        points = (*points, Checkpoint(age_ms, decided_below))
    # of the checkpoints that are old enough for everything, only the newest is needed
    old = [point for point in points if age_ms - point.age_ms >= retention.dead_letters_ms]
    return PruningState(now_ms, age_ms, points[max(len(old) - 1, 0) :], state.records_below, state.dead_letters_below)


def is_due(state: PruningState, *, now_ms: int, retention: LogRetention) -> bool:
    """Whether the log should be checked: the last check was some minutes ago, or more can be deleted."""
    return (
        abs(now_ms - state.seen_ms) >= _CHECK_EVERY_MS
        or state.records_below < may_go_below(state, retention.records_ms)
        or state.dead_letters_below < may_go_below(state, retention.dead_letters_ms)
    )


def may_go_below(state: PruningState, retention_ms: int) -> int:
    """The offset below which every record has had a verdict for at least `retention_ms` of the log's age."""
    return max(
        (point.decided_below for point in state.checkpoints if state.age_ms - point.age_ms >= retention_ms), default=0
    )


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
    """The result of a step: the log's beginning after it, and whether more can be deleted now."""

    beginning: int
    more: bool


def prune_step(
    connection: sqlite3.Connection, retention: LogRetention, *, now_ms: int, decided_below: int, limit: int
) -> Pruned:
    """Run one step, inside the caller's transaction. `decided_below`: the log's first undecided offset."""
    state = checked(pruning_state(connection), now_ms=now_ms, decided_below=decided_below, retention=retention)
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
    """The stored state, or the state of a log that was never pruned."""
    found = connection.execute("SELECT value FROM meta WHERE name = ?", (_STATE,)).fetchone()
    return PruningState.decode(None if found is None else found[0])


def _end_of_step(connection: sqlite3.Connection, table: str, begin: int, to: int, limit: int) -> int:
    """The offset at which a step from `begin` ends: after `limit` rows, or at `to`, but never below `begin`."""
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


STEP_ROWS: Final = 500
_PAUSE_S: Final = 0.05
_INTERVAL_S: Final = 60.0

PruneStep = Callable[[], Awaitable[Pruned]]


async def pruning_loop(step: PruneStep, *, interval_s: float = _INTERVAL_S, pause_s: float = _PAUSE_S) -> None:
    """Prune until cancelled."""
    logger = library_logger("rootline.log")
    while True:
        try:
            more = True
            while more:
                more = (await step()).more
                await asyncio.sleep(pause_s)
        except RootlineError as error:
            logger.warning("the log was not pruned", action="prune-log", reason=str(error))
        await asyncio.sleep(interval_s)
