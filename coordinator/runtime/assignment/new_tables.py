"""Which tables have yet to find their head, and which turned out not to exist.

Owns: the account, kept up as each table goes on. Does not own: the tables' loops, letting go of them, holding the
reading (`partition_assignment`).
Invariants: a note costs the same however many tables there are; a table is counted from its first record until its
head is known or it is let go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from rootline.schemas.identifiers import TableName


class Look(Protocol):
    """What a table's loop says about itself."""

    @property
    def is_absent(self) -> bool:
        """There is no such table, as far as is known, and nothing of it is under way."""
        ...

    @property
    def is_unknown(self) -> bool:
        """Its head has yet to be found."""
        ...

    @property
    def is_unlistable(self) -> bool:
        """The store has not let its head be found so far."""
        ...


@dataclass(slots=True)
class NewTables:
    """`looking`: new tables whose head is looked for; `unlistable`: those where the store fails at it.

    `absent`: tables, new or not, that may be let go of.
    """

    looking: set[TableName] = field(default_factory=set)
    unlistable: set[TableName] = field(default_factory=set)
    absent: set[TableName] = field(default_factory=set)
    _new: set[TableName] = field(default_factory=set)

    def opened(self, table: TableName) -> None:
        """The first record of `table` has come."""
        self._new.add(table)
        self.looking.add(table)

    def note(self, table: TableName, loop: Look | None) -> None:
        """`table` has gone on; `None`: it was let go."""
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
