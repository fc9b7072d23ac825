"""Where a coordinator gets its records: from partitions that come and go, in order within each.

Owns: the port and its events. Does not own: which table a record is for, when its verdict is known.
Invariants: after `Assigned`, a partition's records come from its `next_offset` on, each once, in order, until
`Revoked`, which takes all partitions; everything before that offset has an acknowledged verdict; the remembered offset
of a partition never goes back; an empty answer never means the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from rootline.ports.intent_log import VerdictSink
from rootline.ports.parking import ParkedStore, ParkedTable
from rootline.ports.pausing import Pause
from rootline.schemas.identifiers import LogId, LogPosition, LogRecord, TableName
from rootline.schemas.root_header import PartitionOffset

Partition = tuple[LogId, int]
"""One partition of one log."""

ANY_TABLE: Final = TableName("*")
"""In an answer that an earlier version held: it did not say of which table."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A rejection that no root records, of the record at `position`.

    `table`: to which the record may have been given, so that it may be parked; `ANY_TABLE`: it is not known which.
    """

    position: LogPosition
    code: str
    message: str
    table: TableName | None = None


@dataclass(frozen=True, slots=True)
class Assigned:
    """These partitions are this process's now, and no others; each start is the first record that may lack a verdict.

    Empty when there are more readers than partitions. `poison_candidates`: a reader crashed, and it may have been
    decoding any of the records before these offsets. `answered`: rejections that an earlier reader has told, or was
    about to tell, of records that come now; they must be told again and nothing else. `parked`: what earlier readers
    have parked of these partitions; for its tables it comes before everything else. `retention_s`: how long the log
    keeps records at least, whether or not they were decided; `None`: until they are.
    """

    starts: tuple[PartitionOffset, ...]
    poison_candidates: tuple[PartitionOffset, ...] = ()
    answered: tuple[Answer, ...] = ()
    parked: tuple[ParkedTable, ...] = ()
    retention_s: float | None = None
    term: int = 0
    """For `confirm`."""
    paused: tuple[Pause, ...] = ()
    """What operators have paused; `IntentFeed.pauses` tells later changes."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """Records, in order within each partition; none if none came. `at_end`: there were no more at that moment.

    `passed`: the reading has also passed what is not a record, for instance the end of a transaction, up to here.
    """

    records: tuple[LogRecord, ...]
    at_end: bool
    passed: tuple[PartitionOffset, ...] = ()


@dataclass(frozen=True, slots=True)
class Revoked:
    """All partitions go to others soon: call `released` once nothing of them is in flight here.

    A reader that does not answer within `deadline_s` seconds loses them all the same.
    """

    deadline_s: float


FeedEvent = Assigned | Delivered | Revoked


@dataclass(frozen=True, slots=True)
class Reread:
    """Records that were read again, and the offset to continue from: unchanged if nothing was read."""

    records: tuple[LogRecord, ...]
    next_offset: int


class IntentFeed(Protocol):
    """One reader among those that share a log. For one event loop; connects with the first `next`."""

    async def next(self, *, wait_s: float, hold: bool = False) -> FeedEvent:
        """The next event, or an empty `Delivered` after about `wait_s` seconds. Safe to cancel: no record is lost.

        With `hold` no records come: the caller has no room, but still wants to know about assignments.

        Raises:
            Unavailable: `log-unavailable`; asking again is safe.
            Fenced: `log-replaced`, `log-behind-root`, `offset-out-of-range`: stop reading this log.
        """
        ...

    async def released(self) -> None:
        """Answer `Revoked`: nothing is in flight here any more. Call `decided` before this."""
        ...

    async def decided(self, up_to: Sequence[PartitionOffset]) -> None:
        """Every record before these offsets has an acknowledged verdict: remember it for the next reader.

        Raises:
            Unavailable: `log-unavailable`, not remembered (perhaps other readers have the partitions now).
        """
        ...

    async def concluded(self, up_to: Sequence[PartitionOffset]) -> None:
        """As `decided`, and this reader ends normally: the next one need not suspect the records that follow.

        Raises:
            Unavailable: as `decided`.
        """
        ...

    async def hold(self, answers: Sequence[Answer]) -> None:
        """Keep these for the next reader (`Assigned.answered`) before they are told; durable when it returns.

        Raises:
            Unavailable: `log-unavailable`, they must not be told: others may have the partitions now, or there is no
            room for more until `decided` passes some of them (`paused`).
            OutcomeUnknown: `publish-unknown`; hold them again before they are told.
        """
        ...

    async def confirm(self, term: int) -> None:
        """The partitions of the assignment with this term are still this reader's; the log has said so after the call.

        Raises:
            Unavailable: `log-unavailable`, it has not: others may have them, and decide their records.
        """
        ...

    def paused(self) -> Sequence[Partition]:
        """Partitions without room for more answers: no records come of them until `decided` passes some."""
        ...

    async def pauses(self) -> Sequence[Pause]:
        """What operators have paused now.

        Raises:
            Unavailable: `log-unavailable`.
        """
        ...

    async def read_again(self, reader: str, start: PartitionOffset, *, limit: int) -> Reread:
        """Up to `limit` records of a partition from an offset on, independent of the main reading.

        `reader`: a name; reads under one name that follow each other share a connection. Empty: there was nothing
        when the read began.

        Raises:
            Unavailable: `log-unavailable`. Fenced: `offset-out-of-range`.
        """
        ...

    async def forget_reader(self, reader: str) -> None:
        """This reader does not read again: give back its connection."""
        ...

    async def end_offset(self, log: LogId, partition: int) -> int | None:
        """The offset that the next record of a partition gets; `None`: another log.

        Always asked afresh: a root that has applied records past the end proves that the log has lost some.

        Raises:
            Unavailable: `log-unavailable`.
        """
        ...

    async def confirmed_version(self, table: TableName) -> int | None:
        """The highest version of `table` that a verdict on this log named, if the log knows it without a search.

        A head below it proves that the store has lost roots.

        Raises:
            Unavailable: `log-unavailable`.
        """
        ...

    async def lag(self) -> Mapping[Partition, int]:
        """Records of each assigned partition that were not delivered yet, as far as known.

        Raises:
            Unavailable: `log-unavailable`.
        """
        ...


class AnsweringSink(VerdictSink, Protocol):
    """Where verdicts go, and before them those that no root records."""

    async def hold(self, answers: Sequence[Answer]) -> None:
        """As `IntentFeed.hold`."""
        ...


class CoordinatorLog(IntentFeed, AnsweringSink, Protocol):
    """A coordinator's side of a log."""

    @property
    def parking(self) -> ParkedStore | None:
        """Where records are parked; `None`: the log keeps what is undecided, so no table needs that."""
        ...

    async def close(self) -> None:
        """Leave at once, so that others can take over without waiting; give back connections."""
        ...
