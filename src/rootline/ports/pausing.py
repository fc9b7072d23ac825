"""What an operator has paused: a table, or all tables of a lake.

Owns: the values. Does not own: where they are kept (the adapters of the log), what a pause does
(`rootline.coordinator.runtime.assignment.pausing`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rootline.schemas.identifiers import TableName

ALL_TABLES: Final = TableName("*")
"""In a pause: every table, and no more records are read."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Coordinators decide no intents of `table` until someone resumes it. `since_ms` and `why` are for people."""

    table: TableName
    since_ms: int
    why: str = ""

    @property
    def reason(self) -> str:
        """Why the table waits, in words."""
        what = "all tables are paused" if self.table == ALL_TABLES else "paused"
        return f"{what} by an operator" + (f": {self.why}" if self.why else "")


def pause_of(pauses: Mapping[TableName, Pause], table: TableName) -> Pause | None:
    """The pause that counts for `table`: its own one, else that of all tables."""
    return pauses.get(table, pauses.get(ALL_TABLES))
