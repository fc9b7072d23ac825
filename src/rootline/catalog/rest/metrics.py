"""Metrics of exports and of the REST catalog: a contract with those who monitor it.

Owns: their names, labels and buckets, and how far exports are behind. Does not own: the registry they are in, other
metrics (`rootline.coordinator.runtime.observing.metrics`).
Invariants: a `table` label stands for at most `TABLES_MAX` tables, and only for tables that were exported here; may be
set in one thread and read in another.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from rootline.schemas.identifiers import TableName, Version

if TYPE_CHECKING:
    from rootline.catalog.export.exporter import ExportCost

TABLES_MAX: Final = 200
_SECONDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0)


@dataclass(slots=True)
class _Freshness:
    """How far one table's newest export is behind its head, as far as this process knows."""

    exported: Version
    head: Version
    behind_since_ms: int | None = None


class CatalogMetrics:
    """The metrics of one process, in `registry`, which may hold other metrics too."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._guard = threading.Lock()
        self._fresh: dict[TableName, _Freshness] = {}
        self._lag = Gauge(
            "rootline_export_lag_seconds",
            "For how long a table's newest version has been newer than the newest one exported here; also if no one "
            "reads it any more.",
            ("table",),
            registry=registry,
        )
        self._seconds = Histogram(
            "rootline_export_seconds",
            "Time to make what an export lacked; exports that were complete are not counted.",
            registry=registry,
            buckets=_SECONDS,
        )
        self._requests = Counter(
            "rootline_export_requests_total", "Requests to the store for exports.", ("kind",), registry=registry
        )
        self._failures = Counter(
            "rootline_export_failures_total", "Exports that could not be made.", ("code",), registry=registry
        )
        self._answers = Counter(
            "rootline_catalog_requests_total",
            "Answers of the REST catalog.",
            ("route", "code"),
            registry=registry,
        )
        self._answer_seconds = Histogram(
            "rootline_catalog_request_seconds",
            "Time to answer a request, exports that it waits for included.",
            ("route",),
            registry=registry,
            buckets=_SECONDS,
        )

    def answered(self, route: str, status: int, elapsed_s: float) -> None:
        """Count one answer."""
        self._answers.labels(route, str(status)).inc()
        self._answer_seconds.labels(route).observe(elapsed_s)

    def exported(self, table: TableName, version: Version, cost: ExportCost, elapsed_s: float) -> None:
        """Count an export of the newest version; `cost`: the requests for it, none if it was complete."""
        for kind, count in (("list", cost.lists), ("get", cost.gets), ("put", cost.puts)):
            if count:
                self._requests.labels(kind).inc(count)
        if cost.puts:
            self._seconds.observe(elapsed_s)
        with self._guard:
            fresh = self._fresh.get(table)
            if fresh is None:
                if len(self._fresh) < TABLES_MAX:
                    self._fresh[table] = _Freshness(version, version)
                return
            fresh.exported = max(fresh.exported, version)
            if fresh.exported >= fresh.head:
                fresh.head, fresh.behind_since_ms = fresh.exported, None

    def failed(self, code: str) -> None:
        """Count an export that could not be made."""
        self._failures.labels(code).inc()

    def head_seen(self, table: TableName, version: Version, timestamp_ms: int) -> None:
        """Note the newest version of `table` and when it was committed; only tables that were exported here matter."""
        with self._guard:
            fresh = self._fresh.get(table)
            if fresh is None or version <= fresh.head:
                return
            fresh.head = version
            if fresh.behind_since_ms is None and version > fresh.exported:
                fresh.behind_since_ms = timestamp_ms

    def measure(self, now_ms: int, heads: Mapping[TableName, tuple[Version, int]] | None = None) -> None:
        """Bring the gauge up to date, before it is read.

        `heads`: the newest versions, and when they were committed, of the tables whose commits this process sees; other
        tables have no lag. `None`: this process sees no commits, only requests.
        """
        for table, (version, timestamp_ms) in (heads or {}).items():
            self.head_seen(table, version, timestamp_ms)
        with self._guard:
            if heads is not None:
                for table in self._fresh.keys() - heads.keys():
                    del self._fresh[table]
            lags = {
                table: 0 if fresh.behind_since_ms is None else max(0, now_ms - fresh.behind_since_ms)
                for table, fresh in self._fresh.items()
            }
        self._lag.clear()
        for table, lag_ms in lags.items():
            self._lag.labels(table).set(lag_ms / 1000)
