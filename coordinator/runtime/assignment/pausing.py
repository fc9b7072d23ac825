"""Decides no intents of tables that an operator has paused, from when this process sees it until they are resumed.

Owns: looking for pauses, and holding and opening the loops of tables accordingly. Does not own: where pauses are kept
(the log), what becomes of a paused table's records (`parking`, as those of any table that commits nothing).
Invariants: a pause decides nothing and loses nothing: what is in flight is finished, the rest stays undecided; no clock
begins or ends one; an assignment knows the pauses in force before it gives any table a record.

Theory. A table's loop that is paused takes records and ignores them, as one that is quarantined does, so its first
undecided offset stays where it is. When the table is resumed, a loop that knows nothing gets everything from there
again: records that a root has decided meanwhile are answered from it. On Kafka the records are parked after a while, so
that the offset of the partition passes them. While all tables are paused nothing is read, so nothing needs to be kept.
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
    """What pausing needs of the assignment."""

    log: CoordinatorLog
    tables: dict[TableName, TableLoop]

    def hold_table(self, table: TableName) -> None:
        """Give the table a loop that commits nothing; the one that it has finishes what is in flight."""
        ...

    def try_again(self, table: TableName) -> None:
        """Give the table a loop that knows nothing, and all its undecided records again."""
        ...


@dataclass(slots=True)
class Pausing:
    """For one assignment. `pauses`: those in force."""

    owner: PausingOwner
    look_s: float
    pauses: dict[TableName, Pause] = field(default_factory=dict)

    @property
    def of_all(self) -> Pause | None:
        """The pause of all tables."""
        return self.pauses.get(ALL_TABLES)

    def why(self, table: TableName) -> str | None:
        """Why the table is paused; `None`: it is not."""
        found = pause_of(self.pauses, table)
        return None if found is None else found.reason

    def take(self, pauses: Iterable[Pause]) -> None:
        """These are in force now, and no others."""
        before, self.pauses = self.pauses, {pause.table: pause for pause in pauses}
        if before.keys() == self.pauses.keys():
            return
        logger = structlog.get_logger()
        for table in sorted(self.pauses.keys() - before.keys()):
            logger.warning("paused", action="pause", table=table, reason=self.pauses[table].reason)
        for table in sorted(before.keys() - self.pauses.keys()):
            logger.info("resumed", action="resume", table=table)
        for table, loop in list(self.owner.tables.items()):
            is_held, is_paused = loop.phase is Phase.PAUSED, self.why(table) is not None
            if is_paused and not is_held:
                self.owner.hold_table(table)
            elif is_held and not is_paused:
                self.owner.try_again(table)

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(self.look_s)
            try:
                self.take(await self.owner.log.pauses())
            except (Unavailable, OutcomeUnknown, Fenced, TimeoutError) as error:  # what was known goes on to count
                structlog.get_logger().warning("pauses unknown", action="retry", reason=str(error))
