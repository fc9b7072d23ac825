"""The tables in this coordinator's memory: their states as values, and a check of their heads in the store.

Owns: reading the states of loops and assignment, the choice of the heads to check. Does not own: the state itself
(the loops), the names of states (`table_states`), the states of other tables in the lake, the views.
Invariants: reading states changes nothing, sends no request and never waits. A check changes nothing either: a table
with a damaged head continues to commit, from memory.

A coordinator that has a head in memory never re-reads it, so without the check only readers would notice damaged
bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from rootline.coordinator.protocol.held_rules import reason_held
from rootline.coordinator.protocol.machine_state import Phase
from rootline.coordinator.runtime.assignment.partition_assignment import PartitionAssignment
from rootline.coordinator.runtime.table.table_loop import TableLoop
from rootline.coordinator.runtime.table.table_states import TableFacts, TableState, state_of, unreadable_head
from rootline.library_log import library_logger
from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import Corrupt, Unavailable
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.object_keys import root_key
from rootline.storage.metadata.root_reader import find_head, proven_root


@dataclass(frozen=True, slots=True)
class OwnTable:
    """A table in memory. `phase`: the phase of its commit machine. `head`: the version of its newest root.

    `committed_ms`: the timestamp of its newest root. `pending_since_ms`: the append time of its oldest undecided
    record. `waiting`: undecided records in memory. `parked`: records in the parking topic.
    """

    name: TableName
    state: TableState
    phase: str
    why: str
    head: int | None
    committed_ms: int | None
    pending_since_ms: int | None
    waiting: int
    parked: int
    root_bytes: int | None
    rows: int | None
    data_files: int | None


def own_tables(
    assignment: PartitionAssignment | None,
    delay_of: Callable[[TableName], str],
    damage_of: Callable[[TableName, int], str],
) -> list[OwnTable]:
    """The tables of `assignment`.

    `delay_of` returns why commits of a table are delayed. `damage_of` returns the damage of a table's stored root, by
    its version. Both return an empty string if nothing is wrong.
    """
    if assignment is None:
        return []
    parked: dict[TableName, int] = {}
    reasons: dict[TableName, str] = {}
    for item in assignment.parked.tables.values():
        parked[item.table] = parked.get(item.table, 0) + item.records
        reasons.setdefault(item.table, item.why)
    missing = {table: why for (table, _), why in assignment.parked.missing.items()}
    found = []
    for table, loop in assignment.tables.items():
        machine, held = loop.machine, parked.get(table, 0)
        if machine.head is None and loop.pending_since_ms is None and not loop.is_stuck and not held:
            continue  # there is no evidence that this table exists
        header = None if machine.head is None else machine.head.header
        waits = loop.pending_since_ms is not None
        gone = missing.get(table, "")
        held_for = _reason_held(loop)
        delay = delay_of(table) if waits and not held_for else ""  # phase `HELD` has no request in flight
        state, why = state_of(
            TableFacts(
                paused=loop.why if loop.phase is Phase.PAUSED else "",
                quarantined=loop.why if loop.phase is Phase.QUARANTINED and not gone else "",
                damaged="" if header is None else damage_of(table, header.version),
                parked=gone or (reasons[table] if held else ""),
                delayed=delay,
                held=held_for,
                waits="intents wait" if waits else "",
            )
        )
        found.append(
            OwnTable(
                name=table,
                state=state,
                phase=loop.phase.value,
                why="" if state is TableState.PENDING else why,
                head=None if header is None else header.version,
                committed_ms=None if header is None else header.snapshot.timestamp_ms,
                pending_since_ms=loop.pending_since_ms,
                waiting=machine.queued,
                parked=held,
                root_bytes=None if machine.head is None else machine.head.root.size_in_bytes,
                rows=None if header is None else header.totals.rows,
                data_files=None if header is None else header.totals.data_files,
            )
        )
    return found


def _reason_held(loop: TableLoop) -> str:
    return "; ".join(filter(None, (reason, loop.trouble))) if (reason := reason_held(loop.machine)) else ""


CHECK_EVERY_S: Final = 60.0
CHECKED_AT_ONCE: Final = 10


@dataclass(slots=True)
class HeadCheck:
    """The check of one process whether the store still has its tables' heads, the newest roots, undamaged.

    `tables`: the tables in memory. `timeout_s`: deadline of one request.
    """

    store: ObjectStore
    tables: Callable[[], Mapping[TableName, TableLoop]]
    timeout_s: float
    _damage: dict[TableName, tuple[Version, str]] = field(default_factory=dict)
    _checked: dict[TableName, None] = field(default_factory=dict)
    """Ordered by the time of the last check, oldest first."""

    async def run(self) -> None:
        """Check some heads every `CHECK_EVERY_S` seconds, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            await self.check()

    async def check(self) -> None:
        """Read the `CHECKED_AT_ONCE` heads whose last check is the longest ago."""
        tables = self.tables()
        self._checked = {table: None for table in self._checked if table in tables}
        self._damage = {table: damage for table, damage in self._damage.items() if table in tables}
        due = [table for table in tables if table not in self._checked] + list(self._checked)
        for table in due[:CHECKED_AT_ONCE]:
            loop = self.tables().get(table)
            head = None if loop is None else loop.machine.head
            self._checked.pop(table, None)
            self._checked[table] = None
            if head is not None:
                await self._check(table, head.header.version)

    def damage_of(self, table: TableName, version: int) -> str:
        """The damage of the stored root of this version. Empty if none is known."""
        found = self._damage.get(table)
        return unreadable_head(*found) if found is not None and found[0] == version else ""

    async def _check(self, table: TableName, version: Version) -> None:
        try:
            async with asyncio.timeout(self.timeout_s):
                why = await self._wrong_with(table, version)
        except (Unavailable, TimeoutError):
            return  # retried in a later round
        if why and self._damage.get(table) != (version, why):
            library_logger().error("head damaged", action="check", table=table, version=version, reason=why)
        self._damage.pop(table, None)
        if why:
            self._damage[table] = (version, why)

    async def _wrong_with(self, table: TableName, version: Version) -> str:
        key = root_key(table, version)
        found = await self.store.get(key)
        if found is None:
            newest = await find_head(self.store, table)
            is_superseded = newest is not None and newest.version > version
            return "" if is_superseded else f"object-missing: {key}: this root does not exist"
        try:
            await asyncio.to_thread(proven_root, found.body, table, version)
        except Corrupt as error:
            return f"{error.code}: {error.message}"
        return ""
