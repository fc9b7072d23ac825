"""All that the commit machine of one table knows.

Owns: the state's value types. Does not own: how it changes (`commit_machine`).
Invariants: immutable (tuples, because every event makes a new one and that must be cheap); everything here can be
lost in a crash without losing an intent.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from rootline.coordinator.protocol.group_window import BatchLimits
from rootline.ports.retry_policy import RetryPolicy
from rootline.schemas.identifiers import CommitId, LogId, ObjectKey, TableName, Version
from rootline.tree.draft.batch import NOTHING_FETCHED, Applied, FetchedObjects, Record
from rootline.tree.intents.self_flush import OwnFlush
from rootline.tree.ledger.header_limits import HEADER_LIMITS, HeaderLimits
from rootline.tree.ledger.outcomes import NOTHING_ACKNOWLEDGED, Acknowledged
from rootline.tree.state.table_state import TableState


class Phase(StrEnum):
    """What a table waits for between two events."""

    COLD = "cold"  # nothing is known of the table
    LOADING = "loading"  # LIST and GETs of the head are out
    IDLE = "idle"  # the head is confirmed, nothing waits
    GATHERING = "gathering"  # a batch is open
    FETCHING = "fetching"  # leaves or vectors that the batch needs are being read
    STAGING = "staging"  # what the root will reference is being stored
    PUTTING = "putting"  # the PUT of the root is out
    READING_BACK = "reading_back"  # its outcome is unknown: a GET of the same root is out
    CONFIRMING = "confirming"  # it landed late after the last answer: a LIST is out
    WAITING = "waiting"  # a delay before trying again
    QUARANTINED = "quarantined"  # stored bytes are corrupt, or a rule of our own broke: nothing more is committed
    PAUSED = "paused"  # an operator said so, before anything was done: nothing is committed
    STOPPED = "stopped"  # the end


class Decision(StrEnum):
    """Where the machine goes on at once, by what it knows: no event is waited for here."""

    NEXT = "next"  # nothing is in flight: what follows?
    BUILD = "build"  # a batch is closed: what is settled already, and what does the tree make of the rest?
    LANDED = "landed"  # the own root is in the store: does the answer's date confirm it?
    CONFIRMED = "confirmed"  # the own root is the head: its verdicts may go out
    LOST = "lost"  # the version is another's: take the batch to the new head
    FAILED = "failed"  # the store did not answer: when to try again
    RETRY = "retry"  # the pause is over: take up what failed


Node = Phase | Decision


@dataclass(frozen=True, slots=True)
class Policy:
    """The process's settings as the machine needs them."""

    coordinator_id: str
    limits: BatchLimits
    retry: RetryPolicy
    unpublished_roots_max: int
    header_limits: HeaderLimits = HEADER_LIMITS


class Attempt(NamedTuple):
    """The root in flight: what its batch came to, its name, and when its PUT went out (monotonic seconds).

    Once it has landed: the store's date of the answer that says so (`answered_ms`), and the date that the root has as
    the base of the next one (`dated_ms`). `takes_leaves`: it was built with the coordinator's own leaves.
    """

    applied: Applied
    version: Version
    key: ObjectKey
    commit_id: CommitId
    put_at_s: float = 0.0
    answered_ms: int | None = None
    dated_ms: int | None = None
    takes_leaves: bool = False


class SelfFlush(NamedTuple):
    """A root that is too long: whether its leaves are being encoded, those that are ready, when to ask again (s)."""

    is_encoding: bool = False
    ready: OwnFlush | None = None
    failures: int = 0
    not_before_s: float = 0.0


class TableMachine(NamedTuple):
    """One table. `base_ms` is the store's date at which the head was confirmed (`None`: the store has no dates).

    `served`: intents of the root that was just confirmed. `resume`: the phase that a pause interrupts. `compared`: the
    partitions whose records were compared with a head that was loaded.
    """

    table: TableName
    policy: Policy
    phase: Phase = Phase.COLD
    head: TableState | None = None
    base_ms: int | None = None
    queue: tuple[Record, ...] = ()
    batch: tuple[Record, ...] = ()
    attempt: Attempt | None = None
    fetched: FetchedObjects = NOTHING_FETCHED
    flush: SelfFlush = SelfFlush()
    acknowledged: Acknowledged = NOTHING_ACKNOWLEDGED
    compared: frozenset[tuple[LogId, int]] = frozenset()
    publishing: int = 0
    served: int = 0
    expected: int = 1
    put_s: float | None = None
    timer: int = 0
    resume: Phase = Phase.COLD
    losses: int = 0
    failures: int = 0
    stopping: bool = False
    why: str = ""

    @property
    def queued(self) -> int:
        """How many records wait or are being committed."""
        return len(self.queue) + len(self.batch)
