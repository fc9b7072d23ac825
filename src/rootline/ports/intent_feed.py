"""The source of a coordinator's records: assigned partitions, their records in order, pauses, and parked records.

Owns: the port and its events, the values for parked tables, pauses and operators' lifts. Does not own: the table of a
record, when its verdict is known, when a table is parked or paused (`rootline.coordinator.runtime.assignment`), where
pauses and parked records are stored (the adapter of the log).
Invariants: After `Assigned`, the records of a partition are delivered from its `next_offset` on, each once, in order,
until `Revoked`, which takes all partitions. Everything before that offset has an acknowledged verdict. The committed
offset of a partition never decreases. An empty event does not mean that the log has ended. Parked records are durable
before the call returns. Every later owner of the partition receives their names (`Assigned.parked`). A parked record
keeps its original position. Only `unpark` removes parked records.
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
    """A run of consecutive parked records in the parked store, with the store's own numbers `first` and `last`.

    Only records that `writer` has stored belong to the run.
    """

    writer: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ParkedTable:
    """A table of one partition whose undecided records before `next_offset` are parked.

    From `next_offset` on, its records are on the log. `records` may be 0: the table is quarantined, but no record had
    to be parked yet. `since_ms`: when it was parked or quarantined. `why`: the reason, for an operator. `oldest_ms`:
    when the first parked record was appended.
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

    `without_missing`: continue even if some parked records were lost. `first_offset`: the first parked record that the
    operator saw. The permission to continue without records does not cover records that are parked later. `None`: an
    earlier version made the request, and does not record this. `name`: unique, so that two requests are distinct.
    """

    table: TableName
    log: LogId
    partition: int
    without_missing: bool = False
    first_offset: int | None = None
    name: str = ""


class ParkedStore(Protocol):
    """The place where a log's parked records are stored.

    A call for a partition of another reader raises `log-unavailable`.
    """

    async def park(self, parked: ParkedTable, records: Sequence[LogRecord]) -> ParkedTable:
        """Add `records` to the parked records of a table. Returns `parked` with them, as later owners will receive it.

        `parked.next_offset` is already the offset on the log after them. Without records, only `next_offset` and `why`
        are stored.

        Raises:
            Unavailable: `log-unavailable`, the committed offset must not pass them. OutcomeUnknown: the same.
            Invalid: `table-parked`, one record cannot be parked, so none was.
        """
        ...

    def parked_records(
        self, parked: ParkedTable, from_offset: int, *, without_missing: bool
    ) -> AsyncGenerator[Sequence[LogRecord], None]:
        """Read the parked records from an offset on, in order. Close the generator if you stop early.

        Raises:
            Unavailable: `log-unavailable`. Corrupt: `parked-missing`, before anything that follows the missing record.
        """
        ...

    async def unpark(self, parked: ParkedTable) -> None:
        """Remove a table's notice and its parked records. All of them must be decided and acknowledged.

        Raises:
            Unavailable: `log-unavailable`, later owners may receive the table again. OutcomeUnknown: the same.
        """
        ...

    async def lifts(self) -> Sequence[Lift]:
        """The operators' requests for this reader's partitions that were not confirmed with `lifted`.

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
    """A rejection that no root records, of the record at `position`.

    `table`: the table that the record may belong to, so that it may be parked. `ANY_TABLE`: the table is not known.
    """

    position: LogPosition
    code: str
    message: str
    table: TableName | None = None


@dataclass(frozen=True, slots=True)
class Assigned:
    """The partitions that this process owns now, and no others. Each start is the first record that may lack a verdict.

    Empty when there are more readers than partitions. `poison_candidates`: a reader crashed, and may have been decoding
    any of the records before these offsets. `answered`: rejections that an earlier reader has published, or was about
    to publish, of records that follow. The same rejections must be published again, and no other verdict. `parked`: the
    records that earlier readers have parked of these partitions, which precede all others of their tables.
    `retention_s`: the log keeps records for at least this long, decided or not. `None`: until they are decided.
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
    """Records, in order within each partition, or none if none arrived. `at_end`: no more existed at that moment.

    `passed`: the next offsets after log entries that are not records, for instance the end of a transaction.
    """

    records: tuple[LogRecord, ...]
    at_end: bool
    passed: tuple[PartitionOffset, ...] = ()


@dataclass(frozen=True, slots=True)
class Revoked:
    """All partitions will be assigned to other readers. Call `released` as soon as nothing of them is in flight.

    A reader that does not call it within `deadline_s` seconds loses the partitions anyway.
    """

    deadline_s: float


FeedEvent = Assigned | Delivered | Revoked


@dataclass(frozen=True, slots=True)
class Reread:
    """Records that were read a second time, and the offset to continue from. It is unchanged if nothing was read."""

    records: tuple[LogRecord, ...]
    next_offset: int


class IntentFeed(Protocol):
    """One of the readers that share a log. For one event loop. The first `next` connects."""

    async def next(self, *, wait_s: float, deliver: bool = True) -> FeedEvent:
        """The next event, or an empty `Delivered` after about `wait_s` seconds. Safe to cancel: no record is lost.

        Without `deliver`, no records are delivered: the caller has no room for them, but still needs assignments.

        Raises:
            Unavailable: `log-unavailable`, a retry is safe.
            Fenced: `log-replaced`, `log-behind-root`, `offset-out-of-range`: stop reading this log.
        """
        ...

    async def released(self) -> None:
        """Answer `Revoked`: nothing is in flight in this process any more. Call `decided` before this."""
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
            Unavailable: `log-unavailable`, they must not be published: other readers may own the partitions now, or
                there is no room for more until `decided` passes some of them (`paused`).
            OutcomeUnknown: `publish-unknown`. Record them again before they are published.
        """
        ...

    async def confirm(self, generation: int) -> None:
        """Check with the log that this reader still owns the partitions of the assignment with this generation.

        Raises:
            Unavailable: `log-unavailable`, not confirmed. Other readers may own them, and decide their records.
        """
        ...

    def paused(self) -> Sequence[Partition]:
        """The partitions without room for more rejections.

        No records of them are delivered until `decided` passes some.
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
        """The highest version of `table` in any verdict on this log, if the log knows it without a search.

        A head below it proves that the store has lost roots.

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
        """Record rejections as `IntentFeed.record_rejections` does."""
        ...


class CoordinatorLog(IntentFeed, RecordingSink, Protocol):
    """The operations of a coordinator on a log: it reads intents, and publishes verdicts."""

    @property
    def parking(self) -> ParkedStore | None:
        """The parked store, or `None` if no table needs one, because the log keeps undecided records."""
        ...

    async def close(self) -> None:
        """Leave without delay, so that others can take over, and close the connections."""
        ...
