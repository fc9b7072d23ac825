"""The loops of an assignment's tables, and the tasks that run them.

Owns: opening and closing loops, their memory, their turn, the tables whose head has not been found yet, and the pauses
of operators.
Does not own: the handling of a record by its table (`table_loop`), the choice of a table's next records
(`partition_assignment`, `late_tables`), storing pauses (the log), the rules of the frontier (`frontier`).
Invariants: A record is noted as undecided before its table gets it. A table is in a set of new tables from its first
record until its head is known or it is closed, and an update of the sets takes constant time. A pause loses no record:
those in flight are decided, and the others stay undecided. No clock starts or ends a pause.

Theory. The loop of a paused table ignores its records, like the loop of a quarantined table, so the table's first
undecided offset does not move. After the table is resumed, a new loop gets all records from there again. Records that a
root decided in the meantime get their verdicts from that root. On Kafka the records are parked after some time, so that
the offset of the partition can pass them. While all tables are paused, nothing is read, so nothing must be parked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rootline.coordinator.protocol.machine_state import Phase
from rootline.coordinator.runtime.assignment.frontier import Frontier, LastProgress
from rootline.coordinator.runtime.table.table_loop import TableLoop, TableOwner
from rootline.library_log import library_logger
from rootline.ports.environment import Environment
from rootline.ports.intent_feed import ALL_TABLES, Assigned, IntentFeed, Partition, Pause, pause_of
from rootline.ports.retry_policy import jittered_s
from rootline.schemas.identifiers import Acknowledged, TableName
from rootline.schemas.parts.log import PartitionOffset
from rootline.tree.draft.batch import Record

_UNKNOWN_TABLES_MAX: Final = 100
"""The most tables whose heads are searched for concurrently. Most of them may not exist."""
_UNLISTABLE_TABLES_MAX: Final = 5_000
"""The most tables with unlistable heads in memory. With more, the main reader pauses."""

LoopFactory = Callable[[TableName, Acknowledged, TableOwner], TableLoop]


@dataclass(slots=True)
class Pauses:
    """The pauses that are in force, by table."""

    _in_force: dict[TableName, Pause] = field(default_factory=dict)

    @property
    def of_all(self) -> Pause | None:
        """The pause of all tables, or `None`."""
        return self._in_force.get(ALL_TABLES)

    def why(self, table: TableName) -> str | None:
        """The reason why the table is paused, or `None` if it is not."""
        found = pause_of(self._in_force, table)
        return None if found is None else found.reason

    def take(self, pauses: Iterable[Pause], phases: Iterable[tuple[TableName, Phase]]) -> Sequence[TableName]:
        """Take over `pauses`, the complete list of those in force. `phases`: the tables in memory, with their phases.

        Returns the tables that need a new loop, because they were paused or resumed.
        """
        before, self._in_force = self._in_force, {pause.table: pause for pause in pauses}
        if before.keys() == self._in_force.keys():
            return ()
        logger = library_logger()
        for table in sorted(self._in_force.keys() - before.keys()):
            logger.warning("paused", action="pause", table=table, reason=self._in_force[table].reason)
        for table in sorted(before.keys() - self._in_force.keys()):
            logger.info("resumed", action="resume", table=table)
        return [table for table, phase in phases if (phase is Phase.PAUSED) != (self.why(table) is not None)]


@dataclass(slots=True)
class _NewTables:
    """The tables whose head has not been found yet, and those that do not exist.

    * `looking`: new tables whose head is being searched for.
    * `unlistable`: new tables whose head the store fails to list.
    * `absent`: tables, new or not, that do not exist and may be closed.
    """

    looking: set[TableName] = field(default_factory=set)
    unlistable: set[TableName] = field(default_factory=set)
    absent: set[TableName] = field(default_factory=set)
    _new: set[TableName] = field(default_factory=set)

    def opened(self, table: TableName) -> None:
        """Note that the first record of `table` has arrived."""
        self._new.add(table)
        self.looking.add(table)

    def note(self, table: TableName, loop: TableLoop | None) -> None:
        """Note that the loop of `table` has handled an event. `loop` is `None` if the table was closed."""
        if loop is not None and loop.is_absent:
            self.absent.add(table)
        else:
            self.absent.discard(table)
        if table not in self._new:
            return
        self.looking.discard(table)
        self.unlistable.discard(table)
        if loop is None or not loop.is_unknown:
            self._new.discard(table)
        elif loop.is_unlistable:
            self.unlistable.add(table)
        elif not loop.is_absent:
            self.looking.add(table)


@dataclass(slots=True)
class ServedTables:
    """The tables of one assignment, and the owner of their loops (`TableOwner`).

    * `idle_s`: the idle time after which a table is closed.
    * `loops`: the loop of each table in memory. The first record of a table opens its loop.
    * `buffered_bytes`: the size of intents in all queues.
    * `last_progress`: the tables that decided records last.
    """

    assigned: Assigned
    log: IntentFeed
    make_loop: LoopFactory
    environment: Environment
    frontier: Frontier
    pauses: Pauses
    tasks: asyncio.TaskGroup
    idle_s: float
    retry_s: float
    loops: dict[TableName, TableLoop] = field(default_factory=dict)
    buffered_bytes: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    last_progress: LastProgress = field(default_factory=LastProgress)
    _new: _NewTables = field(default_factory=_NewTables)
    _running: set[asyncio.Task[None]] = field(default_factory=set)
    _looked_for_idle_s: float = 0.0

    @property
    def searches_too_many(self) -> bool:
        """Whether too many heads are being searched for.

        Tables that the store fails to list have a separate limit, so that missing rights to some do not block
        others.
        """
        return len(self._new.looking) > _UNKNOWN_TABLES_MAX or len(self._new.unlistable) > _UNLISTABLE_TABLES_MAX

    @property
    def trouble(self) -> str:
        """The reason why verdicts of a table cannot be published, or an empty string."""
        return next((loop.trouble for loop in self.loops.values() if loop.trouble), "")

    async def confirm(self) -> None:
        """Confirm with the log that the assignment is still valid. Raises `Unavailable`."""
        await self.log.confirm(self.assigned.generation)

    def decided(self, table: TableName, up_to: Acknowledged) -> None:
        """Note acknowledged verdicts of a table."""
        self.frontier.decided(table, up_to)
        self.last_progress.note(table, self.environment.monotonic_s())

    def took_event(self, table: TableName) -> None:
        """Note that a table's loop has handled an event."""
        self._new.note(table, self.loops.get(table))

    def buffered(self, more_bytes: int) -> None:
        """Add to the buffered bytes. Negative numbers subtract."""
        self.buffered_bytes += more_bytes

    def open(self, table: TableName) -> TableLoop:
        """Start the loop of a table whose first record has arrived."""
        loop = self._open(table, {})
        self._new.opened(table)
        return loop

    def reopen(self, table: TableName, undecided: Iterable[PartitionOffset]) -> None:
        """Start a new loop for the table, in place of the present one, which finishes its records in flight.

        `undecided` has, for each partition, the first offset whose verdict may not be acknowledged. Parked records can
        have lower offsets than the start of the assignment.
        """
        old = self.loops.pop(table, None)
        if old is not None:
            old.request_stop()
        first = {(log, partition): offset for log, partition, offset in undecided}
        self._open(table, first, None if old is None else old.pending_since_ms)

    def hand_over(self, loop: TableLoop, table: TableName, place: Partition, records: tuple[Record, ...]) -> None:
        """Hand records to a table that has room for them, and note them as undecided."""
        self.frontier.handed_over(place, table, records[0].position.offset, records[-1].position.offset)
        loop.deliver(records)

    def absent(self) -> Sequence[TableName]:
        """The tables that do not exist. The caller closes them, so that a writer cannot fill the memory with names."""
        found = []
        for table in list(self._new.absent):
            loop = self.loops.get(table)
            if loop is not None and loop.is_absent:
                found.append(table)
            else:
                self._new.note(table, loop)
        return found

    def idle(self) -> Sequence[TableName]:
        """The tables that are idle or do not exist. Empty if the last search was less than a tenth of `idle_s` ago."""
        now_s = self.environment.monotonic_s()
        if now_s - self._looked_for_idle_s < 0.1 * self.idle_s:
            return ()
        self._looked_for_idle_s = now_s
        idle_since_s = now_s - self.idle_s
        return [table for table, loop in self.loops.items() if loop.is_absent or loop.is_idle_since(idle_since_s)]

    def close(self, table: TableName) -> None:
        """Stop the loop of a table that is idle or does not exist."""
        self.loops.pop(table).request_stop()
        self._new.note(table, None)

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run `work` as a task of the assignment."""
        task = self.tasks.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def wait_to_retry(self) -> None:
        """Wait before a retry."""
        await asyncio.sleep(jittered_s(self.retry_s, self.environment.jitter()))

    def request_stop(self) -> None:
        """Let all loops finish their records in flight."""
        for loop in self.loops.values():
            loop.request_stop()

    async def finish(self, patience_s: float | None) -> int:
        """Wait `patience_s` seconds for all tasks, and cancel the others. Returns the number of cancelled tasks."""
        if not self._running:
            return 0
        _, late = await asyncio.wait(self._running, timeout=patience_s)
        for task in late:
            task.cancel()
        if late:
            library_logger().warning("tables cut off", action="revoke", tasks=len(late), patience_s=patience_s)
            await asyncio.wait(late)
        return len(late)

    def _open(self, table: TableName, undecided: Acknowledged, pending_since_ms: int | None = None) -> TableLoop:
        acknowledged = {(log, partition): offset for log, partition, offset in self.assigned.starts}
        for place, offset in undecided.items():
            acknowledged[place] = min(offset, acknowledged.get(place, offset))
        loop = self.loops[table] = self.make_loop(table, acknowledged, self)
        why = self.pauses.why(table)
        if why is not None:
            loop.pause(why, pending_since_ms=pending_since_ms)
        self.start(loop.run(), f"table {table}")
        return loop
