"""How far each partition is decided: the offset before which every record has an acknowledged verdict.

Owns: the bookkeeping over all tables that share partitions. Does not own: remembering it (`consumer_loop`, the feed).
Invariants: never passes a record without an acknowledged verdict; never moves back; memory follows the tables with
undecided records, not the records.

Theory. A table decides its records of one partition in order, so two offsets say all about them: the first that may be
undecided and the last that was handed to it. What a table did not take (it is behind) counts from where its own reader
stands. Rejections of records that are no intents come in any order, so each is kept until it is published. Of a table
that is parked only one offset counts: where the log goes on after its parked records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from rootline.ports.intent_feed import Partition
from rootline.schemas.identifiers import TableName
from rootline.schemas.root_header import PartitionOffset


@dataclass(slots=True)
class _Span:
    """The first record that may be undecided, and the last one handed over."""

    first: int
    last: int


@dataclass(slots=True)
class _Progress:
    """One partition."""

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
        span, behind = self.undecided.get(table), self.behind.get(table, self.next_offset)
        return behind if span is None else min(span.first, behind)


class Frontier:
    """The partitions of one assignment, from their starts on."""

    def __init__(self, starts: Iterable[PartitionOffset]) -> None:
        self._partitions: dict[Partition, _Progress] = {
            (log, partition): _Progress(offset, offset) for log, partition, offset in starts
        }

    @property
    def places(self) -> Iterable[Partition]:
        """The partitions."""
        return self._partitions

    def next_offset(self, place: Partition) -> int:
        """The offset after the last record that was read."""
        return self._partitions[place].next_offset

    def read(self, place: Partition, next_offset: int) -> None:
        """The reading has come to `next_offset`; say first what became of the records before it."""
        self._partitions[place].next_offset = next_offset

    def handed_over(self, place: Partition, table: TableName, first: int, last: int) -> None:
        """Records of `table`, the first and the last of them at these offsets, were handed to it."""
        undecided = self._partitions[place].undecided
        span = undecided.get(table)
        if span is None:
            undecided[table] = _Span(first, last)
        else:
            span.last = max(span.last, last)

    def decided(self, table: TableName, up_to: Mapping[Partition, int]) -> None:
        """Every record handed to `table` before these offsets has an acknowledged verdict."""
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
        """From `offset` on, `table` gets this partition's records from a reader of its own."""
        self._partitions[place].behind[table] = offset

    def reader_at(self, place: Partition, table: TableName) -> int:
        """Where that reader is. `KeyError`: there is none."""
        return self._partitions[place].behind[table]

    def reread(self, place: Partition, table: TableName, next_offset: int) -> None:
        """That reader has come to `next_offset`."""
        self._partitions[place].behind[table] = next_offset

    def caught_up(self, place: Partition, table: TableName) -> None:
        """`table` takes its records from the main reading again."""
        self._partitions[place].behind.pop(table, None)

    def first_undecided(self, place: Partition, table: TableName) -> int:
        """The first offset that `table` may not have decided, parked or not; where the reading is if there is none."""
        return self._partitions[place].first_undecided(table)

    def undecided(self) -> dict[tuple[TableName, Partition], int]:
        """That offset of each table and partition where there is one."""
        return {
            (table, place): progress.first_undecided(table)
            for place, progress in self._partitions.items()
            for table in {**progress.undecided, **progress.behind}
        }

    def undecided_of(self, table: TableName) -> dict[Partition, int]:
        """That offset of one table, in each partition where there is one."""
        return {
            place: progress.first_undecided(table)
            for place, progress in self._partitions.items()
            if table in progress.undecided or table in progress.behind
        }

    def handed_over_to(self, place: Partition, table: TableName) -> int:
        """The offset after the last record that `table` was given and has not decided; 0: there is none."""
        span = self._partitions[place].undecided.get(table)
        return 0 if span is None else span.last + 1

    def rejects_before(self, place: Partition, offset: int) -> bool:
        """Whether a rejection of a record before `offset` is not published yet."""
        return any(rejected < offset for rejected in self._partitions[place].rejected)

    def parked(self, place: Partition, table: TableName, next_offset: int) -> None:
        """The undecided records of `table` before this offset are parked: they hold nothing back any more."""
        parked = self._partitions[place].parked
        parked[table] = max(next_offset, parked.get(table, 0))

    def parked_to(self, place: Partition, table: TableName) -> int:
        """That offset. `KeyError`: the table is not parked."""
        return self._partitions[place].parked[table]

    def unparked(self, place: Partition, table: TableName, *, at_least: int = 0) -> None:
        """Its parked records are decided: it goes on with the log where they end, by a reader of its own.

        `at_least`: it was given what is before this offset, and still has it.
        """
        progress = self._partitions[place]
        progress.behind[table] = max(progress.parked.pop(table), at_least)

    def rejected(self, place: Partition, offset: int) -> None:
        """A record that is no intent; its rejection is to be published."""
        self._partitions[place].rejected.add(offset)

    def rejection_published(self, place: Partition, offset: int) -> None:
        """It was."""
        self._partitions[place].rejected.discard(offset)

    def distance(self, place: Partition) -> int:
        """How many records the slowest reader of this partition is behind the main one; 0 for others' partitions."""
        progress = self._partitions.get(place)
        return (
            0
            if progress is None
            else progress.next_offset - min(progress.behind.values(), default=progress.next_offset)
        )

    def moved(self) -> list[PartitionOffset]:
        """The partitions whose frontier is past what was remembered, with the new one."""
        found = ((place, progress.frontier(), progress) for place, progress in self._partitions.items())
        return [PartitionOffset(*place, offset) for place, offset, progress in found if offset > progress.remembered]

    def everywhere(self) -> list[PartitionOffset]:
        """The frontier of every partition."""
        return [PartitionOffset(*place, progress.frontier()) for place, progress in self._partitions.items()]

    def remember(self, offsets: Iterable[PartitionOffset]) -> None:
        """These were remembered."""
        for log, partition, offset in offsets:
            progress = self._partitions[log, partition]
            progress.remembered = max(progress.remembered, offset)
