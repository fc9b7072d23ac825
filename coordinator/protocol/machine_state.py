"""The state of the commit machine of one table.

Owns: the value types of the state. Does not own: its transitions (`commit_machine`).
Invariants: The state is immutable. It consists of tuples, because every event makes a new one. All of it can be lost in
a crash without losing an intent.
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
    """The phases of a table, in which the machine waits for an event."""

    COLD = "cold"  # the head has not been loaded
    LOADING = "loading"  # a LIST and GETs of the head are in flight
    IDLE = "idle"  # the head is confirmed, no record waits
    GATHERING = "gathering"  # a batch is open
    FETCHING = "fetching"  # leaves or vectors that the batch needs are being read
    STAGING = "staging"  # the objects that the root will reference are being stored
    PUTTING = "putting"  # the PUT of the root is in flight
    READING_BACK = "reading_back"  # the outcome of the PUT is unknown, and a GET of the root is in flight
    CONFIRMING = "confirming"  # the root landed too long after the last confirmed head, and a LIST is in flight
    WAITING = "waiting"  # a pause before a retry
    QUARANTINED = "quarantined"  # metadata is corrupt or an invariant is broken, so nothing is committed
    PAUSED = "paused"  # an operator paused the table before it was opened, so nothing is committed
    STOPPED = "stopped"  # the machine has ended


class Decision(StrEnum):
    """The nodes from which the machine moves on without an event."""

    NEXT = "next"  # nothing is in flight, choose what follows
    BUILD = "build"  # a batch is closed, build the next root
    LANDED = "landed"  # the own root is in the store, check whether it is confirmed
    CONFIRMED = "confirmed"  # the own root is the head, publish its verdicts
    LOST = "lost"  # another coordinator made this version, apply the batch to the new head
    FAILED = "failed"  # the store did not answer, choose the pause before a retry
    RETRY = "retry"  # the pause is over, retry the phase that failed


Node = Phase | Decision


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings of the process that the machine uses."""

    coordinator_id: str
    limits: BatchLimits
    retry: RetryPolicy
    unpublished_roots_max: int
    header_limits: HeaderLimits = HEADER_LIMITS


class Attempt(NamedTuple):
    """The root in flight.

    * `put_at_s`: the monotonic time at which its PUT was sent.
    * `answered_ms`: the store's date of the answer that shows that it landed.
    * `dated_ms`: the store's date at which the root counts as confirmed, for building the next one.
    * `takes_leaves`: whether it was built with the coordinator's own leaves.
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
    """The state of the coordinator's own leaves for a root that is too long.

    `ready` are leaves for the next batch. After failures, leaves are not requested before `not_before_s` (monotonic).
    """

    is_encoding: bool = False
    ready: OwnFlush | None = None
    failures: int = 0
    not_before_s: float = 0.0


class TableMachine(NamedTuple):
    """The state of one table.

    * `base_ms`: the store's date at which the head was confirmed, `None` if the store has no dates.
    * `compared`: the partitions whose records were compared with a loaded head.
    * `publishing`: the number of `PublishVerdicts` effects that are not acknowledged.
    * `served`: the number of intents in the root that was just confirmed.
    * `resume`: the phase to retry after a pause.
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
        """The number of records that wait or are being committed."""
        return len(self.queue) + len(self.batch)
