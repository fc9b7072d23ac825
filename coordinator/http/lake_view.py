"""What the console is given of the whole lake, which one coordinator does not have in memory.

Owns: the values and the interface. Does not own: asking store and log (the process that composes the service).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from rootline.coordinator.runtime.table.table_states import TableState
from rootline.schemas.identifiers import TableName
from rootline.tree.view.outline import TreeOutline


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A table as `rootline status` shows it. `lag`, `oldest_ms`: on Kafka of its partition, and of what is parked."""

    table: TableName
    state: TableState
    head: int | None
    lag: int | None = None
    oldest_ms: int | None = None
    owner: str | None = None
    why: str = ""
    parked: int | None = None


@dataclass(frozen=True, slots=True)
class LakeTables:
    """All tables; `troubles`: what store and log did not answer; `at_ms`: when they were asked, `None`: not yet."""

    tables: tuple[TableStatus, ...] = ()
    troubles: tuple[str, ...] = ()
    at_ms: int | None = None


class LakeView(Protocol):
    """The lake, read beside the coordinator; no commit waits for it."""

    def tables(self) -> LakeTables:
        """What is known, at once; store and log are asked again behind it when that is some seconds old."""
        ...

    async def outline(self, table: TableName) -> TreeOutline | None:
        """The tree of the newest version; `None`: there is no such table.

        Raises:
            RootlineError: as reading a root does. TimeoutError: the store did not answer in time.

        """
        ...
