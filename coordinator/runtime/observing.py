"""The observable side of a coordinator: its metrics, its log lines, and its recent events.

Owns: names, labels and buckets of the metrics, the translation of reports into them, a log line for each verdict
and each commit with its level and rate, the ring buffers of recent events, and the numbers of events, by which a client
requests newer ones. Does not own: the time of a report (`rootline.coordinator.protocol`), the publication of
verdicts (`verdict_outbox`, `intake`), the presentation of events (`rootline.coordinator.http`).
Invariants: metrics are a stable interface for dashboards and alerts. A `table` label has at most `TABLES_MAX` tables,
and only tables that exist. The rest share `_other` in counters, and have no gauges. Every verdict and every commit is
in exactly one log line: a line for it alone, or a line that counts many. Rejections have a limit of lines for
themselves, so a flood of commits hides none. A line that counts is written within a second, even if nothing follows.
Memory is bounded for any load, in entries and in characters. Recording an event costs the caller a few appends and
never waits.
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

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from rootline.coordinator.protocol.messages import Noted, Report
from rootline.coordinator.runtime.table.table_states import TableState
from rootline.coordinator.runtime.table.verdict_outbox import Publication
from rootline.library_log import library_logger
from rootline.ports.intent_feed import Partition
from rootline.schemas.bytes.record_headers import TraceContext
from rootline.schemas.identifiers import TableName
from rootline.schemas.verdict import Verdict, VerdictKind

_WINDOW_S: Final = 1.0
VerdictCounts = Mapping[tuple[VerdictKind, str], int]
"""(kind, code or an empty string) → number of verdicts."""


@dataclass(slots=True)
class VerdictLines:
    """Writes a log line for each verdict and each confirmed root, up to a limit, and then a line with counts.

    In a second, `per_s_max` rejections, `per_s_max` other verdicts and `commits_per_s_max` roots get a line. The level
    is `info`, even of a rejection, on which its writer must act. For a record that is not an intent it is `warning`,
    because perhaps no writer waits for the verdict.
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
        """Log a confirmed root."""
        self._open()
        self._commits += 1
        if self._commits > self.commits_per_s_max:
            return
        traces = {"trace_ids": report.traces} if report.traces else {}
        what = {"table": table, "version": report.version, "intents": int(report.detail or 0)}
        library_logger().info("root committed", action="commit", seconds=report.elapsed_s, **what, **traces)

    def on_published(
        self,
        verdicts: Sequence[Verdict],
        counts: VerdictCounts,
        is_repeated: bool,
        *,
        of_intents: bool = True,
        traces: Sequence[TraceContext | None] = (),
    ) -> None:
        """Log verdicts that the log has acknowledged. `counts` has the number of each kind and code.

        `is_repeated`: they had been recorded before this process published them. `of_intents` is false for records that
        are not intents. `traces`: one for each verdict, or empty.
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
        """Write the counts of suppressed lines, and start a new second."""
        if self._window is not None:
            self._window.cancel()
        left_out = self._commits - self.commits_per_s_max
        self._window, self._rejected, self._others, self._commits = None, 0, 0, 0
        if left_out > 0:
            library_logger().info("commits not logged one by one", action="commits", count=left_out)
        if self._rest:
            counts = {_in_words(*what): count for what, count in sorted(self._rest.items())}
            self._rest.clear()
            log = library_logger()
            write, self._rest_warns = log.warning if self._rest_warns else log.info, False
            write("verdicts not logged one by one", action="verdicts", counts=counts)

    def _open(self) -> None:
        if self._window is None:
            self._window = asyncio.get_running_loop().call_later(_WINDOW_S, self.close)

    def _has_room_for(self, verdict: Verdict) -> bool:
        """Whether the verdict gets its own line. Counts the line."""
        if verdict.kind is VerdictKind.REJECTED:
            self._rejected += 1
            return self._rejected <= self.per_s_max
        self._others += 1
        return self._others <= self.per_s_max


def _write_one(verdict: Verdict, is_repeated: bool, of_intents: bool, trace: TraceContext | None) -> None:
    log = library_logger()
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
    """The metrics registry of the process, for all reports and publications."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._tables: set[str] = set()
        self._states: dict[str, TableState] = {}
        self._versions: dict[str, int] = {}
        self._contents: dict[str, tuple[str, ...]] = {}
        self._lagging: set[Partition] = set()
        self._commit = self._histogram("rootline_commit_seconds", "Time from the PUT of a root to its confirmation.")
        self._visible = self._histogram(
            "rootline_intent_visible_seconds", "Time from the append of an intent to its verdict."
        )
        self._puts = self._counter("rootline_put_total", "Conditional PUTs of roots.", "outcome")
        self._rebases = self._counter("rootline_rebases_total", "Batches re-applied to another head.", "cause")
        self._verdicts = self._counter(
            "rootline_verdicts_total", "Verdicts by this process that the log has acknowledged.", "verdict", "code"
        )
        self._told_again = self._counter(
            "rootline_verdicts_told_again_total",
            "Verdicts that were recorded before this process published them, by a predecessor or a race's winner.",
            "verdict",
            "code",
        )
        self._failures = self._counter(
            "rootline_store_failures_total", "Failed store requests, to be retried.", "table"
        )
        self._apart = self._counter(
            "rootline_clocks_apart_total", "Roots at which the log's clock and the local clock diverged."
        )
        self._dropped = self._counter(
            "rootline_progress_dropped_total",
            "Streaming jobs of Iceberg clients whose progress was dropped, because other jobs took the room.",
        )
        self._last_commit = self._gauge(
            "rootline_last_commit_timestamp_seconds", "Timestamp of the newest root that this process wrote.", "table"
        )
        self._root_bytes = self._gauge("rootline_root_bytes", "Size of the newest root.", "table")
        self._retained = self._gauge(
            "rootline_retained_root_bytes", "Size of all roots that have not expired.", "table"
        )
        self._given_up = self._gauge(
            "rootline_given_up_root_bytes", "Size of all roots that have expired, removed or not.", "table"
        )
        self._oldest_version = self._gauge(
            "rootline_oldest_version", "Oldest version from which on every version can be read.", "table"
        )
        self._root_entries = self._gauge(
            "rootline_root_entries", "Live entries in the newest root itself, not in its leaves.", "table", "content"
        )
        self._state = self._gauge("rootline_table_state", "1 for the current state of the table.", "table", "state")
        self._oldest = self._gauge("rootline_oldest_pending_intent_seconds", "Age of the oldest undecided intent.")
        self._ready = self._gauge("rootline_coordinator_ready", "1 while /readyz reports the coordinator as ready.")
        self._partitions = self._gauge(
            "rootline_assigned_partitions", "Partitions of the log that are assigned to this process."
        )
        self._paused = self._gauge(
            "rootline_paused_partitions", "Partitions that are not read, because there is no room for their rejections."
        )
        self._queue_bytes = self._gauge("rootline_queue_bytes", "Approximate memory of waiting intents.")
        self._lag = self._gauge(
            "rootline_consumer_lag_records",
            "Records of the log that are not yet delivered to their tables.",
            "topic",
            "partition",
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
        """Count a report of a commit machine."""
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
                # only tables that exist get a label: a writer can invent any number of names
                self._failures.labels(table if table in self._tables else _OTHER).inc()
            case Noted.CLOCKS_APART:
                self._apart.inc()
            case Noted.PROGRESS_DROPPED:
                self._dropped.inc()
            case Noted.HEAD_LOADED | Noted.QUARANTINED | Noted.ENCODING_FAILED:
                pass

    def published(self, publication: Publication, now_ms: int) -> VerdictCounts:
        """Count verdicts, and measure the time from the append of their records to now."""
        for appended_ms in publication.appended_ms:
            if appended_ms:
                self._visible.observe(max(0, now_ms - appended_ms) / 1000)
        return self.on_published(publication.verdicts, publication.is_repeated)

    def on_published(self, verdicts: Sequence[Verdict], is_repeated: bool) -> VerdictCounts:
        """Count verdicts that the log has acknowledged. Returns the number of each kind and code."""
        kinds = Counts((verdict.kind, verdict.code or "") for verdict in verdicts)
        for (kind, code), count in kinds.items():
            (self._told_again if is_repeated else self._verdicts).labels(kind.value, code).inc(count)
        return kinds

    def is_news(self, table: str, version: int) -> bool:
        """Whether the gauges of `table` show another version and must be set. Notes that they show this one."""
        label = self._label(table)
        if label == _OTHER or self._versions.get(label) == version:
            return False
        self._versions[label] = version
        return True

    def root(self, table: str, size_in_bytes: int, timestamp_ms: int, entries: dict[str, int]) -> None:
        """Set the gauges of the newest root. `entries`: the live rows of the root, by content."""
        label = self._label(table)
        if label == _OTHER:
            return
        self._root_bytes.labels(label).set(size_in_bytes)
        self._last_commit.labels(label).set(timestamp_ms / 1000)
        self._contents[label] = tuple(entries)
        for content, count in entries.items():
            self._root_entries.labels(label, content).set(count)

    def retained(self, table: str, size_in_bytes: int) -> None:
        """Set the size of a table's roots that have not expired, in bytes."""
        label = self._label(table)
        if label != _OTHER:
            self._retained.labels(label).set(size_in_bytes)

    def expired(self, table: str, oldest_version: int, given_up_bytes: int) -> None:
        """Set the oldest readable version of a table, and the bytes of its expired roots."""
        label = self._label(table)
        if label != _OTHER:
            self._oldest_version.labels(label).set(oldest_version)
            self._given_up.labels(label).set(given_up_bytes)

    def states(self, of: Mapping[TableName, TableState]) -> None:
        """Set the state of every table in memory. Removes the other tables, and what is known of their roots.

        Otherwise a process that no longer owns a table would continue to raise alarms about it.
        """
        labels = {self._label(table): state for table, state in of.items()}
        labels.pop(_OTHER, None)
        for label in self._contents.keys() - labels.keys():
            self._versions.pop(label, None)
            for gauge in (self._root_bytes, self._retained, self._given_up, self._oldest_version):
                gauge.remove(label)
            for content in self._contents.pop(label):
                self._root_entries.remove(label, content)
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
        """Set whether the coordinator works."""
        self._ready.set(1 if is_ready else 0)

    def oldest_pending(self, age_s: float) -> None:
        """Set the age of the oldest record without a verdict, in seconds. 0 when there is none."""
        self._oldest.set(age_s)

    def lag(self, records: Mapping[Partition, int]) -> None:
        """Set the records of each partition that are not yet delivered to their tables. Removes revoked partitions."""
        for log, partition in self._lagging - records.keys():
            self._lag.remove(log, str(partition))
        self._lagging = set(records)
        for (log, partition), count in records.items():
            self._lag.labels(log, str(partition)).set(count)

    def holding(self, partitions: int, paused: int, queue_bytes: int) -> None:
        """Set the number of assigned and of paused partitions, and the bytes in the queues of their tables."""
        self._partitions.set(partitions)
        self._paused.set(paused)
        self._queue_bytes.set(queue_bytes)


EVENTS_MAX: Final = 300
REJECTIONS_MAX: Final = 200
REJECTIONS_AT_ONCE_MAX: Final = 20
"""Rejections of one publication that get an event. The rest is only counted."""
SAMPLES_MAX: Final = 720
_CODES_MAX: Final = 500
_NAME_CHARS_MAX: Final = 300
_REASON_CHARS_MAX: Final = 1_000


class EventKind(StrEnum):
    """The subject of an event."""

    COMMIT = "commit"
    VERDICTS = "verdicts"
    REJECTION = "rejection"


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `number`: ascending in this process. `at_ms`: since the epoch.

    * Of a commit: `intents`, and `seconds` from its PUT to its confirmation.
    * Of verdicts: `intents`, `counts` of each kind, and `told_again` if they had been recorded earlier.
    * Of a rejection: `code`, `reason`, `intent_id`, and `where` (log, partition, offset).
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
    """The load at one moment.

    `lag`: records on the log that are not yet delivered, `None` if the log did not respond. `oldest_s`: age of the
    oldest undecided intent. `commits`, `verdicts` and `rejections` are counted since
    the start of the process.
    """

    at_ms: int
    lag: int | None
    oldest_s: float
    commits: int
    verdicts: int
    rejections: int


@dataclass(frozen=True, slots=True)
class CodeCount:
    """The number of rejections with a code, and the time of the newest."""

    code: str
    count: int
    last_ms: int


@dataclass(slots=True)
class RecentEvents:
    """The recent events of one process."""

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
        """The number of the newest event, or 0 before the first."""
        return self._number

    def landed(self, table: TableName, report: Report, at_ms: int) -> None:
        """Record a confirmed root."""
        self.commits += 1
        self._number += 1
        intents = int(report.detail or 0)
        self._events.append(
            Event(self._number, at_ms, EventKind.COMMIT, table, report.version, intents, report.elapsed_s)
        )

    def on_published(self, verdicts: Sequence[Verdict], counts: VerdictCounts, told_again: bool, at_ms: int) -> None:
        """Record verdicts that the log has acknowledged. All are of one table, or of records without a table."""
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
        """Record the current load."""
        self._samples.append(Sample(at_ms, lag, oldest_s, self.commits, self.verdicts, self.rejections))

    def events_after(self, number: int) -> list[Event]:
        """The stored events with a higher number, ascending."""
        found = [event for ring in (self._events, self._rejected) for event in ring if event.number > number]
        return sorted(found, key=lambda event: event.number)

    def rejections_of(self, table: str) -> list[Event]:
        """The stored rejections of a table, the newest first."""
        return [event for event in reversed(self._rejected) if event.table == table]

    def samples_after(self, at_ms: int) -> list[Sample]:
        """The stored samples after a time, ascending."""
        return [sample for sample in self._samples if sample.at_ms > at_ms]

    def codes(self) -> list[CodeCount]:
        """The count of rejections for each code, the newest first."""
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
