"""Where the undecided records of a table that cannot go on are kept, so that its partition's offset can pass them.

Owns: the port and its value. Does not own: when a table is parked (`coordinator.runtime.assignment.parking`), where
its records are stored (the adapter of the log).
Invariants: what was parked is durable before the call returns, and every later owner of the partition is told of it
(`Assigned.parked`); a record keeps its own position; parked records are removed only by `unpark`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from rootline.schemas.identifiers import LogId, LogRecord, TableName


@dataclass(frozen=True, slots=True)
class ParkedRun:
    """Where the lot keeps consecutive parked records, as it counts; `writer`: only its records belong to the run."""

    writer: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ParkedTable:
    """What is parked of one table and partition: its records before `next_offset` that were undecided.

    From `next_offset` on they are on the log. `records` may be 0: the table is quarantined, but nothing had to be
    parked yet. `since_ms`: since when it cannot go on; `why`: for an operator; `oldest_ms`: of the first parked record.
    """

    table: TableName
    log: LogId
    partition: int
    next_offset: int
    since_ms: int
    why: str
    first_offset: int
    records: int = 0
    size_in_bytes: int = 0
    oldest_ms: int | None = None
    runs: tuple[ParkedRun, ...] = ()


@dataclass(frozen=True, slots=True)
class Lift:
    """An operator's word: try this table again. `without_missing`: go on without the parked records that are gone.

    `first_offset`: of what the operator saw parked; the word to go on without records is not for what is parked later.
    `None`: an earlier version asks, and does not say. `name`: its own, so that two that are asked are two.
    """

    table: TableName
    log: LogId
    partition: int
    without_missing: bool = False
    first_offset: int | None = None
    name: str = ""


class ParkedStore(Protocol):
    """A log's place for parked records. Calls for partitions that are others' fail with `log-unavailable`."""

    async def park(self, parked: ParkedTable, records: Sequence[LogRecord]) -> ParkedTable:
        """Add `records` to what is parked; `parked` with them, as it is told to later owners.

        `parked.next_offset` already says where the log goes on after them. Without records only that, and why, is kept.

        Raises:
            Unavailable: `log-unavailable`, the offset must not pass them. OutcomeUnknown: the same.
            Invalid: `table-parked`, a record cannot be parked: nothing was.
        """
        ...

    def parked_records(
        self, parked: ParkedTable, from_offset: int, *, without_missing: bool
    ) -> AsyncGenerator[Sequence[LogRecord], None]:
        """The parked records from an offset on, in order; close the generator if you stop early.

        Raises:
            Unavailable: `log-unavailable`. Corrupt: `parked-missing`, before anything that follows the missing record.
        """
        ...

    async def unpark(self, parked: ParkedTable) -> None:
        """All of it is decided and acknowledged: forget it, and remove the records.

        Raises:
            Unavailable: `log-unavailable`, later owners may be told of it again. OutcomeUnknown: the same.
        """
        ...

    async def lifts(self) -> Sequence[Lift]:
        """What operators ask of this reader's partitions and was not answered with `lifted`. Raises `Unavailable`."""
        ...

    async def lifted(self, lift: Lift) -> None:
        """It was done. Raises `Unavailable` or `OutcomeUnknown`: it comes again."""
        ...
