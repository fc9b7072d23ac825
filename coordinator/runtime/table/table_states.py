"""The one vocabulary for a table's state, the rule that chooses a word, and a lake's tables as the console gets them.

Owns: the words, their order and their severity, the values and the interface of the whole lake. Does not own: the
facts, because each view has its own (`own_tables` the memory of a coordinator, `rootline.cli.lake_status` the log and
the store), asking store and log (the process that composes the service).
Invariants: pure. Two views that know the same facts use the same word. One that knows less uses `pending` for
`delayed`, which only the coordinator that owns the table can tell from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from rootline.schemas.identifiers import TableName
from rootline.tree.view.outline import TreeOutline


class TableState(StrEnum):
    """The states of a table, the worst first."""

    QUARANTINED = "quarantined"  # stored bytes are damaged, or a rule of our own broke: nothing is committed
    DAMAGED = "damaged"  # its newest root cannot be read back: readers fail, commits may go on
    PARKED = "parked"  # it could not go on for a while: its intents are kept aside
    UNOWNED = "unowned"  # no coordinator has it
    DELAYED = "delayed"  # the store fails or is slow: it is tried again
    PAUSED = "paused"  # an operator said so
    UNKNOWN = "unknown"  # the log does not answer
    PENDING = "pending"  # intents wait for their verdicts
    IDLE = "idle"  # nothing waits


LASTING: Final = frozenset((TableState.QUARANTINED, TableState.DAMAGED, TableState.PARKED, TableState.PAUSED))
"""States that end only when someone acts."""
BAD: Final = LASTING - {TableState.PAUSED} | {TableState.UNOWNED, TableState.DELAYED}
WARNS: Final = frozenset((TableState.PAUSED, TableState.UNKNOWN))
_QUARANTINED: Final = "quarantined: "
"""Begins the reason that is written to the log of a quarantined table, so that those who read it know the state."""


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The reasons for a table's state, each empty where it does not apply.

    `waits`: set while intents have no verdict.
    """

    paused: str = ""
    quarantined: str = ""
    damaged: str = ""
    parked: str = ""
    unowned: str = ""
    delayed: str = ""
    waits: str = ""


def state_of(facts: TableFacts) -> tuple[TableState, str]:
    """The word for a table, and why.

    A pause comes first because it explains why nothing is committed, whatever else is wrong; the reason then has both.
    """
    wrong = [
        (TableState.QUARANTINED, facts.quarantined),
        (TableState.DAMAGED, facts.damaged),
        (TableState.PARKED, facts.parked),
        (TableState.UNOWNED, facts.unowned),
        (TableState.DELAYED, facts.delayed),
        (TableState.PENDING, facts.waits),
    ]
    if facts.paused:
        return TableState.PAUSED, facts.paused + (f"; and {facts.damaged}" if facts.damaged else "")
    return next(((state, why) for state, why in wrong if why), (TableState.IDLE, ""))


def written_reason(why: str, *, is_quarantined: bool) -> str:
    """The reason that a log keeps of a table that cannot go on."""
    return f"{_QUARANTINED}{why}" if is_quarantined else why


def facts_of_written(reason: str) -> TableFacts:
    """The facts that a reason made by `written_reason` states."""
    if reason.startswith(_QUARANTINED):
        return TableFacts(quarantined=reason.removeprefix(_QUARANTINED))
    return TableFacts(parked=reason)


def unreadable_head(version: int, why: str) -> str:
    """The reason of a table whose newest root is damaged."""
    return f"its newest root, version {version}, cannot be read back: {why}"


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
