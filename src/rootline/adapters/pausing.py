"""An operator's marks on a lake's log of any kind: pauses, and lifts of tables that cannot go on.

Owns: the choice of the log, and that a pause is begun and ended once. Does not own: where marks are kept
(`sqlite/log_file`, `kafka/pausing`, `kafka/parking_lot`), what coordinators do with them.
Invariants: no log is created; a table that is paused keeps the moment and the reason of its first pause; a lift only
asks, and works whether or not a coordinator runs.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from rootline.adapters.open import is_kafka, log_name, open_stored_log, open_topics
from rootline.adapters.sqlite.undecided_rows import undecided_in
from rootline.ports.intent_feed import Lift, ParkedTable, Pause
from rootline.schemas.identifiers import TableName


class PauseMarks(Protocol):
    """A log's pauses. Each method raises `Unavailable` (`log-unavailable`)."""

    async def pauses(self) -> Sequence[Pause]:
        """Those in force."""
        ...

    async def pause(self, pause: Pause) -> None:
        """It begins; durable when it returns."""
        ...

    async def resume(self, pause: Pause) -> None:
        """It ends; durable when it returns."""
        ...

    async def close(self) -> None:
        """Give back files and connections."""
        ...


def open_marks(warehouse: str, log: str | None) -> PauseMarks:
    """The pauses of a log that exists; on the loop that will use them. Raises `Invalid`, `Unavailable`."""
    if is_kafka(log):
        settings = open_topics(log).settings
        from rootline.adapters.kafka.pausing.administration import KafkaPauses

        return KafkaPauses(settings)
    return open_stored_log(log, warehouse)


async def known_pauses(warehouse: str, log: str | None) -> Sequence[Pause]:
    """Those in force. Raises as `open_marks`."""
    marks = open_marks(warehouse, log)
    try:
        return await marks.pauses()
    finally:
        await marks.close()


async def pause_table(warehouse: str, log: str | None, table: TableName, why: str) -> tuple[Pause, bool]:
    """Begin a pause; the one in force, and whether it was begun now. Raises as `open_marks`."""
    marks = open_marks(warehouse, log)
    try:
        known = {pause.table: pause for pause in await marks.pauses()}
        if table in known:
            return known[table], False
        begun = Pause(table, time.time_ns() // 1_000_000, why)
        await marks.pause(begun)
        return begun, True
    finally:
        await marks.close()


async def resume_table(warehouse: str, log: str | None, table: TableName) -> tuple[Pause | None, Sequence[Pause]]:
    """End a pause; the one that ended, if there was one, and those that go on. Raises as `open_marks`."""
    marks = open_marks(warehouse, log)
    try:
        known = {pause.table: pause for pause in await marks.pauses()}
        ended = known.pop(table, None)
        if ended is not None:
            await marks.resume(ended)
        return ended, tuple(known.values())
    finally:
        await marks.close()


async def stuck_tables(warehouse: str, log: str | None) -> Sequence[ParkedTable]:
    """Tables that cannot go on, by name and partition. Raises as `open_marks`."""
    if is_kafka(log):
        return await asyncio.to_thread(open_topics(log).parked)
    marks = open_stored_log(log, warehouse)
    try:
        stuck = await marks.stuck()
    finally:
        await marks.close()
    waiting = await asyncio.to_thread(undecided_in, Path(log_name(log, warehouse))) if stuck else {}
    return [each for each in stuck if each.table in waiting]  # else an older version decided its records since


async def lift_table(
    warehouse: str, log: str | None, table: TableName, *, without_missing: bool
) -> Sequence[ParkedTable]:
    """Ask coordinators to retry a table, and return why it cannot go on. If it can go on, nothing is asked.

    Raises as `open_marks`.
    """
    if is_kafka(log):
        topics = open_topics(log)
        return await asyncio.to_thread(lambda: topics.lift(table, without_missing=without_missing))
    marks = open_stored_log(log, warehouse)
    try:
        found = [stuck for stuck in await marks.stuck() if stuck.table == table]
        for stuck in found:
            await marks.mark_lift(Lift(table, stuck.log, stuck.partition, name=uuid.uuid4().hex), over=False)
        return found
    finally:
        await marks.close()
