"""The events that the commit machine receives.

Owns: one type for each kind of event, and the `Tick` that accompanies each. Does not own: their handling.
Invariants: An event states a fact and never requests an action, except `StopRequested`.
"""

from __future__ import annotations

from dataclasses import dataclass

from rootline.ports.object_store import PutReply
from rootline.schemas.identifiers import CommitId, Version
from rootline.schemas.parts.log import PartitionOffset
from rootline.tree.draft.batch import FetchedObjects, Record
from rootline.tree.intents.self_flush import OwnFlush
from rootline.tree.state.table_state import TableState


@dataclass(frozen=True, slots=True)
class Tick:
    """The clock and the randomness for one event: wall clock (ms), monotonic clock (s), fresh id, number in [0, 1)."""

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
    """The head was loaded. `state` is `None` if the table has no root. `store_ms` is the date of the LIST, if any."""

    state: TableState | None
    store_ms: int | None


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """The head could not be loaded, or the root in flight not read back. `corrupt` means that a retry cannot help."""

    corrupt: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Fetched:
    """The objects that a batch needs were read. An object that is missing or unreadable is `Absent`."""

    fetched: FetchedObjects


@dataclass(frozen=True, slots=True)
class ObjectsStored:
    """The objects that the root will reference are stored."""


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """A read, or storing an object other than the root, failed. Nothing is decided by it."""

    detail: str


@dataclass(frozen=True, slots=True)
class PutReplied:
    """The store replied to the PUT of the root in flight, or did not reply in time."""

    reply: PutReply


@dataclass(frozen=True, slots=True)
class RootReadBack:
    """The result of a GET of the root that was put: its commit id, and the store's dates (ms).

    The commit id is `None` if there is no root.
    """

    commit_id: CommitId | None
    store_ms: int | None
    last_modified_ms: int | None


@dataclass(frozen=True, slots=True)
class HeadListed:
    """A LIST has the newest version (`None` if there is no root) and its date (ms)."""

    version: Version | None
    store_ms: int | None


@dataclass(frozen=True, slots=True)
class VerdictsPublished:
    """The log has acknowledged every verdict on this table's records before these offsets."""

    up_to: tuple[PartitionOffset, ...]


@dataclass(frozen=True, slots=True)
class LeavesEncoded:
    """Leaves for the rows of a head are encoded. There are none if no row can move to a leaf."""

    flush: OwnFlush


@dataclass(frozen=True, slots=True)
class EncodingFailed:
    """Encoding leaves failed, with the reason."""

    detail: str


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The timer with this token fired. An event with a stale token is ignored."""

    token: int


@dataclass(frozen=True, slots=True)
class StopRequested:
    """A stop was requested: finish the root in flight, and start nothing new."""


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
