"""What the commit machine asks of the outside.

Owns: one value per kind of effect. Does not own: carrying them out (`coordinator/runtime/table/effect_runner`).
Invariants: every effect but `PublishVerdicts`, `ArmTimer` and `Report` is answered by exactly one event; a crash
between any two effects loses nothing, because the root carries what must be known.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rootline.ports.object_store import Predecessor
from rootline.schemas.identifiers import CommitId, ObjectKey, Version
from rootline.schemas.root_header import PartitionOffset
from rootline.schemas.verdict import Verdict
from rootline.tree.draft.batch import Needs, Record
from rootline.tree.state.pending_object import PendingObject
from rootline.tree.state.table_state import TableState


@dataclass(frozen=True, slots=True)
class LoadHead:
    """A LIST for the head, and reads of it, its leaves and its pages, except leaves and pages of `known`.

    `lowest`: the lowest offset of each partition that waits. Where the head has decided it, the log is compared with
    the head first: verdicts that it has belong to records that it has seen, whatever else is at their offsets now.
    """

    known: TableState | None
    lowest: tuple[PartitionOffset, ...] = ()


@dataclass(frozen=True, slots=True)
class Fetch:
    """Read leaves and vectors."""

    needs: Needs


@dataclass(frozen=True, slots=True)
class StoreObjects:
    """Create what the root will reference. Their names follow from their content, so that again does no harm."""

    objects: tuple[PendingObject, ...]


@dataclass(frozen=True, slots=True)
class PutRoot:
    """The conditional PUT that decides; `after` is the root that must still be the newest."""

    version: Version
    key: ObjectKey
    body: bytes
    after: Predecessor


@dataclass(frozen=True, slots=True)
class ReadBack:
    """GET the root in flight: whose is it?"""

    version: Version
    key: ObjectKey
    own: CommitId


@dataclass(frozen=True, slots=True)
class ListHead:
    """LIST for the newest version, to confirm a head whose predecessor was confirmed too long ago."""


@dataclass(frozen=True, slots=True)
class EncodeLeaves:
    """Plan and encode leaves for the rows of `head`; the answer may come in any phase, many roots later."""

    head: TableState


@dataclass(frozen=True, slots=True)
class Decided:
    """One record with its verdict."""

    record: Record
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class PublishVerdicts:
    """Publish, in the order of these effects; once acknowledged, `up_to` may be dropped from the next root.

    `is_unrecorded`: no root records these rejections, so the log must hold them before they are told.
    """

    decided: tuple[Decided, ...]
    up_to: tuple[PartitionOffset, ...]
    version: Version | None
    is_unrecorded: bool = False


@dataclass(frozen=True, slots=True)
class ArmTimer:
    """Send `TimerFired(token)` in `delay_s` seconds; it replaces the timer armed before."""

    token: int
    delay_s: float


class Noted(StrEnum):
    """What a `Report` is about; metrics and log lines follow from it."""

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
    """Something that people want to know: what, why, in which version, how long it took (seconds).

    `traces`: ids of the first few traces that a landed root's intents belong to.
    """

    noted: Noted
    detail: str = ""
    version: Version | None = None
    elapsed_s: float | None = None
    traces: tuple[str, ...] = ()


Effect = (
    LoadHead | Fetch | StoreObjects | PutRoot | ReadBack | ListHead | EncodeLeaves | PublishVerdicts | ArmTimer | Report
)
