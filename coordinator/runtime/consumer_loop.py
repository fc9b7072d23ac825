"""Reads the log and hands each record to its table.

Owns: the position on the log, decoding, the tables' loops. Does not own: what a table does with a record
(`table_loop`), framing (`rootline.schemas.intent_codec`).
Invariants: starts at the first record without a verdict; a record that cannot be decoded is answered and its bytes
kept as a dead letter before anything after it is read; a failing table stops neither the others nor the reading.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from rootline.coordinator.runtime.table_loop import TableLoop
from rootline.ports.environment import Environment
from rootline.ports.intent_log import IntentLog
from rootline.schemas.dead_letter import DeadLetter
from rootline.schemas.errors import Invalid, OutcomeUnknown, RootlineError, Unavailable
from rootline.schemas.identifiers import TableName, table_name
from rootline.schemas.intent_codec import decode_intent
from rootline.schemas.intent_limits import IntentLimits
from rootline.schemas.log_position import LogId, LogRecord
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.tree.batch import Record

_READ_MAX = 1_024
_UNDECODED = "?"

LoopFactory = Callable[[TableName, dict[tuple[LogId, int], int]], TableLoop]


@dataclass(slots=True)
class ConsumerLoop:
    """One reader of one log. `tables` grows as records of new tables arrive."""

    log: IntentLog
    make_loop: LoopFactory
    environment: Environment
    limits: IntentLimits
    wait_s: float
    tables: dict[TableName, TableLoop] = field(default_factory=dict)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    caught_up: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Until `request_stop`; then every table's loop finishes what it has in flight."""
        logger = structlog.get_logger()
        async with asyncio.TaskGroup() as tasks:
            try:
                await self._read(tasks, logger)
            finally:
                for loop in self.tables.values():
                    loop.request_stop()

    def request_stop(self) -> None:
        """Read no more."""
        self.stopping.set()

    async def _read(self, tasks: asyncio.TaskGroup, logger: structlog.typing.FilteringBoundLogger) -> None:
        identity = await self.log.identity()
        start = await self.log.first_undecided()
        position = start
        stopped = asyncio.ensure_future(self.stopping.wait())
        try:
            while not self.stopping.is_set():
                reading = asyncio.ensure_future(self.log.read(position, limit=_READ_MAX, wait_s=self.wait_s))
                await asyncio.wait({reading, stopped}, return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    reading.cancel()
                    await asyncio.gather(reading, return_exceptions=True)
                    return
                try:
                    records = reading.result()
                except (Unavailable, OutcomeUnknown) as error:
                    logger.warning("log unreadable", action="retry", reason=str(error))
                    await asyncio.sleep(self.wait_s * (0.5 + 0.5 * self.environment.jitter()))
                    continue
                if records:
                    await self._hand_out(records, identity, start, tasks, logger)
                    position = records[-1].position.offset + 1
                if len(records) < _READ_MAX:
                    self.caught_up.set()
        finally:
            stopped.cancel()

    async def _hand_out(
        self,
        records: list[LogRecord],
        identity: LogId,
        start: int,
        tasks: asyncio.TaskGroup,
        logger: structlog.typing.FilteringBoundLogger,
    ) -> None:
        by_table: dict[TableName, list[Record]] = {}
        for raw in records:
            try:
                record = self._decoded(raw)
                by_table.setdefault(table_name(record.intent.table), []).append(record)
            except Invalid as error:
                logger.warning("intent rejected", action="dead-letter", offset=raw.position.offset, reason=str(error))
                await self._reject(raw, error)
        for table, decoded in by_table.items():
            loop = self.tables.get(table)
            if loop is None:
                loop = self.make_loop(table, {(identity, 0): start})
                self.tables[table] = loop
                tasks.create_task(loop.run(), name=f"table {table}")
            await loop.deliver(tuple(decoded))

    def _decoded(self, raw: LogRecord) -> Record:
        intent = decode_intent(raw.value, raw.headers, self.limits)
        if raw.key is not None and raw.key != intent.table.encode():
            raise Invalid("intent-malformed", f"the record's key is {raw.key[:80]!r}, its table {intent.table[:80]!r}")
        return Record(raw.position, intent, len(raw.value), raw.key, raw.value, raw.appended_ms)

    async def _reject(self, raw: LogRecord, error: RootlineError) -> None:
        log, partition, offset = raw.position
        intent_id = f"{log}/{partition}/{offset}"
        table = raw.key.decode(errors="replace")[:128] if raw.key else _UNDECODED
        verdict = Verdict(
            intent_id=intent_id,
            table=table,
            kind=VerdictKind.REJECTED,
            log=log,
            partition=partition,
            offset=offset,
            code=error.code,
            message=error.message,
        )
        letter = DeadLetter(
            log=log,
            partition=partition,
            offset=offset,
            intent_id=intent_id,
            table=table,
            code=error.code,
            message=error.message,
            key=raw.key,
            value=raw.value,
        )
        while not self.stopping.is_set():
            try:
                await self.log.publish_verdicts([verdict], [letter])
                return
            except (Unavailable, OutcomeUnknown):
                await asyncio.sleep(self.wait_s * (0.5 + 0.5 * self.environment.jitter()))
