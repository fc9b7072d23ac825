"""A coordinator as people see it: its metrics, its log lines, and its recent events.

Owns: names, labels and buckets of the registry, the translation of reports into them, a log line for each verdict and
each commit with its level and rate, the rings of recent events and their bounds, numbers that tell a reader what is
new. Does not own: when something is reported (`rootline.coordinator.protocol`), when a verdict was published
(`verdict_outbox`, `rejection_outbox`), how events are shown (`rootline.coordinator.http`).
Invariants: metrics are a contract with those who watch them: a `table` label has at most `TABLES_MAX` tables, and only
tables that exist. The rest share `_other` in counters, and have no gauges. Every verdict and every commit is in
exactly one log line, its own or a count. Rejections have lines of their own to spend, so that a flood of commits hides
none. A line that counts comes within a second, although nothing follows. Memory is bounded whatever comes, in entries
and in characters. Noting an event costs the caller a few appends and never waits.
"""

from __future__ import annotations

import asyncio
from collections import Counter as Counts
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice, zip_longest
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from rootline.coordinator.protocol.effects import Noted, Report
from rootline.coordinator.runtime.table.table_states import TableState
from rootline.coordinator.runtime.table.verdict_outbox import Publication
from rootline.ports.intent_feed import Partition
from rootline.schemas.bytes.record_headers import TraceContext
from rootline.schemas.identifiers import TableName
from rootline.schemas.verdict import Verdict, VerdictKind

_WINDOW_S: Final = 1.0
VerdictCounts = Mapping[tuple[VerdictKind, str], int]
"""(kind, code, or an empty one) → how many."""


@dataclass(slots=True)
class VerdictLines:
    """At most `per_s_max` lines a second for rejections, and as many for the other verdicts; `commits_per_s_max`.

    They are at `info`: a rejection is its writer's affair. Those of records that are no intents are at `warning`,
    because perhaps no writer waits for them.
    """

    per_s_max: int
    commits_per_s_max: int
    _commits: int = 0
    _rejected: int = 0
    _others: int = 0
    _rest: Counts[tuple[VerdictKind, str, bool]] = field(default_factory=Counts)
    _rest_warns: bool = False
    _window: asyncio.TimerHandle | None = None

    def landed(self, table: TableName, report: Report) -> None:
        """A root is confirmed."""
        self._open()
        self._commits += 1
        if self._commits > self.commits_per_s_max:
            return
        traces = {"trace_ids": report.traces} if report.traces else {}
        what = {"table": table, "version": report.version, "intents": int(report.detail or 0)}
        structlog.get_logger().info("root committed", action="commit", seconds=report.elapsed_s, **what, **traces)

    def on_published(
        self,
        verdicts: Sequence[Verdict],
        counts: VerdictCounts,
        is_repeated: bool,
        *,
        of_intents: bool = True,
        traces: Sequence[TraceContext | None] = (),
    ) -> None:
        """The log has acknowledged these, so many of each; not `of_intents`: of records that are none.

        `traces`: of each, or none at all.
        """
        if not verdicts:
            return
        self._open()
        rest = Counts(counts)
        is_any_rejected = any(kind is VerdictKind.REJECTED for kind, _ in counts)
        if self._others < self.per_s_max or (is_any_rejected and self._rejected < self.per_s_max):
            for verdict, trace in zip_longest(verdicts, traces):
                if self._has_room_for(verdict):
                    _write_one(verdict, is_repeated, of_intents, trace)
                    rest[verdict.kind, verdict.code or ""] -= 1
        for (kind, code), count in rest.items():
            if count:
                self._rest[kind, code, is_repeated] += count
                self._rest_warns |= not of_intents

    def close(self) -> None:
        """Count what had no line of its own, and begin again."""
        if self._window is not None:
            self._window.cancel()
        left_out = self._commits - self.commits_per_s_max
        self._window, self._rejected, self._others, self._commits = None, 0, 0, 0
        if left_out > 0:
            structlog.get_logger().info("commits without a line of their own", action="commits", count=left_out)
        if self._rest:
            counts = {_in_words(*what): count for what, count in sorted(self._rest.items())}
            self._rest.clear()
            log = structlog.get_logger()
            write, self._rest_warns = log.warning if self._rest_warns else log.info, False
            write("verdicts without a line of their own", action="verdicts", counts=counts)

    def _open(self) -> None:
        if self._window is None:
            self._window = asyncio.get_running_loop().call_later(_WINDOW_S, self.close)

    def _has_room_for(self, verdict: Verdict) -> bool:
        """Whether it gets a line, which is counted."""
        if verdict.kind is VerdictKind.REJECTED:
            self._rejected += 1
            return self._rejected <= self.per_s_max
        self._others += 1
        return self._others <= self.per_s_max


def _write_one(verdict: Verdict, is_repeated: bool, of_intents: bool, trace: TraceContext | None) -> None:
    log = structlog.get_logger()
    of_trace = {} if trace is None else {"trace_id": trace.trace_id, "span_id": trace.span_id}
    write = log.info if of_intents else log.warning
    write(
        f"intent {verdict.kind.value}",
        action="verdict",
        verdict=verdict.kind.value,
        code=verdict.code,
        table=verdict.table,
        intent_id=verdict.intent_id,
        version=verdict.version,
        partition=verdict.partition,
        offset=verdict.offset,
        reason=verdict.message,
        told_again=is_repeated,
        **of_trace,
    )


def _in_words(kind: VerdictKind, code: str, is_repeated: bool) -> str:
    return " ".join([kind.value, *([code] if code else []), *(["told again"] if is_repeated else [])])


TABLES_MAX: Final = 200
_OTHER: Final = "_other"
_SECONDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class CoordinatorMetrics:
    """One registry, for all reports and publications of the process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._tables: set[str] = set()
        self._states: dict[str, TableState] = {}
        self._versions: dict[str, int] = {}
        self._lagging: set[Partition] = set()
        self._commit = self._histogram("rootline_commit_seconds", "PUT of a root until it is confirmed.")
        self._visible = self._histogram("rootline_intent_visible_seconds", "Append of an intent until its verdict.")
        self._puts = self._counter("rootline_put_total", "Conditional PUTs of roots.", "outcome")
        self._rebases = self._counter("rootline_rebases_total", "Batches applied again to another head.", "cause")
        self._verdicts = self._counter(
            "rootline_verdicts_total", "Verdicts of this process that the log has acknowledged.", "verdict", "code"
        )
        self._told_again = self._counter(
            "rootline_verdicts_told_again_total",
            "Verdicts that were on record before this process told them: decided by one that ended, or lost a race.",
            "verdict",
            "code",
        )
        self._failures = self._counter("rootline_store_failures_total", "Store operations to be tried again.", "table")
        self._apart = self._counter("rootline_clocks_apart_total", "Roots at which the log's and own clock went apart.")
        self._last_commit = self._gauge(
            "rootline_last_commit_timestamp_seconds", "Timestamp of the newest root this process made.", "table"
        )
        self._root_bytes = self._gauge("rootline_root_bytes", "Size of the newest root.", "table")
        self._retained = self._gauge("rootline_retained_root_bytes", "Size of all roots that are kept.", "table")
        self._given_up = self._gauge(
            "rootline_given_up_root_bytes", "Size of all roots that expired so far, removed or not yet.", "table"
        )
        self._oldest_version = self._gauge(
            "rootline_oldest_version", "Oldest version from which on every version can be read.", "table"
        )
        self._root_entries = self._gauge("rootline_root_entries", "Entries of the newest root.", "table", "content")
        self._state = self._gauge("rootline_table_state", "1 for the state the table is in.", "table", "state")
        self._oldest = self._gauge("rootline_oldest_pending_intent_seconds", "Age of the oldest undecided intent.")
        self._ready = self._gauge("rootline_coordinator_ready", "1 while /readyz says that the coordinator is ready.")
        self._partitions = self._gauge("rootline_assigned_partitions", "Partitions of the log that this process reads.")
        self._paused = self._gauge("rootline_paused_partitions", "Partitions not read: no room for their rejections.")
        self._queue_bytes = self._gauge("rootline_queue_bytes", "Memory, about, of intents that wait.")
        self._lag = self._gauge(
            "rootline_consumer_lag_records", "Records of the log not handed to their tables yet.", "topic", "partition"
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(name, text, registry=self.registry, buckets=_SECONDS)

    def _label(self, table: str) -> str:
        if table not in self._tables and len(self._tables) >= TABLES_MAX:
            return _OTHER
        self._tables.add(table)
        return table

    def report(self, table: str, report: Report) -> None:
        """Count what a commit machine noted."""
        match report.noted:
            case Noted.ROOT_LANDED:
                self._puts.labels("landed").inc()
                self._commit.observe(report.elapsed_s or 0.0)
            case Noted.PUT_ASKED:
                self._puts.labels("asked").inc()
            case Noted.REBASED | Noted.YIELDED:
                self._puts.labels("lost").inc()
                self._rebases.labels(report.noted.value).inc()
            case Noted.STORE_FAILED:
                # a name alone earns no label: a writer may name as many tables as it likes
                self._failures.labels(table if table in self._tables else _OTHER).inc()
            case Noted.CLOCKS_APART:
                self._apart.inc()
            case Noted.HEAD_LOADED | Noted.QUARANTINED | Noted.ENCODING_FAILED:
                pass

    def published(self, publication: Publication, now_ms: int) -> VerdictCounts:
        """Count verdicts, and how long their intents took to become visible."""
        for appended_ms in publication.appended_ms:
            if appended_ms:
                self._visible.observe(max(0, now_ms - appended_ms) / 1000)
        return self.on_published(publication.verdicts, publication.is_repeated)

    def on_published(self, verdicts: Sequence[Verdict], is_repeated: bool) -> VerdictCounts:
        """Count verdicts that the log has acknowledged; how many of each there were."""
        kinds = Counts((verdict.kind, verdict.code or "") for verdict in verdicts)
        for (kind, code), count in kinds.items():
            (self._told_again if is_repeated else self._verdicts).labels(kind.value, code).inc(count)
        return kinds

    def is_news(self, table: str, version: int) -> bool:
        """Whether gauges of `table` are to be set: it has some, and they do not show this version; they do from now."""
        label = self._label(table)
        if label == _OTHER or self._versions.get(label) == version:
            return False
        self._versions[label] = version
        return True

    def root(self, table: str, size_in_bytes: int, timestamp_ms: int, entries: dict[str, int]) -> None:
        """Describe the newest root; `entries`: content type → rows."""
        label = self._label(table)
        if label == _OTHER:
            return
        self._root_bytes.labels(label).set(size_in_bytes)
        self._last_commit.labels(label).set(timestamp_ms / 1000)
        for content, count in entries.items():
            self._root_entries.labels(label, content).set(count)

    def retained(self, table: str, size_in_bytes: int) -> None:
        """All roots of a table that are kept, bytes."""
        label = self._label(table)
        if label != _OTHER:
            self._retained.labels(label).set(size_in_bytes)

    def expired(self, table: str, oldest_version: int, given_up_bytes: int) -> None:
        """From which version on a table can be read, and the bytes of the roots that were given up."""
        label = self._label(table)
        if label != _OTHER:
            self._oldest_version.labels(label).set(oldest_version)
            self._given_up.labels(label).set(given_up_bytes)

    def states(self, of: Mapping[TableName, TableState]) -> None:
        """The state of every table in memory. Others are forgotten, or a former owner would go on alarming."""
        labels = {self._label(table): state for table, state in of.items()}
        labels.pop(_OTHER, None)
        for label in self._states.keys() - labels.keys():
            del self._states[label]
            for known in TableState:
                self._state.remove(label, known.value)
        for label, state in labels.items():
            if self._states.get(label) is not state:
                self._states[label] = state
                for known in TableState:
                    self._state.labels(label, known.value).set(1 if known is state else 0)

    def ready(self, is_ready: bool) -> None:
        """Whether the coordinator does its work."""
        self._ready.set(1 if is_ready else 0)

    def oldest_pending(self, age_s: float) -> None:
        """Age of the oldest record without a verdict, seconds; 0 when there is none."""
        self._oldest.set(age_s)

    def lag(self, records: Mapping[Partition, int]) -> None:
        """Records of each partition that are not handed to their tables yet; partitions that went are forgotten."""
        for log, partition in self._lagging - records.keys():
            self._lag.remove(log, str(partition))
        self._lagging = set(records)
        for (log, partition), count in records.items():
            self._lag.labels(log, str(partition)).set(count)

    def holding(self, partitions: int, paused: int, queue_bytes: int) -> None:
        """How many partitions are this process's, how many of them are paused, and what their tables' queues hold."""
        self._partitions.set(partitions)
        self._paused.set(paused)
        self._queue_bytes.set(queue_bytes)


EVENTS_MAX: Final = 300
REJECTIONS_MAX: Final = 200
REJECTIONS_AT_ONCE_MAX: Final = 20
"""Of what is told at once; the rest is only counted."""
SAMPLES_MAX: Final = 720
_CODES_MAX: Final = 500
_NAME_CHARS_MAX: Final = 300
_REASON_CHARS_MAX: Final = 1_000


class EventKind(StrEnum):
    """What an event is about."""

    COMMIT = "commit"
    VERDICTS = "verdicts"
    REJECTION = "rejection"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `number`: ascending in this process; `at_ms`: since the epoch.

    `intents`: of a commit or of verdicts; `seconds`: from the PUT of a commit until it was confirmed; `counts`:
    verdicts of each kind; `code`, `reason`, `intent_id`, `where` (log, partition, offset): of a rejection.
    """

    number: int
    at_ms: int
    kind: EventKind
    table: str
    version: int | None = None
    intents: int = 0
    seconds: float | None = None
    counts: tuple[tuple[str, int], ...] = ()
    told_again: bool = False
    code: str = ""
    reason: str = ""
    intent_id: str = ""
    where: tuple[str, int, int] | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """Lag at a moment: records on the log not handed to their tables (`None`: the log did not say), seconds that the
    oldest undecided intent waits, and how much was decided since the process began.
    """

    at_ms: int
    lag: int | None
    oldest_s: float
    commits: int
    verdicts: int
    rejections: int


@dataclass(frozen=True, slots=True)
class CodeCount:
    """How often a code was the reason of a rejection, and when it was last."""

    code: str
    count: int
    last_ms: int


@dataclass(slots=True)
class RecentEvents:
    """For one process."""

    commits: int = 0
    verdicts: int = 0
    rejections: int = 0
    _number: int = 0
    _events: deque[Event] = field(default_factory=lambda: deque(maxlen=EVENTS_MAX))
    _rejected: deque[Event] = field(default_factory=lambda: deque(maxlen=REJECTIONS_MAX))
    _samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=SAMPLES_MAX))
    _codes: dict[str, CodeCount] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """Of the newest event; 0: there was none."""
        return self._number

    def landed(self, table: TableName, report: Report, at_ms: int) -> None:
        """A root is confirmed."""
        self.commits += 1
        self._number += 1
        intents = int(report.detail or 0)
        self._events.append(
            Event(self._number, at_ms, EventKind.COMMIT, table, report.version, intents, report.elapsed_s)
        )

    def on_published(self, verdicts: Sequence[Verdict], counts: VerdictCounts, told_again: bool, at_ms: int) -> None:
        """The log has acknowledged these, so many of each; they are of one table, or of records of none."""
        if not verdicts:
            return
        self.verdicts += len(verdicts)
        self._number += 1
        kinds: Counts[str] = Counts()
        for (kind, code), count in counts.items():
            kinds[kind.value] += count
            if kind is VerdictKind.REJECTED and not told_again:
                self.rejections += count
                self._count(code, count, at_ms)
        first = verdicts[0]
        self._events.append(
            Event(
                self._number,
                at_ms,
                EventKind.VERDICTS,
                first.table[:_NAME_CHARS_MAX],
                first.version,
                len(verdicts),
                counts=tuple(sorted(kinds.items())),
                told_again=told_again,
            )
        )
        if kinds[VerdictKind.REJECTED.value]:
            rejected = (verdict for verdict in verdicts if verdict.kind is VerdictKind.REJECTED)
            for verdict in islice(rejected, REJECTIONS_AT_ONCE_MAX):
                self._reject(verdict, told_again, at_ms)

    def sample(self, at_ms: int, lag: int | None, oldest_s: float) -> None:
        """Note how things are now."""
        self._samples.append(Sample(at_ms, lag, oldest_s, self.commits, self.verdicts, self.rejections))

    def events_after(self, number: int) -> list[Event]:
        """What is kept of what came after the event with that number, ascending."""
        found = [event for ring in (self._events, self._rejected) for event in ring if event.number > number]
        return sorted(found, key=lambda event: event.number)

    def rejections_of(self, table: str) -> list[Event]:
        """What is kept of a table's rejections, the newest first."""
        return [event for event in reversed(self._rejected) if event.table == table]

    def samples_after(self, at_ms: int) -> list[Sample]:
        """What is kept of later samples, in their order."""
        return [sample for sample in self._samples if sample.at_ms > at_ms]

    def codes(self) -> list[CodeCount]:
        """How often each code was the reason, the newest first."""
        return sorted(self._codes.values(), key=lambda found: (-found.last_ms, found.code))

    def _count(self, code: str, count: int, at_ms: int) -> None:
        known = self._codes.get(code)
        if known is None and len(self._codes) >= _CODES_MAX:
            return
        self._codes[code] = CodeCount(code, count + (0 if known is None else known.count), at_ms)

    def _reject(self, verdict: Verdict, told_again: bool, at_ms: int) -> None:
        self._number += 1
        self._rejected.append(
            Event(
                self._number,
                at_ms,
                EventKind.REJECTION,
                verdict.table[:_NAME_CHARS_MAX],
                told_again=told_again,
                code=(verdict.code or "")[:_NAME_CHARS_MAX],
                reason=(verdict.message or "")[:_REASON_CHARS_MAX],
                intent_id=verdict.intent_id[:_NAME_CHARS_MAX],
                where=(verdict.log[:_NAME_CHARS_MAX], verdict.partition, verdict.offset),
            )
        )
