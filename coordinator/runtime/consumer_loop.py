"""Reads the log and hands each record to its table.

Owns: the position on the log, the tables' loops, and a reader of its own for each table that does not keep up.
Does not own: what a table does with a record (`table_loop`), decoding (`record_decoding`).
Invariants: starts at the first record without a verdict; a record that cannot be decoded is answered and its bytes
kept as a dead letter before anything after it is read; every table gets its records in order and without a gap; no
table stops or delays the others or the reading; what is kept in memory does not grow with tables that do not exist.

Theory. A table whose queue is full takes no more records from this reader: the first offset that it missed is kept,
and a second reader, the table's own, hands over what follows from there whenever there is room, until it has come to
where this one is. So one stuck table costs its own queue and nothing else, and nothing is jumped over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from rootline.coordinator.runtime.record_decoding import Rejection, decoded
from rootline.coordinator.runtime.table_loop import TableLoop
from rootline.ports.environment import Environment
from rootline.ports.intent_log import IntentLog
from rootline.schemas.errors import OutcomeUnknown, Unavailable
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent_limits import IntentLimits
from rootline.schemas.log_position import LogId, LogRecord
from rootline.tree.batch import Record

_READ_MAX = 1_024
_UNKNOWN_TABLES_MAX = 100
_SETTLE_S = 0.01

LoopFactory = Callable[[TableName, dict[tuple[LogId, int], int]], TableLoop]


@dataclass(slots=True)
class ConsumerLoop:
    """One reader of one log. `tables` grows as records of new tables arrive; `position`: the next offset to hand out.

    `behind`: tables that their own readers serve; `trouble`: why the log cannot be read now, if it cannot.
    """

    log: IntentLog
    make_loop: LoopFactory
    environment: Environment
    limits: IntentLimits
    wait_s: float
    request_timeout_s: float
    tables: dict[TableName, TableLoop] = field(default_factory=dict)
    behind: set[TableName] = field(default_factory=set)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    caught_up: asyncio.Event = field(default_factory=asyncio.Event)
    position: int = 0
    trouble: str = ""
    _has_new_tables: bool = False
    _readers: set[asyncio.Task[None]] = field(default_factory=set)
    _acknowledged: dict[tuple[LogId, int], int] = field(default_factory=dict)

    async def run(self) -> None:
        """Until `request_stop`; then every table's loop finishes what it has in flight."""
        async with asyncio.TaskGroup() as tasks:
            try:
                await asyncio.wait({self._start_reader(self._read(tasks), tasks, "reader of the log")})
            finally:
                for loop in self.tables.values():
                    loop.request_stop()

    def request_stop(self) -> None:
        """Read no more: wherever a reader waits, it ends; what it had not handed out yet is read by the next owner."""
        self.stopping.set()
        for reader in self._readers:
            reader.cancel()

    def _start_reader(
        self, reading: Coroutine[Any, Any, None], tasks: asyncio.TaskGroup, name: str
    ) -> asyncio.Task[None]:
        reader = tasks.create_task(reading, name=name)
        self._readers.add(reader)
        reader.add_done_callback(self._readers.discard)
        return reader

    async def _read(self, tasks: asyncio.TaskGroup) -> None:
        self.position = await self.log.first_undecided()
        self._acknowledged = {(await self.log.identity(), 0): self.position}
        end = await self.log.end_offset()
        while not self.stopping.is_set():
            if self.position >= end:
                self.caught_up.set()
            records = await self._read_from(self.position, _READ_MAX, self.wait_s)
            if records is None:
                continue
            rejections = self._hand_out(records, tasks)
            if records:
                self.position = records[-1].position.offset + 1
            else:
                self.caught_up.set()
            if rejections:
                await self._reject(rejections)
            await self._let_unknown_tables_settle()

    async def _read_from(self, position: int, limit: int, wait_s: float) -> list[LogRecord] | None:
        """Records; none when none came; `None` when there is no answer, after a pause."""
        try:
            records = await self.log.read(position, limit=limit, wait_s=wait_s)
        except (Unavailable, OutcomeUnknown) as error:
            self.trouble = f"the log cannot be read: {error}"
            structlog.get_logger().warning("log unreadable", action="retry", reason=str(error))
            await self._pause()
            return None
        self.trouble = ""
        return records

    def _hand_out(self, records: Sequence[LogRecord], tasks: asyncio.TaskGroup) -> list[Rejection]:
        by_table: dict[TableName, list[Record]] = {}
        rejections: list[Rejection] = []
        for raw in records:
            result = decoded(raw, self.limits)
            if isinstance(result, Record):
                by_table.setdefault(TableName(result.intent.table), []).append(result)
            else:
                rejections.append(result)
        if not by_table.keys() <= self.tables.keys():
            self._forget_absent_tables()
        for table, own in by_table.items():
            if table not in self.behind:
                self._deliver(table, tuple(own), tasks)
        return rejections

    def _deliver(self, table: TableName, records: tuple[Record, ...], tasks: asyncio.TaskGroup) -> None:
        loop = self.tables.get(table)
        if loop is None:
            loop = self.make_loop(table, dict(self._acknowledged))
            self.tables[table] = loop
            self._has_new_tables = True
            tasks.create_task(loop.run(), name=f"table {table}")
        if loop.has_room:
            loop.deliver(records)
        else:
            self.behind.add(table)
            self._start_reader(self._catch_up(table, loop, records[0].position.offset), tasks, f"reader of {table}")

    async def _let_unknown_tables_settle(self) -> None:
        """Give the tables' loops a turn, and read no further while very many of them have yet to find their head."""
        await asyncio.sleep(0)
        if not self._has_new_tables:
            return
        self._has_new_tables = False
        while sum(loop.is_unknown for loop in self.tables.values()) > _UNKNOWN_TABLES_MAX:
            self._forget_absent_tables()
            await asyncio.sleep(_SETTLE_S)

    def _forget_absent_tables(self) -> None:
        """Let go of tables that do not exist, or nobody could stop a writer from filling the memory with names."""
        for table in [table for table, loop in self.tables.items() if loop.is_absent and table not in self.behind]:
            self.tables.pop(table).request_stop()

    async def _catch_up(self, table: TableName, loop: TableLoop, position: int) -> None:
        """Hand `loop` its records from `position` on, until the main reader is no further."""
        while True:
            await loop.wait_for_room()
            found = await self._read_from(position, _READ_MAX, 0.0)
            if found is None:
                continue
            # between here and the end of the turn the main reader hands out nothing, so that no record falls between
            passed = [raw for raw in found if raw.position.offset < self.position]
            own = [record for raw in passed if (record := self._record_of(table, raw)) is not None]
            if own:
                loop.deliver(tuple(own))
            position = passed[-1].position.offset + 1 if passed else self.position
            if position >= self.position:
                self.behind.discard(table)
                return

    def _record_of(self, table: TableName, raw: LogRecord) -> Record | None:
        if raw.key is not None and raw.key != table.encode():
            return None
        result = decoded(raw, self.limits)
        return result if isinstance(result, Record) and result.intent.table == table else None

    async def _reject(self, rejections: Sequence[Rejection]) -> None:
        for verdict, _ in rejections:
            structlog.get_logger().warning(
                "intent rejected", action="dead-letter", offset=verdict.offset, reason=verdict.message
            )
        verdicts, letters = [verdict for verdict, _ in rejections], [letter for _, letter in rejections]
        while True:
            try:
                async with asyncio.timeout(self.request_timeout_s):
                    await self.log.publish_verdicts(verdicts, letters)
                return
            except (Unavailable, OutcomeUnknown, TimeoutError):
                await self._pause()

    async def _pause(self) -> None:
        await asyncio.sleep(self.wait_s * (0.5 + 0.5 * self.environment.jitter()))
