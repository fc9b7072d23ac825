"""The worker's metrics. Dashboards and alerts rely on their names and labels.

Owns: names, labels and buckets, the translation of a task's end into them. Does not own: the registry, which may
also contain a coordinator's metrics, the end of a task (`rootline.workers.app`).
Invariants: `kind` is the name of a row of `rootline.workers.kinds`, and every kind is present from the start. No label
grows with the number of tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from rootline.ports.task_queue import TaskKind
from rootline.workers.jobs.job import JobOutcome, JobReport, WorkerCounters

FAILED: Final = "failed"
CANCELLED: Final = "cancelled"
_SECONDS: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0)
_DONE: Final = (JobOutcome.NOTHING_DUE, JobOutcome.COMMITTED, JobOutcome.REMOVED)
_CHANGED: Final = (JobOutcome.COMMITTED, JobOutcome.REMOVED)


class WorkerMetrics:
    """The metrics of one worker in `registry`. `kinds`: the names of the kinds of maintenance."""

    def __init__(self, registry: CollectorRegistry, kinds: Iterable[str]) -> None:
        self.registry = registry
        self._tasks = Counter(
            "rootline_worker_tasks_total",
            "Tasks by outcome; `failed` is an error, and is retried.",
            ("kind", "outcome"),
            registry=registry,
        )
        self._failures = Counter(
            "rootline_worker_failures_total",
            "Errors of tasks, of listing tables, of finding heads, and of the task queue.",
            ("code",),
            registry=registry,
        )
        self._running = self._gauge("rootline_worker_tasks_running", "Running tasks.", "kind")
        self._succeeded = self._gauge(
            "rootline_worker_last_success_timestamp_seconds",
            "Time of the last successful task, even if nothing was due.",
            "kind",
        )
        self._changed = self._gauge(
            "rootline_worker_last_change_timestamp_seconds",
            "Time of the last task that committed or removed objects, such as the last expiry or sweep.",
            "kind",
        )
        self._seconds = Histogram(
            "rootline_worker_task_seconds",
            "Duration of a task, unless nothing was due.",
            ("kind",),
            registry=registry,
            buckets=_SECONDS,
        )
        self._leaves = Counter(
            "rootline_worker_leaves_committed_total", "Leaves in committed roots.", ("kind",), registry=registry
        )
        self._entries = Counter(
            "rootline_worker_entries_moved_total", "Entries in those leaves.", ("kind",), registry=registry
        )
        self._queue = self._gauge(
            "rootline_worker_queue_tasks", "Waiting tasks, by the part of the table that they check.", "look"
        )
        self._tables = self._gauge("rootline_worker_tables", "Watched tables.")
        self._looks = Counter("rootline_worker_looks_total", "LIST requests for heads.", registry=registry)
        self._refused = Counter(
            "rootline_worker_tasks_refused_total", "Tasks refused because the queue was full.", registry=registry
        )
        self._seen_looks = self._seen_refused = 0
        for kind in kinds:
            self._running.labels(kind).set(0)
            for outcome in (JobOutcome.COMMITTED.value, FAILED):
                self._tasks.labels(kind, outcome)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def began(self, kind: str) -> None:
        """Note that a job of this kind of maintenance started."""
        self._running.labels(kind).inc()

    def ended(self, kind: str, outcome: str, elapsed_s: float) -> None:
        """Note that a job ended. `outcome`: a `JobOutcome`, `FAILED` or `CANCELLED`."""
        self._running.labels(kind).dec()
        self._tasks.labels(kind, outcome).inc()
        if outcome != JobOutcome.NOTHING_DUE:
            self._seconds.labels(kind).observe(elapsed_s)

    def reported(self, kind: str, report: JobReport, now_ms: int) -> None:
        """Record the report of a job that did not fail."""
        if report.outcome in _DONE:
            self._succeeded.labels(kind).set(now_ms / 1000)
        if report.outcome in _CHANGED or report.removed:
            self._changed.labels(kind).set(now_ms / 1000)
        if report.outcome is JobOutcome.COMMITTED:
            self._leaves.labels(kind).inc(report.leaves)
            self._entries.labels(kind).inc(report.entries)

    def failed(self, code: str) -> None:
        """Count an error."""
        self._failures.labels(code).inc()

    def measure(self, counters: WorkerCounters, waiting: Mapping[TaskKind, int] | None) -> None:
        """Update the gauges, before they are read. `waiting` is `None` while the queue is unavailable."""
        self._tables.set(counters.tables)
        self._looks.inc(counters.looks - self._seen_looks)
        self._refused.inc(counters.tasks_refused - self._seen_refused)
        self._seen_looks, self._seen_refused = counters.looks, counters.tasks_refused
        self._queue.clear()
        if waiting is not None:
            for look in TaskKind:
                self._queue.labels(look.value).set(waiting.get(look, 0))
