"""The coordinator's metrics, a contract with those who watch it.

Owns: names, labels and buckets of the registry, and the translation of reports into them. Does not own: when
something is reported (`rootline.coordinator.protocol`).
Invariants: a `table` label has at most `TABLES_MAX` tables, and only for tables that exist; the rest share
`_other` in counters, and have no gauges.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from rootline.coordinator.protocol.effects import Noted, Report
from rootline.coordinator.runtime.observing.verdict_lines import VerdictCounts
from rootline.coordinator.runtime.table.table_states import TableState
from rootline.coordinator.runtime.table.verdict_outbox import Publication
from rootline.ports.intent_feed import Partition
from rootline.schemas.identifiers import TableName
from rootline.schemas.verdict import Verdict

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
        return self.told(publication.verdicts, publication.is_repeated)

    def told(self, verdicts: Sequence[Verdict], is_repeated: bool) -> VerdictCounts:
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
