"""The source of a coordinator's records: partitions that come and go, in order within each, with pauses and parking.

Owns: the port and its events, parked tables, operators' lifts and pauses as values. Does not own: the table of a
record, when its verdict is known, when a table is parked or paused (`rootline.coordinator.runtime.assignment`), where
marks and parked records are stored (the adapter of the log).
Invariants: after `Assigned`, a partition's records come from its `next_offset` on, each once, in order, until
`Revoked`, which takes all partitions. Everything before that offset has an acknowledged verdict. The remembered offset
of a partition never goes back. An empty answer never means the end. Parked records are durable before the call
returns, every later owner of the partition is given their names (`Assigned.parked`), a record keeps its own position,
and only `unpark` removes parked records.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from rootline.ports.intent_log import VerdictSink
from rootline.schemas.identifiers import LogId, LogPosition, LogRecord, TableName
from rootline.schemas.root_header import PartitionOffset

ALL_TABLES: Final = TableName("*")
"""In a pause: every table, and no more records are read."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Coordinators decide no intents of `table` until someone resumes it. `since_ms` and `why` are for people."""

    table: TableName
    since_ms: int
    why: str = ""

    @property
    def reason(self) -> str:
        """Why the table waits, in words."""
        what = "all tables are paused" if self.table == ALL_TABLES else "paused"
        return f"{what} by an operator" + (f": {self.why}" if self.why else "")


def pause_of(pauses: Mapping[TableName, Pause], table: TableName) -> Pause | None:
    """The pause that counts for `table`: its own one, else that of all tables."""
    return pauses.get(table, pauses.get(ALL_TABLES))


@dataclass(frozen=True, slots=True)
class ParkedRun:
    """Where the lot keeps consecutive parked records, as it counts; `writer`: only its records belong to the run."""

    writer: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ParkedTable:
    """What is parked of one table and partition: its records before `next_offset` that were undecided.

    From `next_offset` on they are on the log. `records` may be 0: the table is quarantined, but nothing had to be
    parked yet. `since_ms`: since when it cannot go on; `why`: for an operator; `oldest_ms`: of the first parked record.
    """

    table: TableName
    log: LogId
    partition: int
    next_offset: int
    since_ms: int
    why: str
    first_offset: int
    records: int = 0
    size_in_bytes: int = 0
    oldest_ms: int | None = None
    runs: tuple[ParkedRun, ...] = ()


@dataclass(frozen=True, slots=True)
class Lift:
    """An operator's word: try this table again. `without_missing`: go on without the parked records that are gone.

    `first_offset`: of what the operator saw parked; the word to go on without records is not for what is parked later.
    `None`: an earlier version asks, and does not say. `name`: its own, so that two that are asked are two.
    """

    table: TableName
    log: LogId
    partition: int
    without_missing: bool = False
    first_offset: int | None = None
    name: str = ""


class ParkedStore(Protocol):
    """A log's place for parked records. Calls for partitions that are others' fail with `log-unavailable`."""

    async def park(self, parked: ParkedTable, records: Sequence[LogRecord]) -> ParkedTable:
        """Add `records` to what is parked; `parked` with them, as it is told to later owners.

        `parked.next_offset` already says where the log goes on after them. Without records only that, and why, is kept.

        Raises:
            Unavailable: `log-unavailable`, the offset must not pass them. OutcomeUnknown: the same.
            Invalid: `table-parked`, a record cannot be parked: nothing was.
        """
        ...

    def parked_records(
        self, parked: ParkedTable, from_offset: int, *, without_missing: bool
    ) -> AsyncGenerator[Sequence[LogRecord], None]:
        """The parked records from an offset on, in order; close the generator if you stop early.

        Raises:
            Unavailable: `log-unavailable`. Corrupt: `parked-missing`, before anything that follows the missing record.
        """
        ...

    async def unpark(self, parked: ParkedTable) -> None:
        """All of it is decided and acknowledged: forget it, and remove the records.

        Raises:
            Unavailable: `log-unavailable`, later owners may be told of it again. OutcomeUnknown: the same.
        """
        ...

    async def lifts(self) -> Sequence[Lift]:
        """What operators ask of this reader's partitions and was not answered with `lifted`. Raises `Unavailable`."""
        ...

    async def lifted(self, lift: Lift) -> None:
        """It was done. Raises `Unavailable` or `OutcomeUnknown`: it comes again."""
        ...


Partition = tuple[LogId, int]
"""One partition of one log."""

ANY_TABLE: Final = TableName("*")
"""In an answer that an earlier version held: it did not say of which table."""


@dataclass(frozen=True, slots=True)
class RecordedRejection:
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
    answered: tuple[RecordedRejection, ...] = ()
    parked: tuple[ParkedTable, ...] = ()
    retention_s: float | None = None
    generation: int = 0
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

    async def next(self, *, wait_s: float, deliver: bool = True) -> FeedEvent:
        """The next event, or an empty `Delivered` after about `wait_s` seconds. Safe to cancel: no record is lost.

        Without `deliver` no records are returned. A caller without room calls it to learn about assignments.

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

    async def record_rejections(self, rejections: Sequence[RecordedRejection]) -> None:
        """Record rejections for the next reader (`Assigned.answered`) before they are published. Durable on return.

        Raises:
            Unavailable: `log-unavailable`, they must not be published: others may have the partitions now, or there is
            no room for more until `decided` passes some of them (`paused`).
            OutcomeUnknown: `publish-unknown`, record them again before publishing them.
        """
        ...

    async def confirm(self, generation: int) -> None:
        """Confirm with the log that the partitions of the assignment with this generation still belong to this reader.

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


class RecordingSink(VerdictSink, Protocol):
    """Where verdicts go, and before them those that no root records."""

    async def record_rejections(self, rejections: Sequence[RecordedRejection]) -> None:
        """As `IntentFeed.record_rejections`."""
        ...


class CoordinatorLog(IntentFeed, RecordingSink, Protocol):
    """A coordinator's side of a log."""

    @property
    def parking(self) -> ParkedStore | None:
        """Where records are parked; `None`: the log keeps what is undecided, so no table needs that."""
        ...

    async def close(self) -> None:
        """Leave at once, so that others can take over without waiting; give back connections."""
        ...
