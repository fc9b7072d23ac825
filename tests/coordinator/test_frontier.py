"""How far a partition is decided, against the set of all that is not: too simple to be wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rootline.coordinator.runtime.assignment.frontier import Frontier
from rootline.ports.intent_feed import Partition
from rootline.schemas.identifiers import LogId, TableName
from rootline.schemas.parts.log import PartitionOffset
from tests.support.examples import examples

LOG: Final = LogId("log")
TABLES: Final = [TableName(name) for name in ("a.a", "b.b", "c.c")]
NO_INTENT: Final = TableName("?")
GAP: Final = TableName("-")
FIRST: Final = PartitionOffset(LOG, 0, 5)
SECOND: Final = PartitionOffset(LOG, 1, 0)
PLACE: Final = (LOG, 0)
A, B, _ = TABLES


def reading(*starts: PartitionOffset) -> Frontier:
    """Nine records of partition 0 were read, from offset 5 on."""
    frontier = Frontier(starts or [FIRST])
    frontier.read(PLACE, 14)
    return frontier


def told(frontier: Frontier) -> list[int]:
    return [offset for _, _, offset in frontier.moved()]


def test_one_table_that_is_slow_holds_back_what_others_have_decided() -> None:
    frontier = reading()
    frontier.handed_over(PLACE, A, 5, 12)
    frontier.handed_over(PLACE, B, 6, 13)
    frontier.decided(B, {PLACE: 14})
    assert told(frontier) == []
    frontier.decided(A, {PLACE: 9})
    assert told(frontier) == [9]
    frontier.decided(A, {PLACE: 13})
    assert told(frontier) == [14], "the end of what was read, not of what the last table had"


def test_rejections_are_published_in_any_order_and_each_holds_its_own_place() -> None:
    frontier = reading()
    for offset in (6, 7, 10):
        frontier.rejected(PLACE, offset)
    frontier.rejection_published(PLACE, 7)
    assert told(frontier) == [6]
    frontier.rejection_published(PLACE, 6)
    assert told(frontier) == [10]


def test_a_table_that_is_behind_counts_from_where_its_own_reader_stands() -> None:
    frontier = reading()
    frontier.fell_behind(PLACE, A, 8)
    assert (told(frontier), frontier.distance(PLACE)) == ([8], 6)
    frontier.handed_over(PLACE, A, 8, 10)
    frontier.reread(PLACE, A, 11)
    assert told(frontier) == [8], "what it was handed is not decided yet"
    frontier.decided(A, {PLACE: 11})
    assert told(frontier) == [11]
    frontier.caught_up(PLACE, A)
    assert (told(frontier), frontier.distance(PLACE)) == ([14], 0)


def test_what_a_table_knows_of_partitions_that_are_not_read_here_counts_for_nothing() -> None:
    frontier = reading()
    frontier.handed_over(PLACE, A, 5, 5)
    frontier.decided(A, {(LOG, 7): 100, (LogId("another"), 0): 100})
    assert told(frontier) == []


def test_what_was_not_remembered_is_told_again() -> None:
    frontier = reading()
    assert frontier.moved() == frontier.moved() == [PartitionOffset(LOG, 0, 14)]
    frontier.remember(frontier.moved())
    assert frontier.moved() == []


@dataclass
class Table:
    """What a table's loop knows of one partition: what it holds, in order, and what it has decided."""

    holds: list[int] = field(default_factory=list)
    acknowledged: int = 0
    behind: int | None = None


class Reading(RuleBasedStateMachine):
    """Partitions of records: each of a table, or no intent, or a gap. `undecided` is the whole truth."""

    @initialize()
    def assigned(self) -> None:
        self.frontier = Frontier([FIRST, SECOND])
        self.records: dict[Partition, dict[int, TableName]] = {(LOG, 0): {}, (LOG, 1): {}}
        self.next = {(LOG, 0): FIRST.next_offset, (LOG, 1): SECOND.next_offset}
        self.undecided: dict[Partition, set[int]] = {(LOG, 0): set(), (LOG, 1): set()}
        self.rejected: list[tuple[Partition, int]] = []
        self.tables = {(table, place): Table() for table in TABLES for place in self.next}
        self.before, self.remembered = dict(self.next), dict(self.next)

    places = st.sampled_from([(LOG, 0), (LOG, 1)])
    names = st.sampled_from(TABLES)

    @rule(
        place=places,
        kinds=st.lists(st.sampled_from([*TABLES, NO_INTENT, GAP]), min_size=1, max_size=6),
        full=st.sets(st.sampled_from(TABLES)),
    )
    def read(self, place: Partition, kinds: list[TableName], full: set[TableName]) -> None:
        """The main reading hands out; the queues of those in `full` take no more."""
        offsets: dict[TableName, list[int]] = {}
        end = self.next[place]
        for kind in kinds:
            if kind is not GAP:
                self.records[place][end] = kind
                self.undecided[place].add(end)
                offsets.setdefault(kind, []).append(end)
            end += 1
        read_to = max((offset + 1 for own in offsets.values() for offset in own), default=None)
        for offset in offsets.pop(NO_INTENT, []):
            self.rejected.append((place, offset))
            self.frontier.rejected(place, offset)
        for name, own in offsets.items():
            table = self.tables[name, place]
            if table.behind is not None:
                continue
            if name in full:
                table.behind = own[0]
                self.frontier.fell_behind(place, name, own[0])
            else:
                table.holds += own
                self.frontier.handed_over(place, name, own[0], own[-1])
        if read_to is not None:
            self.next[place] = read_to
            self.frontier.read(place, read_to)

    @rule(place=places, count=st.integers(1, 3))
    def pass_over(self, place: Partition, count: int) -> None:
        """What follows and is no record."""
        self.next[place] += count
        self.frontier.read(place, self.next[place])

    @rule(name=names, place=places, count=st.integers(1, 5))
    def reread(self, name: TableName, place: Partition, count: int) -> None:
        """A table's own reader brings some more, and perhaps comes to where the main reading is."""
        table = self.tables[name, place]
        if table.behind is None:
            return
        end = min(table.behind + count, self.next[place])
        own = [offset for offset in range(table.behind, end) if self.records[place].get(offset) == name]
        if own:
            table.holds += own
            self.frontier.handed_over(place, name, own[0], own[-1])
        table.behind = end
        self.frontier.reread(place, name, end)
        if end == self.next[place]:
            table.behind = None
            self.frontier.caught_up(place, name)

    @rule(name=names, counts=st.tuples(st.integers(0, 4), st.integers(0, 4)))
    def decide(self, name: TableName, counts: tuple[int, int]) -> None:
        """The table's verdicts on the next of each partition are acknowledged; it tells of both partitions."""
        for place, count in zip(self.next, counts, strict=True):
            table = self.tables[name, place]
            done, table.holds = table.holds[:count], table.holds[count:]
            self.undecided[place] -= set(done)
            table.acknowledged = max([table.acknowledged, *(offset + 1 for offset in done)])
        told = {place: self.tables[name, place].acknowledged for place in self.next}
        self.frontier.decided(name, {place: offset for place, offset in told.items() if offset})

    @rule(name=names)
    def forget(self, name: TableName) -> None:
        """A table at rest is let go of; what comes later is for a new loop, which knows nothing yet."""
        own = [self.tables[name, place] for place in self.next]
        if not any(table.holds or table.behind is not None for table in own):
            for table in own:
                table.acknowledged = 0

    @precondition(lambda self: self.rejected)
    @rule(number=st.integers(0, 100))
    def publish_rejection(self, number: int) -> None:
        place, offset = self.rejected.pop(number % len(self.rejected))
        self.undecided[place].discard(offset)
        self.frontier.rejection_published(place, offset)

    @rule(lost=st.booleans())
    def remember(self, lost: bool) -> None:
        """The log is told; perhaps it never heard."""
        moved = self.frontier.moved()
        if not lost:
            self.frontier.remember(moved)
            self.remembered = self.frontiers() | {(log, partition): offset for log, partition, offset in moved}
            assert self.frontier.moved() == []

    @rule()
    def finish(self) -> None:
        """Everything is decided: nothing may be held back."""
        for name, place in self.tables:
            self.reread(name, place, 10**6)
        for name in TABLES:
            self.decide(name, (10**6, 10**6))
        while self.rejected:
            self.publish_rejection(0)
        assert self.frontiers() == self.next

    def frontiers(self) -> dict[Partition, int]:
        """As the log would be told now."""
        moved = {(log, partition): offset for log, partition, offset in self.frontier.moved()}
        return {**self.remembered, **moved}

    @invariant()
    def never_past_what_is_undecided_and_never_back(self) -> None:
        if not hasattr(self, "next"):
            return
        found = self.frontiers()
        for place, offset in found.items():
            assert offset <= min(self.undecided[place], default=self.next[place])
            assert offset >= self.before[place]
            assert self.frontier.next_offset(place) == self.next[place]
            behind = [table.behind for (_, own), table in self.tables.items() if own == place]
            slowest = min((offset for offset in behind if offset is not None), default=self.next[place])
            assert self.frontier.distance(place) == self.next[place] - slowest
        self.before = found


TestReading = Reading.TestCase
TestReading.settings = settings(max_examples=examples(100), stateful_step_count=30, deadline=None)
