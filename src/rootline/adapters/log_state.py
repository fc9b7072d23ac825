"""How a lake's log is, seen from outside: who reads it, what waits on it, what is paused or parked.

Owns: the values, and the choice of the log. Does not own: asking each kind of log (`sqlite/undecided_rows`,
`kafka/group/state`), heads of tables (the store has them).
Invariants: nothing is changed and no group is joined; what is asked does not grow with the number of tables.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rootline.adapters.open import is_kafka, log_name, open_lock, open_topics
from rootline.adapters.pausing import known_pauses, stuck_tables
from rootline.adapters.sqlite.undecided_rows import undecided_in
from rootline.ports.intent_feed import ParkedTable, Pause
from rootline.schemas.identifiers import TableName


@dataclass(frozen=True, slots=True)
class Waiting:
    """Records that are not known to be decided, and when the oldest of them was appended, ms."""

    records: int = 0
    oldest_ms: int | None = None


NOTHING_WAITS = Waiting()


@dataclass(frozen=True, slots=True)
class LogState:
    """`coordinators`: who reads the log. `parked`: tables that cannot go on, and those whose records were moved.

    `of_partition`: a table's owner and what waits are known of its partition only, which it may share.
    """

    coordinators: tuple[str, ...]
    pauses: tuple[Pause, ...]
    parked: tuple[ParkedTable, ...]
    owner_of: Callable[[TableName], str | None]
    waiting_of: Callable[[TableName], Waiting]
    tables: frozenset[TableName]
    of_partition: bool


async def look_at_log(warehouse: str, log: str | None) -> LogState:
    """How the log is now.

    Raises:
        Unavailable: `log-unavailable`. Invalid: `setting-invalid`.

    """
    pauses = tuple(await known_pauses(warehouse, log))
    if not is_kafka(log):
        stuck = tuple(await stuck_tables(warehouse, log))
        return await asyncio.to_thread(_embedded, warehouse, log, pauses, stuck)
    topics = open_topics(log)
    group = await asyncio.to_thread(topics.state)
    parked = tuple(await asyncio.to_thread(topics.parked))
    return LogState(
        group.members,
        pauses,
        parked,
        lambda table: group.owners.get(group.partition_of(table)),
        lambda table: Waiting(*group.waiting.get(group.partition_of(table), (0, None))),
        frozenset([*(pause.table for pause in pauses), *(each.table for each in parked)]),
        of_partition=True,
    )


def _embedded(warehouse: str, log: str | None, pauses: tuple[Pause, ...], stuck: tuple[ParkedTable, ...]) -> LogState:
    lock = open_lock(warehouse, log)
    is_hosted = lock is not None and lock.is_held()
    host = f"process {lock.holder_pid()}" if lock is not None and is_hosted else None
    waiting: Mapping[TableName, Waiting] = {
        TableName(name): Waiting(*found) for name, found in undecided_in(Path(log_name(log, warehouse))).items()
    }
    return LogState(
        () if host is None else (host,),
        pauses,
        stuck,
        lambda _: host,
        lambda table: waiting.get(table, NOTHING_WAITS),
        frozenset((*waiting, *(pause.table for pause in pauses))),
        of_partition=False,
    )
