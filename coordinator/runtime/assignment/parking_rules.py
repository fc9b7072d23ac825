"""When a table is parked, because it holds back the offset of its partition and cannot go on.

Owns: the rule, and the two times that it needs. Does not own: what happens then (`parking`).
Invariants: an outage of the store parks no table before half of the log's retention has passed, because then no other
table goes on; a table that goes on, however slowly, is never parked.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rootline.ports.intent_feed import Partition
from rootline.schemas.identifiers import TableName

Where = tuple[TableName, Partition]
"""A table's records of one partition."""


@dataclass(frozen=True, slots=True)
class ParkingLimits:
    """How long a table may be stuck, how much of it is parked, how long the log keeps records (`None`: for ever)."""

    patience_s: float
    table_bytes_max: int
    retention_s: float | None


def is_due(
    limits: ParkingLimits, *, stuck_since_s: float, now_s: float, others_s: float | None, oldest_age_s: float | None
) -> bool:
    """Whether a table that has decided nothing since `stuck_since_s` is parked now.

    `others_s`: when another table of this process went on last; both are monotonic. `oldest_age_s`: how long ago the
    table's oldest undecided record was appended.
    """
    if limits.retention_s is None or now_s - stuck_since_s < limits.patience_s:
        return False
    others_go_on = others_s is not None and others_s - stuck_since_s >= limits.patience_s
    return others_go_on or (oldest_age_s is not None and oldest_age_s > limits.retention_s / 2)


@dataclass(slots=True)
class WhoWentOn:
    """The two tables that went on last."""

    _newest: tuple[TableName, float] | None = None
    _other: tuple[TableName, float] | None = None

    def note(self, table: TableName, now_s: float) -> None:
        """`table` has decided something."""
        if self._newest is not None and self._newest[0] != table:
            self._other = self._newest
        self._newest = (table, now_s)

    def other_than(self, table: TableName) -> float | None:
        """When a table other than this one went on last."""
        found = self._other if self._newest is not None and self._newest[0] == table else self._newest
        return None if found is None else found[1]


@dataclass(slots=True)
class StuckSince:
    """Since when each place is where it is."""

    _known: dict[Where, tuple[int, float]] = field(default_factory=dict)

    def look(self, offsets: dict[Where, int], now_s: float) -> dict[Where, float]:
        """Since when the first undecided offset of each has been the same, as far as looks tell."""
        known = self._known
        self._known = {
            where: known[where] if where in known and known[where][0] == offset else (offset, now_s)
            for where, offset in offsets.items()
        }
        return {where: since_s for where, (_, since_s) in self._known.items()}
