"""What happens outside the commit machine, as it is told.

Owns: one value per kind of event, and the `Tick` that comes with each. Does not own: what follows from them.
Invariants: an event is a fact that has happened; it never asks.
"""

from __future__ import annotations

from dataclasses import dataclass

from rootline.ports.object_store import PutReply
from rootline.schemas.identifiers import CommitId, Version
from rootline.schemas.root_header import PartitionOffset
from rootline.tree.draft.batch import FetchedObjects, Record
from rootline.tree.intents.self_flush import OwnFlush
from rootline.tree.state.table_state import TableState


@dataclass(frozen=True, slots=True)
class Tick:
    """When an event is handled: wall clock (ms), monotonic clock (s), a fresh id, a number in [0, 1)."""

    now_ms: int
    monotonic_s: float
    fresh_id: str
    jitter: float


@dataclass(frozen=True, slots=True)
class Arrived:
    """Records of this table, in the log's order."""

    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class HeadLoaded:
    """The head as a LIST showed it: state `None` when the table has no root. `store_ms`: the LIST's date, if any."""

    state: TableState | None
    store_ms: int | None


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """The head could not be loaded, or a root not read back: `corrupt` says that trying again is no use."""

    corrupt: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Fetched:
    """Leaves and vectors that a batch needs; a value of `None` means: looked for, and not there or not readable."""

    fetched: FetchedObjects


@dataclass(frozen=True, slots=True)
class ObjectsStored:
    """What the root will reference is in the store."""


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """The store did not carry out a read or a side object; nothing is decided by it."""

    detail: str


@dataclass(frozen=True, slots=True)
class PutReplied:
    """The store's reply to the PUT of the root in flight."""

    reply: PutReply


@dataclass(frozen=True, slots=True)
class RootReadBack:
    """What a GET of the root in flight showed: whose it is (`None`: no root), and the store's dates (ms)."""

    commit_id: CommitId | None
    store_ms: int | None
    last_modified_ms: int | None


@dataclass(frozen=True, slots=True)
class HeadListed:
    """The newest version by a LIST (`None`: no root), and the date of that LIST (ms)."""

    version: Version | None
    store_ms: int | None


@dataclass(frozen=True, slots=True)
class VerdictsPublished:
    """The log has acknowledged every verdict on this table's records before these offsets."""

    up_to: tuple[PartitionOffset, ...]


@dataclass(frozen=True, slots=True)
class LeavesEncoded:
    """Leaves for the rows of the head that was asked about; none when there is nothing that a leaf could take over."""

    flush: OwnFlush


@dataclass(frozen=True, slots=True)
class EncodingFailed:
    """There are no leaves, and why."""

    detail: str


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The timer with this token ran out; a token that is no longer armed means nothing."""

    token: int


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Finish what is in flight, begin nothing new."""


Event = (
    Arrived
    | HeadLoaded
    | LoadFailed
    | Fetched
    | ObjectsStored
    | RequestFailed
    | PutReplied
    | RootReadBack
    | HeadListed
    | VerdictsPublished
    | LeavesEncoded
    | EncodingFailed
    | TimerFired
    | StopRequested
)
