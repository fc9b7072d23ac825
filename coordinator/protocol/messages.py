"""The messages between the commit machine and the runtime: events to the machine, effects to the runtime.

Owns: one type for each kind of event and of effect, each request beside its answers, and the `Tick` that accompanies
each event. Does not own: the handling of events (`commit_machine`), carrying effects out
(`coordinator/runtime/table/effect_runner`).
Invariants: An event states a fact and never requests an action, except `StopRequested`. Every effect is answered by
exactly one event, except `PublishVerdicts`, `ArmTimer` and `Report`. A crash between two effects loses nothing, because
the root contains everything that must be known.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rootline.ports.object_store import Predecessor, PutReply
from rootline.schemas.identifiers import CommitId, ObjectKey, Version
from rootline.schemas.parts.log import PartitionOffset
from rootline.schemas.verdict import Verdict
from rootline.tree.draft.batch import FetchedObjects, Needs, Record
from rootline.tree.intents.flush import OwnFlush
from rootline.tree.state.table_state import PendingObject, TableState

# The clock


@dataclass(frozen=True, slots=True)
class Tick:
    """The clock and the randomness for one event: wall clock (ms), monotonic clock (s), fresh id, number in [0, 1)."""

    now_ms: int
    monotonic_s: float
    fresh_id: str
    jitter: float


# Records arrive


@dataclass(frozen=True, slots=True)
class Arrived:
    """Records of this table, in the log's order."""

    records: tuple[Record, ...]


# Load the head


@dataclass(frozen=True, slots=True)
class LoadHead:
    """Find the head with a LIST, and read it with its leaves and pages, except those that `known` has.

    `lowest` has the lowest waiting offset of each partition. If the head has decided the record at that offset, the
    head is compared with the log, because a replaced log may have another record at this offset.
    """

    known: TableState | None
    lowest: tuple[PartitionOffset, ...] = ()


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


# Fetch what a batch needs


@dataclass(frozen=True, slots=True)
class Fetch:
    """Read the objects that the batch needs."""

    needs: Needs


@dataclass(frozen=True, slots=True)
class Fetched:
    """The objects that a batch needs were read. An object that is missing or unreadable is `Absent`."""

    fetched: FetchedObjects


# Store the objects of a root


@dataclass(frozen=True, slots=True)
class StoreObjects:
    """Store the objects that the root will reference. Their names follow from their content, so a retry is safe."""

    objects: tuple[PendingObject, ...]


@dataclass(frozen=True, slots=True)
class ObjectsStored:
    """The objects that the root will reference are stored."""


# Put a root, and learn its outcome


@dataclass(frozen=True, slots=True)
class PutRoot:
    """Send the conditional PUT that commits the root. `after` is the root that must still be the newest."""

    version: Version
    key: ObjectKey
    body: bytes
    after: Predecessor


@dataclass(frozen=True, slots=True)
class PutReplied:
    """The store replied to the PUT of the root in flight, or did not reply in time."""

    reply: PutReply


@dataclass(frozen=True, slots=True)
class ReadBack:
    """Read the root in flight with a GET, to learn whose root it is."""

    version: Version
    key: ObjectKey
    own: CommitId


@dataclass(frozen=True, slots=True)
class RootReadBack:
    """The result of a GET of the root that was put: its commit id, and the store's dates (ms).

    The commit id is `None` if there is no root.
    """

    commit_id: CommitId | None
    store_ms: int | None
    last_modified_ms: int | None


@dataclass(frozen=True, slots=True)
class ListHead:
    """Find the newest version with a LIST, to confirm a root that landed too long after its predecessor (300 s)."""


@dataclass(frozen=True, slots=True)
class HeadListed:
    """The LIST shows `version` as the newest root, `None` if there is no root. `store_ms` is the date of the LIST."""

    version: Version | None
    store_ms: int | None


# A read or a store of another object fails


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """A read failed, or an object other than the root was not stored. That proves nothing about the root in flight."""

    detail: str


# Encode the coordinator's own leaves


@dataclass(frozen=True, slots=True)
class EncodeLeaves:
    """Plan and encode leaves for the rows of `head`. The answer may arrive in any phase, many roots later."""

    head: TableState


@dataclass(frozen=True, slots=True)
class LeavesEncoded:
    """Leaves for the rows of a head are encoded. `flush` has no leaves if no row can move to a leaf."""

    flush: OwnFlush


@dataclass(frozen=True, slots=True)
class EncodingFailed:
    """Encoding leaves failed, with the reason."""

    detail: str


# Publish verdicts


@dataclass(frozen=True, slots=True)
class Decided:
    """One record with its verdict."""

    record: Record
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class PublishVerdicts:
    """Publish verdicts after those of earlier effects.

    * `up_to`: after the log has acknowledged the verdicts, the next root may drop the outcomes below these offsets.
    * `version`: the root that decided them. `None` if it was not this machine's, or if there is no root.
    * `is_unrecorded`: no root records these rejections, so the log must store them before they are published.
    """

    decided: tuple[Decided, ...]
    up_to: tuple[PartitionOffset, ...]
    version: Version | None
    is_unrecorded: bool = False


@dataclass(frozen=True, slots=True)
class VerdictsPublished:
    """The log has acknowledged every verdict on this table's records before these offsets."""

    up_to: tuple[PartitionOffset, ...]


# Wait, stop, report


@dataclass(frozen=True, slots=True)
class ArmTimer:
    """Send `TimerFired(token)` in `delay_s` seconds. It replaces the timer armed before."""

    token: int
    delay_s: float


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The timer with this token fired. An event with a stale token is ignored."""

    token: int


@dataclass(frozen=True, slots=True)
class StopRequested:
    """A stop was requested: finish the root in flight, and start nothing new."""


class Noted(StrEnum):
    """The kinds of `Report`, from which metrics and log lines are made."""

    ROOT_LANDED = "root_landed"
    PUT_ASKED = "put_asked"
    REBASED = "rebased"
    HEAD_LOADED = "head_loaded"
    STORE_FAILED = "store_failed"
    YIELDED = "yielded"
    QUARANTINED = "quarantined"
    ENCODING_FAILED = "encoding_failed"
    CLOCKS_APART = "clocks_apart"
    PROGRESS_DROPPED = "progress_dropped"


@dataclass(frozen=True, slots=True)
class Report:
    """A fact for operators, with its reason, version and duration in seconds.

    `traces` has the ids of the first few traces of a landed root's intents.
    """

    noted: Noted
    detail: str = ""
    version: Version | None = None
    elapsed_s: float | None = None
    traces: tuple[str, ...] = ()


# All of them

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
Effect = (
    LoadHead | Fetch | StoreObjects | PutRoot | ReadBack | ListHead | EncodeLeaves | PublishVerdicts | ArmTimer | Report
)
