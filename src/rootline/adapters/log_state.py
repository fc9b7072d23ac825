"""A lake's log from an operator's view: readers, waiting records, pauses, parked tables and lifts.

Owns: the values, and the choice of the log. Does not own: asking each kind of log (`sqlite/log_archive`,
`kafka/administration`), storing pauses and lifts (`sqlite/meta_rows`, `kafka/pauses`), carrying them out
(coordinators), heads of tables (the store has them).
Invariants: No log is created and no consumer group is joined. A question changes nothing, and its cost does not grow
with the number of tables. A paused table keeps the time and the reason of its first pause. A lift is only an
operator's request to retry a parked table. It succeeds whether or not a coordinator runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from rootline.adapters.open import is_kafka, log_name, open_lock, open_stored_log, open_topics
from rootline.adapters.sqlite.undecided import undecided_in
from rootline.ports.intent_feed import Lift, ParkedTable, Pause, pause_of
from rootline.schemas.errors import RootlineError
from rootline.schemas.identifiers import TableName

if TYPE_CHECKING:
    from rootline.adapters.kafka.pauses import KafkaPauses
    from rootline.adapters.sqlite.intent_log import SqliteIntentLog

_PATIENCE_S: Final = 3.0
_CLOSING_S: Final = 0.5

_Opened = TypeVar("_Opened", bound="KafkaPauses | SqliteIntentLog")


def open_marks(warehouse: str, log: str | None) -> KafkaPauses | SqliteIntentLog:
    """Open the pauses of an existing log, on the loop that will use them. Raises `Invalid`, `Unavailable`."""
    if is_kafka(log):
        settings = open_topics(log).settings
        from rootline.adapters.kafka.pauses import KafkaPauses

        return KafkaPauses(settings)
    return open_stored_log(log, warehouse)


@contextlib.asynccontextmanager
async def _closing(opened: _Opened) -> AsyncIterator[_Opened]:
    try:
        yield opened
    finally:
        await opened.close()


async def known_pauses(warehouse: str, log: str | None) -> Sequence[Pause]:
    """The pauses in force. Raises the errors of `open_marks`."""
    async with _closing(open_marks(warehouse, log)) as marks:
        return await marks.pauses()


class PauseQuestion:
    """A repeated question about the pause of a table, through one connection. For one event loop."""

    def __init__(self, warehouse: str, log: str | None, table: TableName) -> None:
        self._place, self._table = (warehouse, log), table
        self._answers = self._answer_repeatedly()
        self._next: asyncio.Future[Pause | None] | None = None

    async def pause(self) -> Pause | None:
        """The pause that applies. `None`: none applies, or the log did not answer within 3 s."""
        if self._next is None:  # otherwise an earlier question, which the log has not answered yet
            self._next = asyncio.ensure_future(anext(self._answers))
        await asyncio.wait({self._next}, timeout=_PATIENCE_S)
        if not self._next.done():
            return None
        answered, self._next = self._next, None
        return answered.result()

    async def aclose(self) -> None:
        """Close the connection. A log that does not respond is not waited for."""
        await asyncio.wait({asyncio.ensure_future(self._close())}, timeout=_CLOSING_S)

    async def _close(self) -> None:
        if self._next is not None:
            self._next.cancel()
            await asyncio.wait({self._next})
        await self._answers.aclose()

    async def _answer_repeatedly(self) -> AsyncGenerator[Pause | None]:
        while True:
            with contextlib.suppress(RootlineError):
                async with _closing(open_marks(*self._place)) as marks:
                    while True:
                        yield pause_of({pause.table: pause for pause in await marks.pauses()}, self._table)
            yield None


async def pause_table(warehouse: str, log: str | None, table: TableName, why: str) -> tuple[Pause, bool]:
    """Begin a pause, unless the table is paused already. Raises the errors of `open_marks`.

    Returns:
        The pause in force, and whether this call began it.
    """
    async with _closing(open_marks(warehouse, log)) as marks:
        known = {pause.table: pause for pause in await marks.pauses()}
        if table in known:
            return known[table], False
        begun = Pause(table, time.time_ns() // 1_000_000, why)
        await marks.pause(begun)
        return begun, True


async def resume_table(warehouse: str, log: str | None, table: TableName) -> tuple[Pause | None, Sequence[Pause]]:
    """End a pause. Raises the errors of `open_marks`.

    Returns:
        The pause that ended, if there was one, and the pauses that remain.
    """
    async with _closing(open_marks(warehouse, log)) as marks:
        known = {pause.table: pause for pause in await marks.pauses()}
        ended = known.pop(table, None)
        if ended is not None:
            await marks.resume(ended)
        return ended, tuple(known.values())


async def stuck_tables(warehouse: str, log: str | None) -> Sequence[ParkedTable]:
    """The parked and quarantined tables, by name and partition. Raises the errors of `open_marks`."""
    if is_kafka(log):
        return await asyncio.to_thread(open_topics(log).parked)
    async with _closing(open_stored_log(log, warehouse)) as marks:
        stuck = await marks.stuck()
    waiting = await asyncio.to_thread(undecided_in, Path(log_name(log, warehouse))) if stuck else {}
    return [each for each in stuck if each.table in waiting]  # otherwise an older version has decided its records since


async def lift_table(
    warehouse: str, log: str | None, table: TableName, *, without_missing: bool
) -> Sequence[ParkedTable]:
    """Ask coordinators to retry a parked table.

    Returns the notice of each partition in which the table is parked. Empty: it is not parked.

    Raises the errors of `open_marks`.
    """
    if is_kafka(log):
        topics = open_topics(log)
        return await asyncio.to_thread(lambda: topics.lift(table, without_missing=without_missing))
    async with _closing(open_stored_log(log, warehouse)) as marks:
        found = [stuck for stuck in await marks.stuck() if stuck.table == table]
        for stuck in found:
            await marks.mark_lift(Lift(table, stuck.log, stuck.partition, name=uuid.uuid4().hex), over=False)
        return found


@dataclass(frozen=True, slots=True)
class Waiting:
    """The number of records without a known verdict, and when the oldest of them was appended, ms since the epoch."""

    records: int = 0
    oldest_ms: int | None = None


NOTHING_WAITS = Waiting()


@dataclass(frozen=True, slots=True)
class LogState:
    """The state of a log. `coordinators`: its readers. `parked`: parked and quarantined tables.

    `of_partition`: `owner_of` and `waiting_of` describe the whole partition of a table, which other tables may share.
    """

    coordinators: tuple[str, ...]
    pauses: tuple[Pause, ...]
    parked: tuple[ParkedTable, ...]
    owner_of: Callable[[TableName], str | None]
    waiting_of: Callable[[TableName], Waiting]
    tables: frozenset[TableName]
    of_partition: bool


async def look_at_log(warehouse: str, log: str | None) -> LogState:
    """Read the state of the log.

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
