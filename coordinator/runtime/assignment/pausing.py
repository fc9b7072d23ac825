"""Pausing of tables: intents of a table that an operator has paused are not decided until it is resumed.

Owns: looking for pauses, and pausing or restarting the loops of tables.
Does not own: storing pauses (the log), parking the records of a paused table (`parking`, as for any stuck table).
Invariants: A pause loses no record: those in flight are decided, and the others stay undecided. No clock starts or ends
a pause. An assignment knows the present pauses before it hands out any record.

Theory. The loop of a paused table ignores its records, like the loop of a quarantined table, so the table's first
undecided offset does not move. After the table is resumed, a new loop gets all records from there again. Records that a
root decided in the meantime get their verdicts from that root. On Kafka the records are parked after some time, so that
the offset of the partition can pass them. While all tables are paused, nothing is read, so nothing must be parked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from rootline.coordinator.protocol.machine_state import Phase
from rootline.coordinator.runtime.table.table_loop import TableLoop
from rootline.ports.intent_feed import ALL_TABLES, CoordinatorLog, Pause, pause_of
from rootline.schemas.errors import Fenced, OutcomeUnknown, Unavailable
from rootline.schemas.identifiers import TableName


class PausingOwner(Protocol):
    """The part of the assignment that pausing uses."""

    log: CoordinatorLog
    tables: dict[TableName, TableLoop]

    def pause_table(self, table: TableName) -> None:
        """Start a loop that commits nothing for the table. The present loop finishes its records in flight."""
        ...

    def restart_table(self, table: TableName) -> None:
        """Start a new loop for the table, and hand it all of its undecided records again."""
        ...


@dataclass(slots=True)
class Pausing:
    """The pauses of one assignment. `pauses` has those in force, by table."""

    owner: PausingOwner
    look_s: float
    pauses: dict[TableName, Pause] = field(default_factory=dict)

    @property
    def of_all(self) -> Pause | None:
        """The pause of all tables, or `None`."""
        return self.pauses.get(ALL_TABLES)

    def why(self, table: TableName) -> str | None:
        """The reason why the table is paused, or `None` if it is not."""
        found = pause_of(self.pauses, table)
        return None if found is None else found.reason

    def take(self, pauses: Iterable[Pause]) -> None:
        """Apply `pauses`, the complete list of those in force."""
        before, self.pauses = self.pauses, {pause.table: pause for pause in pauses}
        if before.keys() == self.pauses.keys():
            return
        logger = structlog.get_logger()
        for table in sorted(self.pauses.keys() - before.keys()):
            logger.warning("paused", action="pause", table=table, reason=self.pauses[table].reason)
        for table in sorted(before.keys() - self.pauses.keys()):
            logger.info("resumed", action="resume", table=table)
        for table, loop in list(self.owner.tables.items()):
            was_paused, is_paused = loop.phase is Phase.PAUSED, self.why(table) is not None
            if is_paused and not was_paused:
                self.owner.pause_table(table)
            elif was_paused and not is_paused:
                self.owner.restart_table(table)

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(self.look_s)
            try:
                self.take(await self.owner.log.pauses())
            except (Unavailable, OutcomeUnknown, Fenced, TimeoutError) as error:  # the known pauses stay in force
                structlog.get_logger().warning("pauses unknown", action="retry", reason=str(error))
