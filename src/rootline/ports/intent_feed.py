"""The source of a coordinator's records: assigned partitions, their records in order, pauses, and parked records.

Owns: the port and its events, the values for parked tables, pauses and operators' lifts. Does not own: the table of a
record, when its verdict is known, when a table is parked or paused (`rootline.coordinator.runtime.assignment`), where
pauses and parked records are stored (the adapter of the log).
Words: an *owner* or *reader* of partitions is one coordinator process. A table is *parked* if its undecided records are
stored outside the log, so that the offset of their partition can pass them. A *lift* lets a parked table try again.
Invariants: After `Assigned`, the records of a partition are delivered from its `next_offset` on, each once, in order,
until `Revoked`, which revokes all partitions. Everything before that offset has an acknowledged verdict. The committed
offset of a partition never decreases. An empty event does not mean that the log has ended. Parked records are durable
before the call returns. Every later owner of the partition learns which records are parked (`Assigned.parked`). A
parked record keeps its original position. Only `unpark` removes parked records.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from rootline.ports.intent_log import VerdictSink
from rootline.schemas.identifiers import LogId, LogPosition, LogRecord, TableName
from rootline.schemas.parts.log import PartitionOffset

ALL_TABLES: Final = TableName("*")
"""The table of a pause that applies to every table. While it lasts, no records are read."""


@dataclass(frozen=True, slots=True)
class Pause:
    """An operator's order: coordinators decide no intents of `table` until someone resumes it.

    `since_ms` and `why` are shown to people.
    """

    table: TableName
    since_ms: int
    why: str = ""

    @property
    def reason(self) -> str:
        """The reason why the table waits, for messages."""
        what = "all tables are paused" if self.table == ALL_TABLES else "paused"
        return f"{what} by an operator" + (f": {self.why}" if self.why else "")


def pause_of(pauses: Mapping[TableName, Pause], table: TableName) -> Pause | None:
    """The pause that applies to `table`: its own pause, or else the pause of all tables."""
    return pauses.get(table, pauses.get(ALL_TABLES))


@dataclass(frozen=True, slots=True)
class ParkedRun:
    """A run of parked records at the positions `first` to `last` of the store of parked records.

    Records in this range that another process than `writer` has stored do not belong to the run.
    """

    writer: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ParkedTable:
    """The parked records of a table in one partition: those of its undecided records that are before `next_offset`.

    * `records`: their number. If it is 0, this is only a notice that the table is stuck.
    * `since_ms`: the time since which the table has been stuck. `why`: the reason, for an operator.
    * `oldest_ms`: the append time of the first parked record.
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
    """An operator's request to retry a parked table.

    * `without_missing`: continue even if some parked records were lost.
    * `first_offset`: the offset of the first record that was parked at the time of the request. `without_missing` does
      not apply to records that are parked later. `None`: the request of an earlier version, which does not record it.
    * `name`: unique, so that two requests are distinct.
    """

    table: TableName
    log: LogId
    partition: int
    without_missing: bool = False
    first_offset: int | None = None
    name: str = ""


class ParkedStore(Protocol):
    """The place where a log's parked records are stored.

    A call for a partition that another process owns raises `Unavailable` (`log-unavailable`).
    """

    async def park(self, parked: ParkedTable, records: Sequence[LogRecord]) -> ParkedTable:
        """Store `records` as parked, and return the description of all parked records, as later owners receive it.

        `parked` is that description without `records`, except that `parked.next_offset` is already the offset after
        them. If `records` is empty, only `next_offset` and `why` are stored.

        Raises:
            Unavailable, OutcomeUnknown: `log-unavailable`, the committed offset must not pass the records.
            Invalid: `table-parked`, one record cannot be parked, so none was.
        """
        ...

    def parked_records(
        self, parked: ParkedTable, from_offset: int, *, without_missing: bool
    ) -> AsyncGenerator[Sequence[LogRecord], None]:
        """Read the parked records from an offset on, in order. Close the generator if you stop early.

        Raises:
            Unavailable: `log-unavailable`.
            Corrupt: `parked-missing`, a record is missing. It is raised before the records after it are yielded.
        """
        ...

    async def unpark(self, parked: ParkedTable) -> None:
        """Remove a table's notice and its parked records. All of them must be decided and acknowledged.

        Raises:
            Unavailable, OutcomeUnknown: later owners may still receive the table as parked.
        """
        ...

    async def lifts(self) -> Sequence[Lift]:
        """The operators' requests for this process's partitions that `lifted` has not confirmed yet.

        Raises `Unavailable`.
        """
        ...

    async def lifted(self, lift: Lift) -> None:
        """Confirm that `lift` was carried out. After `Unavailable` or `OutcomeUnknown`, `lifts` returns it again."""
        ...


Partition = tuple[LogId, int]
"""One partition of one log."""

ANY_TABLE: Final = TableName("*")
"""The table of a rejection that an earlier version recorded without a table."""


@dataclass(frozen=True, slots=True)
class RecordedRejection:
    """The rejection of the record at `position`, which no root records.

    `table`: the table that the record may belong to, because the record may be parked with it. `ANY_TABLE`: the table
    is not known.
    """

    position: LogPosition
    code: str
    message: str
    table: TableName | None = None


@dataclass(frozen=True, slots=True)
class Assigned:
    """All partitions that this process owns from now on. There are none if there are more processes than partitions.

    * `starts`: for each partition, the offset of the first record that may have no verdict yet.
    * `poison_candidates`: an earlier owner crashed, perhaps because of a record before these offsets.
    * `answered`: rejections that earlier owners have published, or were about to, of records after `starts`. Publish
      the same rejection for such a record, and no other verdict.
    * `parked`: the records that earlier owners have parked. A table gets them before its records on the log.
    * `retention_s`: the log keeps records for at least this long, decided or not. `None`: until they are decided.
    """

    starts: tuple[PartitionOffset, ...]
    poison_candidates: tuple[PartitionOffset, ...] = ()
    answered: tuple[RecordedRejection, ...] = ()
    parked: tuple[ParkedTable, ...] = ()
    retention_s: float | None = None
    generation: int = 0
    """The argument of `confirm`."""
    paused: tuple[Pause, ...] = ()
    """The pauses of operators. `IntentFeed.pauses` returns later changes."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """Records, in order within each partition, perhaps none. `at_end`: at that moment the log had no more records.

    `passed`: the next offsets after log entries that are not records, for instance the end of a transaction.
    """

    records: tuple[LogRecord, ...]
    at_end: bool
    passed: tuple[PartitionOffset, ...] = ()


@dataclass(frozen=True, slots=True)
class Revoked:
    """A rebalance will assign all partitions. Call `released` as soon as none of their records is in flight.

    After `deadline_s` seconds the process loses the partitions even without the call.
    """

    deadline_s: float


FeedEvent = Assigned | Delivered | Revoked


@dataclass(frozen=True, slots=True)
class Reread:
    """Records that were read a second time, and the offset to continue from, which is the start if there were none."""

    records: tuple[LogRecord, ...]
    next_offset: int


class IntentFeed(Protocol):
    """One of the readers that share a log. Use it from one event loop. The first `next` connects."""

    async def next(self, *, wait_s: float, deliver: bool = True) -> FeedEvent:
        """The next event, or an empty `Delivered` after about `wait_s` seconds. Safe to cancel: no record is lost.

        `deliver`: false while the caller has no room for records, but must learn of changed assignments.

        Raises:
            Unavailable: `log-unavailable`, a retry is safe.
            Fenced: `log-replaced`, `log-behind-root`, `offset-out-of-range`: stop reading this log.
        """
        ...

    async def released(self) -> None:
        """Answer `Revoked`: none of the partitions' records is in flight any more. Call `decided` before this."""
        ...

    async def decided(self, up_to: Sequence[PartitionOffset]) -> None:
        """Commit these offsets for the next reader. Every record before them must have an acknowledged verdict.

        Raises:
            Unavailable: `log-unavailable`, not committed. Other readers may own the partitions now.
        """
        ...

    async def concluded(self, up_to: Sequence[PartitionOffset]) -> None:
        """Commit these offsets as `decided` does, and mark that this reader stops normally.

        The next reader then need not treat the records that follow as poison candidates.

        Raises:
            Unavailable: as `decided`.
        """
        ...

    async def record_rejections(self, rejections: Sequence[RecordedRejection]) -> None:
        """Record rejections for the next reader (`Assigned.answered`), durably, before they are published.

        Raises:
            Unavailable: `log-unavailable`, they must not be published. Another process may own the partitions now, or
                there is no room for more rejections until `decided` passes earlier ones (see `paused`).
            OutcomeUnknown: `publish-unknown`. Call it once more before they are published.
        """
        ...

    async def confirm(self, generation: int) -> None:
        """Check with the log that this reader still owns the partitions of the assignment with this generation.

        Raises:
            Unavailable: `log-unavailable`, not confirmed. Other processes may own them, and decide their records.
        """
        ...

    def paused(self) -> Sequence[Partition]:
        """The partitions without room for more recorded rejections.

        No records of these partitions are delivered until `decided` passes some of the rejections.
        """
        ...

    async def pauses(self) -> Sequence[Pause]:
        """The pauses that operators have in force now.

        Raises:
            Unavailable: `log-unavailable`.
        """
        ...

    async def read_again(self, reader: str, start: PartitionOffset, *, limit: int) -> Reread:
        """Read up to `limit` records of a partition from an offset on, independently of `next`.

        `reader`: a name. Successive reads under one name share a connection. An empty result means that there was no
        record when the read began.

        Raises:
            Unavailable: `log-unavailable`. Fenced: `offset-out-of-range`.
        """
        ...

    async def forget_reader(self, reader: str) -> None:
        """Close the connection of this reader, which does not read any more."""
        ...

    async def end_offset(self, log: LogId, partition: int) -> int | None:
        """The offset of the next record of a partition, or `None` if `log` is another log.

        Never cached: a root that has applied records past the end proves that the log has lost some.

        Raises:
            Unavailable: `log-unavailable`.
        """
        ...

    async def confirmed_version(self, table: TableName) -> int | None:
        """The highest version of `table` in any verdict on this log. `None` if the log would have to search for it.

        A head with a lower version proves that the store has lost roots.

        Raises:
            Unavailable: `log-unavailable`.
        """
        ...

    async def lag(self) -> Mapping[Partition, int]:
        """The number of records of each assigned partition that were not delivered yet, as far as known.

        Raises:
            Unavailable: `log-unavailable`.
        """
        ...


class RecordingSink(VerdictSink, Protocol):
    """Publishes verdicts, and records beforehand the rejections that no root records."""

    async def record_rejections(self, rejections: Sequence[RecordedRejection]) -> None:
        """Record rejections, see `IntentFeed.record_rejections`."""
        ...


class CoordinatorLog(IntentFeed, RecordingSink, Protocol):
    """The operations of a coordinator on a log: it reads intents, and publishes verdicts."""

    @property
    def parking(self) -> ParkedStore | None:
        """The store of parked records. `None` if the log keeps undecided records, so that no table must be parked."""
        ...

    async def close(self) -> None:
        """Release the partitions immediately, so that other processes can own them, and close the connections."""
        ...
