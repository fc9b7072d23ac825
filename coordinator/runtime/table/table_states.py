"""The words for a table's state, the rule that chooses one, and the console's interface to the whole lake.

Owns: the words, their order and severity, the values and the interface of the whole lake. Does not own: the facts,
because each view has other sources (`own_tables` reads the memory of a coordinator, `rootline.cli.lake_status` the log
and the store), the requests to store and log (the process that composes the service).
Invariants: pure. Two views with the same facts use the same word. A view with fewer facts reports `pending` instead of
`delayed` or `held`, because only the coordinator that owns the table can tell them apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from rootline.schemas.identifiers import TableName
from rootline.tree.view import TreeOutline


class TableState(StrEnum):
    """The states of a table, the worst first."""

    QUARANTINED = "quarantined"  # stored bytes are damaged, or an invariant was violated: no commits
    DAMAGED = "damaged"  # the newest root cannot be read back: readers fail, commits may continue
    PARKED = "parked"  # decided nothing for too long: its intents are stored in the parking topic
    UNOWNED = "unowned"  # no coordinator owns it
    DELAYED = "delayed"  # the store fails or is slow: the coordinator retries
    PAUSED = "paused"  # by an operator
    UNKNOWN = "unknown"  # the log does not answer
    HELD = "held"  # commits wait until the log acknowledges verdicts, or for the coordinator's own leaves
    PENDING = "pending"  # intents wait for their verdicts
    IDLE = "idle"  # nothing waits


LASTING: Final = frozenset((TableState.QUARANTINED, TableState.DAMAGED, TableState.PARKED, TableState.PAUSED))
"""States that end only when an operator acts."""
BAD: Final = LASTING - {TableState.PAUSED} | {TableState.UNOWNED, TableState.DELAYED}
WARNS: Final = frozenset((TableState.PAUSED, TableState.UNKNOWN))
_QUARANTINED: Final = "quarantined: "
"""Prefix of the reason of a quarantined table on the log, so that its readers know the state."""


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The reason for each state that applies, empty for each that does not. `waits`: intents have no verdict yet."""

    paused: str = ""
    quarantined: str = ""
    damaged: str = ""
    parked: str = ""
    unowned: str = ""
    delayed: str = ""
    held: str = ""
    waits: str = ""


def state_of(facts: TableFacts) -> tuple[TableState, str]:
    """The state of a table, and the reason.

    `PAUSED` has precedence, because a pause explains why nothing is committed. If the head is also damaged, the reason
    names both. Otherwise the worst state is returned.
    """
    wrong = [
        (TableState.QUARANTINED, facts.quarantined),
        (TableState.DAMAGED, facts.damaged),
        (TableState.PARKED, facts.parked),
        (TableState.UNOWNED, facts.unowned),
        (TableState.DELAYED, facts.delayed),
        (TableState.HELD, facts.held),
        (TableState.PENDING, facts.waits),
    ]
    if facts.paused:
        return TableState.PAUSED, facts.paused + (f"; and {facts.damaged}" if facts.damaged else "")
    return next(((state, why) for state, why in wrong if why), (TableState.IDLE, ""))


def written_reason(why: str, *, is_quarantined: bool) -> str:
    """The text by which a table that cannot continue is described in the log, for `facts_of_written`."""
    return f"{_QUARANTINED}{why}" if is_quarantined else why


def facts_of_written(reason: str) -> TableFacts:
    """The facts in a reason made by `written_reason`."""
    if reason.startswith(_QUARANTINED):
        return TableFacts(quarantined=reason.removeprefix(_QUARANTINED))
    return TableFacts(parked=reason)


def unreadable_head(version: int, why: str) -> str:
    """The reason text of a table whose newest root is damaged."""
    return f"its newest root, version {version}, cannot be read back: {why}"


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A table as `rootline status` shows it.

    On Kafka, `lag` and `oldest_ms` cover all records of the table's partition, and the table's parked records.
    """

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
    """All tables of the lake. `troubles`: the requests to store and log that failed.

    `at_ms`: the time at which store and log were read, `None` before the first time.
    """

    tables: tuple[TableStatus, ...] = ()
    troubles: tuple[str, ...] = ()
    at_ms: int | None = None


class LakeView(Protocol):
    """The lake, read independently of the coordinator. No commit waits for it."""

    def tables(self) -> LakeTables:
        """The cached tables, without waiting. If they are some seconds old, they are refreshed in the background."""
        ...

    async def outline(self, table: TableName) -> TreeOutline | None:
        """An outline of the metadata tree of the newest version, or `None` if there is no such table.

        Raises:
            RootlineError: the root cannot be read. TimeoutError: the store did not answer in time.
        """
        ...
