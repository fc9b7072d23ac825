"""The effects of the commit machine: requests that the runtime carries out.

Owns: one type for each kind of effect. Does not own: carrying them out (`coordinator/runtime/table/effect_runner`).
Invariants: Every effect is answered by exactly one event, except `PublishVerdicts`, `ArmTimer` and `Report`. A crash
between two effects loses nothing, because the root contains everything that must be known.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rootline.ports.object_store import Predecessor
from rootline.schemas.identifiers import CommitId, ObjectKey, Version
from rootline.schemas.parts.log import PartitionOffset
from rootline.schemas.verdict import Verdict
from rootline.tree.draft.batch import Needs, Record
from rootline.tree.state.pending_object import PendingObject
from rootline.tree.state.table_state import TableState


@dataclass(frozen=True, slots=True)
class LoadHead:
    """Find the head with a LIST, and read it with its leaves and pages, except those that `known` has.

    `lowest` has the lowest waiting offset of each partition. If the head has decided that offset, the log is first
    compared with the head, because another record may be at the offset now.
    """

    known: TableState | None
    lowest: tuple[PartitionOffset, ...] = ()


@dataclass(frozen=True, slots=True)
class Fetch:
    """Read the objects that the batch needs."""

    needs: Needs


@dataclass(frozen=True, slots=True)
class StoreObjects:
    """Store the objects that the root will reference. Their names follow from their content, so a retry is safe."""

    objects: tuple[PendingObject, ...]


@dataclass(frozen=True, slots=True)
class PutRoot:
    """Send the conditional PUT that commits the root. `after` is the root that must still be the newest."""

    version: Version
    key: ObjectKey
    body: bytes
    after: Predecessor


@dataclass(frozen=True, slots=True)
class ReadBack:
    """Read the root in flight with a GET, to learn whose root it is."""

    version: Version
    key: ObjectKey
    own: CommitId


@dataclass(frozen=True, slots=True)
class ListHead:
    """Find the newest version with a LIST, to confirm a head whose predecessor was confirmed too long ago."""


@dataclass(frozen=True, slots=True)
class EncodeLeaves:
    """Plan and encode leaves for the rows of `head`. The answer may arrive in any phase, many roots later."""

    head: TableState


@dataclass(frozen=True, slots=True)
class Decided:
    """One record with its verdict."""

    record: Record
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class PublishVerdicts:
    """Publish verdicts, in the order of these effects.

    After the log acknowledges them, the next root may drop the outcomes below `up_to`. `is_unrecorded` means that no
    root records these rejections, so the log must store them before they are published.
    """

    decided: tuple[Decided, ...]
    up_to: tuple[PartitionOffset, ...]
    version: Version | None
    is_unrecorded: bool = False


@dataclass(frozen=True, slots=True)
class ArmTimer:
    """Send `TimerFired(token)` in `delay_s` seconds. It replaces the timer armed before."""

    token: int
    delay_s: float


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


Effect = (
    LoadHead | Fetch | StoreObjects | PutRoot | ReadBack | ListHead | EncodeLeaves | PublishVerdicts | ArmTimer | Report
)
