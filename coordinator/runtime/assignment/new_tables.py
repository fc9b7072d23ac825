"""The tables whose head has not been found yet, and those that do not exist.

Owns: these sets, updated with every step of a table.
Does not own: the tables' loops, closing them, pausing the reader (`partition_assignment`).
Invariants: An update takes constant time. A table is in a set from its first record until its head is known or it is
closed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from rootline.schemas.identifiers import TableName


class Look(Protocol):
    """The status of a table's loop."""

    @property
    def is_absent(self) -> bool:
        """Whether the table does not exist, as far as is known, and has no records in flight."""
        ...

    @property
    def is_unknown(self) -> bool:
        """Whether the table's head has not been found yet."""
        ...

    @property
    def is_unlistable(self) -> bool:
        """Whether the store has failed to list the table's head so far."""
        ...


@dataclass(slots=True)
class NewTables:
    """The sets of tables.

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

    def note(self, table: TableName, loop: Look | None) -> None:
        """Note a step of `table`. `loop` is `None` if the table was closed."""
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
