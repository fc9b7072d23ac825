"""The rule for parking a stuck table, which blocks the offset of its partition.

Owns: the rule, and tracking the times that it needs. Does not own: parking a table (`parking`).
Invariants: During an outage of the store, in which no table makes progress, no table is parked before half of the log's
retention has passed. A table that makes progress, however slowly, is never parked.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rootline.ports.intent_feed import Partition
from rootline.schemas.identifiers import TableName

Where = tuple[TableName, Partition]
"""A table and one of its partitions."""


@dataclass(frozen=True, slots=True)
class ParkingLimits:
    """The limits of parking.

    * `patience_s`: the time that a table may be stuck.
    * `table_bytes_max`: the most parked bytes of a table and partition.
    * `retention_s`: the retention of the log, or `None` if it keeps records forever.
    """

    patience_s: float
    table_bytes_max: int
    retention_s: float | None


def is_due(
    limits: ParkingLimits, *, stuck_since_s: float, now_s: float, others_s: float | None, oldest_age_s: float | None
) -> bool:
    """Whether a table that has decided nothing since `stuck_since_s` must be parked.

    `others_s` is the last progress of another table of this process. Both times are monotonic. `oldest_age_s` is the
    age of the table's oldest undecided record.
    """
    if limits.retention_s is None or now_s - stuck_since_s < limits.patience_s:
        return False
    others_progress = others_s is not None and others_s - stuck_since_s >= limits.patience_s
    return others_progress or (oldest_age_s is not None and oldest_age_s > limits.retention_s / 2)


@dataclass(slots=True)
class LastProgress:
    """The two tables that made progress last, with the times."""

    _newest: tuple[TableName, float] | None = None
    _other: tuple[TableName, float] | None = None

    def note(self, table: TableName, now_s: float) -> None:
        """Note that `table` has decided a record."""
        if self._newest is not None and self._newest[0] != table:
            self._other = self._newest
        self._newest = (table, now_s)

    def other_than(self, table: TableName) -> float | None:
        """The time of the last progress of a table other than this one, or `None`."""
        found = self._other if self._newest is not None and self._newest[0] == table else self._newest
        return None if found is None else found[1]


@dataclass(slots=True)
class StuckSince:
    """The times since when the first undecided offsets have not changed."""

    _known: dict[Where, tuple[int, float]] = field(default_factory=dict)

    def look(self, offsets: dict[Where, int], now_s: float) -> dict[Where, float]:
        """The time at which the present offset was first seen, for each table and partition."""
        known = self._known
        self._known = {
            where: known[where] if where in known and known[where][0] == offset else (offset, now_s)
            for where, offset in offsets.items()
        }
        return {where: since_s for where, (_, since_s) in self._known.items()}
