"""How the tables are that this coordinator has in memory, as values for people who look.

Owns: reading loops and assignment, and the one word for a table's state. Does not own: the state itself (the loops),
what the store and the log say of other tables, how it is shown.
Invariants: looking changes nothing, asks no one and never waits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rootline.coordinator.protocol.machine_state import Phase
from rootline.coordinator.runtime.assignment.partition_assignment import PartitionAssignment
from rootline.schemas.identifiers import TableName


@dataclass(frozen=True, slots=True)
class OwnTable:
    """A table in memory. `state`: quarantined, paused, parked, delayed, pending or idle; `phase`: the machine's.

    `committed_ms`: of its newest root; `pending_since_ms`: when its oldest undecided record was appended; `waiting`:
    records in memory that are not decided; `parked`: records that were moved aside.
    """

    name: TableName
    state: str
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


def own_tables(assignment: PartitionAssignment | None, trouble_of: Callable[[TableName], str]) -> list[OwnTable]:
    """Each table of `assignment`; `trouble_of`: why a table's records wait."""
    if assignment is None:
        return []
    parked: dict[TableName, int] = {}
    for (table, _), item in assignment.late.parked.items():
        parked[table] = parked.get(table, 0) + item.records
    missing = {table for table, _ in assignment.late.missing}
    found = []
    for table, loop in assignment.tables.items():
        machine, held = loop.machine, parked.get(table, 0)
        if machine.head is None and loop.pending_since_ms is None and not loop.is_stuck and not held:
            continue  # nothing says that there is such a table
        header = None if machine.head is None else machine.head.header
        why = trouble_of(table)
        found.append(
            OwnTable(
                name=table,
                state=_state(loop.phase, why, held > 0 or table in missing, loop.pending_since_ms is not None),
                phase=loop.phase.value,
                why=why,
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


def _state(phase: Phase, why: str, is_parked: bool, waits: bool) -> str:
    if phase in (Phase.QUARANTINED, Phase.PAUSED):
        return phase.value
    if is_parked:
        return "parked"
    if why:
        return "delayed"
    return "pending" if waits else "idle"
