"""The state of the commit machine of one table: its phase with the phase's fields, and the fields of every phase.

Owns: the value types of the state, and the `Move` between two places. Does not own: the moves (`gather`, `commit`,
`trouble`), the table of those that are allowed (`commit_machine`).
Invariants: The state is immutable. It consists of tuples, because every event makes a new one. All of it can be lost in
a crash without losing an intent. What only one phase or decision needs is a field of that phase or decision, so a
machine that gathers has no root in flight, and only a quarantined or paused one has a reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Literal, NamedTuple

from rootline.coordinator.protocol.group_window import BatchLimits, Writers
from rootline.coordinator.protocol.messages import Effect
from rootline.ports.retry_policy import RetryPolicy
from rootline.schemas.identifiers import (
    NOTHING_ACKNOWLEDGED,
    Acknowledged,
    CommitId,
    LogId,
    ObjectKey,
    TableName,
    Version,
)
from rootline.schemas.parts.log import PartitionOffset
from rootline.tree.draft.batch import NOTHING_FETCHED, Applied, FetchedObjects, Record
from rootline.tree.intents.flush import OwnFlush
from rootline.tree.parts.header_limits import HEADER_LIMITS, HeaderLimits
from rootline.tree.state.table_state import TableState


class Phase(StrEnum):
    """The kinds of phases. In a phase the machine waits for an event."""

    COLD = "cold"  # the head has not been loaded
    LOADING = "loading"  # a LIST and GETs of the head are in flight
    IDLE = "idle"  # the head is confirmed, no record waits
    GATHERING = "gathering"  # a batch is open for a moment, so that more records can share its root
    HELD = "held"  # records wait until the log acknowledges verdicts, or until the coordinator's leaves are encoded
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
    """The kinds of decisions. From a decision the machine moves on without an event."""

    NEXT = "next"  # nothing is in flight, choose what follows
    BUILD = "build"  # a batch is closed, build the next root
    LANDED = "landed"  # the own root is in the store, check whether it is confirmed
    CONFIRMED = "confirmed"  # the own root is the head, publish its verdicts
    LOST = "lost"  # another coordinator made this version, apply the batch to the new head
    FAILED = "failed"  # a request failed, or root N is not there: choose the pause before a retry
    RETRY = "retry"  # repeat the request that failed


Kind = Phase | Decision


class Attempt(NamedTuple):
    """A root that was built and is not yet decided.

    `takes_leaves`: whether it was built with the coordinator's own leaves.
    """

    applied: Applied
    version: Version
    key: ObjectKey
    commit_id: CommitId
    takes_leaves: bool = False


# The phases that carry something


@dataclass(frozen=True, slots=True)
class Gathering:
    """A batch is open until `expected` records wait, or until its timer fires."""

    kind: ClassVar[Phase] = Phase.GATHERING
    expected: int


@dataclass(frozen=True, slots=True)
class Staging:
    """The objects of the attempt are being stored. Its PUT was not sent."""

    kind: ClassVar[Phase] = Phase.STAGING
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Putting:
    """The PUT of the attempt was sent at `put_at_s` (monotonic)."""

    kind: ClassVar[Phase] = Phase.PUTTING
    attempt: Attempt
    put_at_s: float


@dataclass(frozen=True, slots=True)
class ReadingBack:
    """The outcome of the PUT sent at `put_at_s` is unknown."""

    kind: ClassVar[Phase] = Phase.READING_BACK
    attempt: Attempt
    put_at_s: float


@dataclass(frozen=True, slots=True)
class Confirming:
    """The PUT sent at `put_at_s` landed. A LIST must show that its root is the newest.

    It may not be the newest if it landed late, at a version whose first root had expired and was deleted.
    """

    kind: ClassVar[Phase] = Phase.CONFIRMING
    attempt: Attempt
    put_at_s: float


Undecided = Putting | ReadingBack | Confirming
"""A PUT was sent, so its outcome must be known before the machine stops."""
Request = Literal[Phase.LOADING, Phase.FETCHING] | Staging | Undecided
"""A request to the store is in flight. It can be repeated."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pause, after which the request `resume` is repeated."""

    kind: ClassVar[Phase] = Phase.WAITING
    resume: Request


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Nothing is committed, because of `why`."""

    kind: ClassVar[Phase] = Phase.QUARANTINED
    why: str


@dataclass(frozen=True, slots=True)
class Paused:
    """Nothing is committed, because an operator gave the reason `why`."""

    kind: ClassVar[Phase] = Phase.PAUSED
    why: str


AtPhase = (
    Literal[Phase.COLD, Phase.IDLE, Phase.HELD, Phase.STOPPED] | Gathering | Request | Waiting | Quarantined | Paused
)
"""A phase with what it carries. A phase that carries nothing is its own kind."""


# The decisions, with what they decide about


@dataclass(frozen=True, slots=True)
class Next:
    """Choose what follows.

    `awaited`: the number of intents in the root that was just confirmed. Intents of writers that already wait with
    another one do not count.
    """

    kind: ClassVar[Decision] = Decision.NEXT
    awaited: int = 0


@dataclass(frozen=True, slots=True)
class Build:
    """Build the next root."""

    kind: ClassVar[Decision] = Decision.BUILD


@dataclass(frozen=True, slots=True)
class Landed:
    """The attempt is in the store.

    * `answered_ms`: the store's date of the answer that shows it.
    * `dated_ms`: the store's date at which the root counts as confirmed, for building the next one.
    """

    kind: ClassVar[Decision] = Decision.LANDED
    attempt: Attempt
    put_at_s: float
    answered_ms: int | None
    dated_ms: int | None


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The attempt is the head since `dated_ms`, by the store's date."""

    kind: ClassVar[Decision] = Decision.CONFIRMED
    attempt: Attempt
    put_at_s: float
    dated_ms: int | None


@dataclass(frozen=True, slots=True)
class Lost:
    """Another root has the version of the attempt."""

    kind: ClassVar[Decision] = Decision.LOST
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Failed:
    """A request failed because of `detail`. `resume` is the request to send after a pause."""

    kind: ClassVar[Decision] = Decision.FAILED
    resume: Request
    detail: str


@dataclass(frozen=True, slots=True)
class Retry:
    """Repeat the request `resume`."""

    kind: ClassVar[Decision] = Decision.RETRY
    resume: Request


AtDecision = Next | Build | Landed | Confirmed | Lost | Failed | Retry
"""A decision with what it decides about."""
Node = AtPhase | AtDecision


def kind_of(node: Node) -> Kind:
    """The kind of a phase or decision."""
    return node if isinstance(node, Phase) else node.kind


# The machine


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings of the process that the machine uses."""

    coordinator_id: str
    limits: BatchLimits
    retry: RetryPolicy
    unpublished_roots_max: int
    file_prefixes: tuple[str, ...] = ()
    header_limits: HeaderLimits = HEADER_LIMITS


class SelfFlush(NamedTuple):
    """The state of the coordinator's own leaves for a root that is too long.

    `ready` are leaves for the next batch. After failures, leaves are not requested before `not_before_s` (monotonic).
    """

    is_encoding: bool = False
    ready: OwnFlush | None = None
    failures: int = 0
    not_before_s: float = 0.0


class TableMachine(NamedTuple):
    """The state of one table: its phase, and what is known in every phase.

    * `base_ms`: the store's date at which the head was confirmed, `None` if the store has no dates.
    * `batch`: the records of the next root. They stay while a lost race is repeated, and so do the objects `fetched`
      for them.
    * `compared`: the partitions for which the log was compared with a loaded head.
    * `publishing`: the number of `PublishVerdicts` effects that are not acknowledged.
    * `put_s`: the average duration of a PUT.
    * `earlier`: the writers of the last two confirmed roots.
    * `timer`: the token of the newest timer. It only grows, so that an older timer closes no newer batch.
    """

    table: TableName
    policy: Policy
    phase: AtPhase = Phase.COLD
    head: TableState | None = None
    base_ms: int | None = None
    queue: tuple[Record, ...] = ()
    batch: tuple[Record, ...] = ()
    fetched: FetchedObjects = NOTHING_FETCHED
    flush: SelfFlush = SelfFlush()
    acknowledged: Acknowledged = NOTHING_ACKNOWLEDGED
    compared: frozenset[tuple[LogId, int]] = frozenset()
    publishing: int = 0
    put_s: float | None = None
    earlier: tuple[Writers, ...] = ()
    timer: int = 0
    losses: int = 0
    failures: int = 0
    stopping: bool = False

    @property
    def kind(self) -> Phase:
        """The kind of the phase."""
        return self.phase if isinstance(self.phase, Phase) else self.phase.kind

    @property
    def why(self) -> str:
        """The reason why the table is quarantined or paused. Empty if it is not."""
        return self.phase.why if isinstance(self.phase, Quarantined | Paused) else ""

    @property
    def queued(self) -> int:
        """The number of records that wait or are being committed."""
        return len(self.queue) + len(self.batch)

    def with_acknowledged(self, up_to: Iterable[PartitionOffset]) -> TableMachine:
        """The machine that knows that every verdict before these offsets is acknowledged."""
        old = self.acknowledged
        new = {(item.log, item.partition): item.next_offset for item in up_to}
        if not new:
            return self
        return self._replace(acknowledged={**old, **{at: max(offset, old.get(at, 0)) for at, offset in new.items()}})


class Move(NamedTuple):
    """One step along an arrow of the diagram: the next node, the new machine, and its effects."""

    to: Node
    machine: TableMachine
    effects: Sequence[Effect] = ()
