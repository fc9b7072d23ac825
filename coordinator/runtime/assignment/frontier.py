"""The frontier of each partition: the offset before which every record has an acknowledged verdict.

Owns: the progress of all tables that share partitions, and the tables that made progress last.
Does not own: committing offsets (`consumer_loop`, the feed), the handing over of records (`served_tables`).
Invariants: The frontier never passes a record without an acknowledged verdict. It never moves back. Its memory is
proportional to the tables with undecided records, not to the records.

Theory. A table decides its records of one partition in order, so two offsets describe them: the first that may be
undecided, and the last that was handed to the table. The main reader reads the partition for all tables. A table whose
queue was full has fallen behind: it gets its records from a separate reader, whose position bounds the frontier too.
Records of a stuck table are parked, which means that they are stored outside the partition. Rejections of records that
are not intents are published in any order, so each is tracked until it is published. A parked table bounds the frontier
by one offset only: the end of its parked records in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from rootline.ports.intent_feed import Partition
from rootline.schemas.identifiers import TableName
from rootline.schemas.parts.log import PartitionOffset

Where = tuple[TableName, Partition]
"""A table and one of its partitions."""


@dataclass(slots=True)
class _Span:
    """The offsets of one table's undecided records in a partition, from `first` to `last`.

    The table has decided every record before `first`. `last` is the last record that was handed to it.
    """

    first: int
    last: int


@dataclass(slots=True)
class _Progress:
    """The progress of one partition."""

    next_offset: int
    remembered: int
    undecided: dict[TableName, _Span] = field(default_factory=dict)
    behind: dict[TableName, int] = field(default_factory=dict)
    rejected: set[int] = field(default_factory=set)
    parked: dict[TableName, int] = field(default_factory=dict)

    def frontier(self) -> int:
        if not self.parked:
            first = (span.first for span in self.undecided.values())
            return min(chain(first, self.behind.values(), self.rejected), default=self.next_offset)
        spans = (span.first for table, span in self.undecided.items() if table not in self.parked)
        behind = (offset for table, offset in self.behind.items() if table not in self.parked)
        return min(chain(spans, behind, self.rejected, self.parked.values()), default=self.next_offset)

    def first_undecided(self, table: TableName) -> int:
        """The offset of the first record that `table` may not have decided, even if the record is parked.

        If the table has decided everything, it is the position of the main reader.
        """
        span, behind = self.undecided.get(table), self.behind.get(table, self.next_offset)
        return behind if span is None else min(span.first, behind)


class Frontier:
    """The frontiers of the partitions of one assignment."""

    def __init__(self, starts: Iterable[PartitionOffset]) -> None:
        self._partitions: dict[Partition, _Progress] = {
            (log, partition): _Progress(offset, offset) for log, partition, offset in starts
        }

    @property
    def places(self) -> Iterable[Partition]:
        """The partitions of the assignment."""
        return self._partitions

    def next_offset(self, place: Partition) -> int:
        """The offset after the last record that was read."""
        return self._partitions[place].next_offset

    def read(self, place: Partition, next_offset: int) -> None:
        """Note that the main reader has read up to `next_offset`. First note the records before that offset."""
        self._partitions[place].next_offset = next_offset

    def handed_over(self, place: Partition, table: TableName, first: int, last: int) -> None:
        """Note that records of `table`, from offset `first` to `last`, were handed to it."""
        undecided = self._partitions[place].undecided
        span = undecided.get(table)
        if span is None:
            undecided[table] = _Span(first, last)
        else:
            span.last = max(span.last, last)

    def decided(self, table: TableName, up_to: Mapping[Partition, int]) -> None:
        """Note that every record handed to `table` before these offsets has an acknowledged verdict."""
        for place, offset in up_to.items():
            progress = self._partitions.get(place)
            span = None if progress is None else progress.undecided.get(table)
            if progress is None or span is None:
                continue
            if offset > span.last:
                del progress.undecided[table]
            else:
                span.first = max(span.first, offset)

    def fell_behind(self, place: Partition, table: TableName, offset: int) -> None:
        """Note that a reader for `table` alone hands it the partition's records, from `offset` on."""
        self._partitions[place].behind[table] = offset

    def reader_at(self, place: Partition, table: TableName) -> int:
        """The position of the table's own reader. Raises `KeyError` if it has none."""
        return self._partitions[place].behind[table]

    def reread(self, place: Partition, table: TableName, next_offset: int) -> None:
        """Note that the reader of `table` has read up to `next_offset`."""
        self._partitions[place].behind[table] = next_offset

    def caught_up(self, place: Partition, table: TableName) -> None:
        """Note that `table` gets its records from the main reader again."""
        self._partitions[place].behind.pop(table, None)

    def undecided(self) -> dict[Where, int]:
        """The first undecided offset of each table and partition with undecided records."""
        return {
            (table, place): progress.first_undecided(table)
            for place, progress in self._partitions.items()
            for table in {**progress.undecided, **progress.behind}
        }

    def undecided_of(self, table: TableName) -> list[PartitionOffset]:
        """The first undecided offset of `table` in each partition that has one."""
        return [
            PartitionOffset(*place, progress.first_undecided(table))
            for place, progress in self._partitions.items()
            if table in progress.undecided or table in progress.behind
        ]

    def handed_over_to(self, place: Partition, table: TableName) -> int:
        """The offset after the last undecided record that was handed to `table`, or 0."""
        span = self._partitions[place].undecided.get(table)
        return 0 if span is None else span.last + 1

    def rejects_before(self, place: Partition, offset: int) -> bool:
        """Whether a rejection of a record before `offset` is not published yet."""
        return any(rejected < offset for rejected in self._partitions[place].rejected)

    def parked(self, place: Partition, table: TableName, next_offset: int) -> None:
        """Note that undecided records of `table` before this offset are parked, so that they no longer block."""
        parked = self._partitions[place].parked
        parked[table] = max(next_offset, parked.get(table, 0))

    def parked_to(self, place: Partition, table: TableName) -> int:
        """The offset before which the table's records are parked. Raises `KeyError` if the table is not parked."""
        return self._partitions[place].parked[table]

    def unparked(self, place: Partition, table: TableName, *, at_least: int = 0) -> None:
        """Note that all parked records of `table` are decided, so its reader continues with the log where they end.

        It continues no earlier than at `at_least`, because the table already has the records before that offset.
        """
        progress = self._partitions[place]
        progress.behind[table] = max(progress.parked.pop(table), at_least)

    def rejected(self, place: Partition, offset: int) -> None:
        """Note a rejected record whose rejection has not been published."""
        self._partitions[place].rejected.add(offset)

    def rejection_published(self, place: Partition, offset: int) -> None:
        """Note that the rejection of a record is published."""
        self._partitions[place].rejected.discard(offset)

    def distance(self, place: Partition) -> int:
        """The number of records between the slowest reader of a single table and the main reader of this partition.

        It is 0 for a partition that is not assigned.
        """
        progress = self._partitions.get(place)
        return (
            0
            if progress is None
            else progress.next_offset - min(progress.behind.values(), default=progress.next_offset)
        )

    def moved(self) -> list[PartitionOffset]:
        """The frontiers that have advanced past the partition's committed offset."""
        found = ((place, progress.frontier(), progress) for place, progress in self._partitions.items())
        return [PartitionOffset(*place, offset) for place, offset, progress in found if offset > progress.remembered]

    def everywhere(self) -> list[PartitionOffset]:
        """The frontiers of all partitions."""
        return [PartitionOffset(*place, progress.frontier()) for place, progress in self._partitions.items()]

    def remember(self, offsets: Iterable[PartitionOffset]) -> None:
        """Note that these offsets are committed."""
        for log, partition, offset in offsets:
            progress = self._partitions[log, partition]
            progress.remembered = max(progress.remembered, offset)


@dataclass(slots=True)
class LastProgress:
    """The two tables that made progress last, with the times."""

    _newest: tuple[TableName, float] | None = None
    _other: tuple[TableName, float] | None = None

    def note(self, table: TableName, now_s: float) -> None:
        """Note that `table` has decided a record."""
        if self._newest is not None and self._newest[0] != table:
            self._other = self._newest
        self._newest = (table, now_s)

    def other_than(self, table: TableName) -> float | None:
        """The last time at which a table other than `table` made progress, or `None`."""
        found = self._other if self._newest is not None and self._newest[0] == table else self._newest
        return None if found is None else found[1]
