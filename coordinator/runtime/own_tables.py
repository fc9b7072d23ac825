"""The states of the tables in this coordinator's memory, as values for people and for metrics.

Owns: reading loops and assignment. Does not own: the state itself (the loops), the word for it
(`table.table_states`), what the store and the log state about other tables, how it is shown.
Invariants: a read changes nothing, sends no request and never waits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rootline.coordinator.protocol.machine_state import Phase
from rootline.coordinator.runtime.assignment.partition_assignment import PartitionAssignment
from rootline.coordinator.runtime.table.table_states import TableFacts, TableState, state_of
from rootline.schemas.identifiers import TableName


@dataclass(frozen=True, slots=True)
class OwnTable:
    """A table in memory. `phase`: the commit machine's.

    `committed_ms`: of its newest root; `pending_since_ms`: when its oldest undecided record was appended; `waiting`:
    records in memory that are not decided; `parked`: records that were moved aside.
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
    """Each table of `assignment`.

    `delay_of`: what delays its commits; `damage_of`: what is wrong with its root of a version, as stored.
    """
    if assignment is None:
        return []
    parked: dict[TableName, int] = {}
    reasons: dict[TableName, str] = {}
    for (table, _), item in assignment.late.parked.items():
        parked[table] = parked.get(table, 0) + item.records
        reasons.setdefault(table, item.why)
    missing = {table: why for (table, _), why in assignment.late.missing.items()}
    found = []
    for table, loop in assignment.tables.items():
        machine, held = loop.machine, parked.get(table, 0)
        if machine.head is None and loop.pending_since_ms is None and not loop.is_stuck and not held:
            continue  # nothing says that there is such a table
        header = None if machine.head is None else machine.head.header
        waits = loop.pending_since_ms is not None
        gone = missing.get(table, "")
        delay = delay_of(table) if waits else ""
        state, why = state_of(
            TableFacts(
                paused=loop.why if loop.phase is Phase.PAUSED else "",
                quarantined=loop.why if loop.phase is Phase.QUARANTINED and not gone else "",
                damaged="" if header is None else damage_of(table, header.version),
                parked=gone or (reasons[table] if held else ""),
                delayed=delay,
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
