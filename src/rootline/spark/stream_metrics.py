"""`rootline.spark.serve_metrics`: metrics of streams and commits of this driver, for Prometheus.

Owns: names and labels of `rootline_spark_…`, the listener of queries, the socket that receives reports of commits, the
HTTP server. Does not own: sending a report (`batch_commit`), the offsets of a stream (`change_stream`).
Invariants: a commit waits at most a second for its report, and never fails because of it. Each label `query` is a name,
or an id that a checkpoint keeps, so restarts add no series.

Theory. Spark's progress shows of a Python sink its number of rows, and of a Python source its offsets. It has no place
for a version, a verdict or a duplicate. The commit of `writeStream.format("rootline")` runs in a Python worker beside
the driver, so it sends a datagram to a socket of the driver. `append` and `batch_appender` run in the driver, and use
the same way.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from pyspark.sql.streaming.listener import StreamingQueryListener

from rootline.client import checks
from rootline.schemas.errors import Invalid
from rootline.schemas.verdict import VerdictKind
from rootline.spark.batch_commit import WAITING, CommitReport
from rootline.spark.daemon import classic_context
from rootline.spark.data_source import REPORTS_SETTING, register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

DEFAULT_PORT: Final = 9464
BATCH: Final = "_batch"
"""The label `query` of writes outside streams."""
_SECONDS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_REPORT_BYTES_MAX: Final = 65_536
_STOP: Final = b""
_PORT_MAX: Final = 65_535


class StreamMetrics:
    """The metrics of one driver in `registry`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        labels = ("query", "table")
        self._rows = Counter("rootline_spark_rows_total", "Rows of committed writes.", labels, registry=registry)
        self._commits = Counter(
            "rootline_spark_commits_total",
            "Writes by verdict. A `duplicate` is a repeated batch that was committed before.",
            (*labels, "verdict", "code"),
            registry=registry,
        )
        self._seconds = Histogram(
            "rootline_spark_verdict_seconds",
            "Time from the plan of a write's intent to its verdict.",
            labels,
            registry=registry,
            buckets=_SECONDS,
        )
        self._waited = Counter(
            "rootline_spark_waited_seconds_total",
            "Seconds that writes waited for a verdict, counted about every ten seconds. `paused`: an operator paused "
            "the table. `undecided`: no pause is known, and no coordinator has decided.",
            (*labels, "reason"),
            registry=registry,
        )
        self._version = Gauge(
            "rootline_spark_version", "Version of the newest commit of a query.", labels, registry=registry
        )
        self._behind = Gauge(
            "rootline_spark_versions_behind",
            "Versions that a query had not read at the end of its last trigger.",
            labels,
            registry=registry,
        )
        self._progress = Gauge(
            "rootline_spark_last_progress_timestamp_seconds",
            "Time when a query started, ended a trigger, or had nothing to do.",
            ("query",),
            registry=registry,
        )
        self._failures = Counter(
            "rootline_spark_failures_total", "Ends of a query by an error.", ("query",), registry=registry
        )

    def committed(self, query: str, report: CommitReport) -> None:
        """Count a write that has a verdict, or a step of its wait."""
        labels = (query, report.table)
        if report.verdict == WAITING:
            self._waited.labels(*labels, report.code or "").inc(report.seconds)
            return
        self._commits.labels(*labels, report.verdict, report.code or "").inc()
        self._seconds.labels(*labels).observe(report.seconds)
        if report.verdict == VerdictKind.COMMITTED:
            self._rows.labels(*labels).inc(report.rows)
            self._version.labels(*labels).set(report.version or 0)

    def started(self, query: str) -> None:
        """Show a query that has done nothing yet."""
        self._failures.labels(query)
        self.progressed(query)

    def progressed(self, query: str) -> None:
        """Note that a query is running."""
        self._progress.labels(query).set_to_current_time()

    def read(self, query: str, table: str, behind: int) -> None:
        """Show how far a query has read a table."""
        self._behind.labels(query, table).set(behind)

    def failed(self, query: str) -> None:
        """Count a failure. The time of the last progress stays."""
        self._failures.labels(query).inc()

    def stopped(self, query: str, tables: set[str]) -> None:
        """Remove what only a running query has."""
        with contextlib.suppress(KeyError):
            self._progress.remove(query)
            for table in tables:
                self._behind.remove(query, table)


def versions_behind(latest: str | None, end: str | None) -> tuple[str, int] | None:
    """The table of a source, and the number of its versions that are not read to their end, from Spark's progress.

    `None`: the source is not ours, or Spark has no newest offset (before Spark 4.2).
    """
    newest, read = _offset(latest), _offset(end)
    try:
        return str(newest["name"]), int(newest["version"]) - int(read["version"]) + int(read["files"] != -1)
    except (KeyError, TypeError, ValueError):
        return None


def _offset(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


class QueryListener(StreamingQueryListener):
    """Passes the events of queries to the metrics. Spark calls it from a separate thread."""

    def __init__(self, metrics: StreamMetrics) -> None:
        self._metrics = metrics
        self._names: dict[str, str] = {}
        self._runs: dict[str, str] = {}
        self._tables: defaultdict[str, set[str]] = defaultdict(set)

    def label_of(self, query_id: str | None) -> str:
        """The label of a query: its name, or its id if it has none. `None`: a write outside streams."""
        return BATCH if query_id is None else self._names.get(query_id, query_id)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Show the query. Spark calls this at once, so the end of the last run may be reported later."""
        self._names[str(event.id)], self._runs[str(event.id)] = event.name or str(event.id), str(event.runId)
        self._metrics.started(self.label_of(str(event.id)))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Show how far the query has read its sources."""
        progress = event.progress
        self._names.setdefault(str(progress.id), progress.name or str(progress.id))
        query = self.label_of(str(progress.id))
        self._metrics.progressed(query)
        for source in progress.sources:
            found = versions_behind(source.latestOffset, source.endOffset)
            if found is not None:
                self._tables[query].add(found[0])
                self._metrics.read(query, *found)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Show that the query has read everything."""
        query = self.label_of(str(event.id))
        self._metrics.progressed(query)
        for table in self._tables[query]:
            self._metrics.read(query, table, 0)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Count a failure, or remove the query."""
        query = self.label_of(str(event.id))
        if event.exception is not None:
            self._metrics.failed(query)
        elif self._runs.get(str(event.id), str(event.runId)) == str(event.runId):
            self._metrics.stopped(query, self._tables.pop(query, set()))


@dataclass(frozen=True, slots=True)
class ServedMetrics:
    """Metrics that are served at `port` until `stop`. Usable in `with`."""

    port: int
    _parts: contextlib.ExitStack

    def stop(self) -> None:
        """Stop serving. Queries continue, and their later commits send no reports."""
        self._parts.close()

    def __enter__(self) -> ServedMetrics:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def serve_metrics(spark: SparkSession, port: int = DEFAULT_PORT, host: str = "127.0.0.1") -> ServedMetrics:
    """Serve metrics of this driver's streams and writes for Prometheus, at `/metrics`, until `stop` is called.

    Call it before queries start. It also calls `register`. It does not work on Spark Connect, whose driver is
    elsewhere.

    Args:
        spark: the session of the queries.
        port: the port. 0 lets the system pick one, which is `port` of the result.
        host: the address. Use `0.0.0.0` for a Prometheus on another machine.

    Raises:
        Invalid: `setting-invalid`, the port is in use, metrics of the session are served already, or it is a session of
            Spark Connect.

    """
    if classic_context(spark) is None:
        raise Invalid("setting-invalid", "serve_metrics needs Spark's driver in this process, not Spark Connect")
    if not 0 <= checks.whole(port, "port") <= _PORT_MAX:
        raise Invalid("setting-invalid", f"port is {port}: give {_PORT_MAX} or less, or 0 to let the system pick one")
    metrics = StreamMetrics(CollectorRegistry())
    listener = QueryListener(metrics)
    try:
        server, thread = start_http_server(port, host, metrics.registry)
    except OSError as error:
        raise Invalid(
            "setting-invalid",
            f"metrics cannot be served on {host}:{port}: {error.strerror or error}; give another port, or 0 to let the "
            "system pick one",
        ) from error
    with contextlib.ExitStack() as parts:
        parts.callback(thread.join)
        parts.callback(server.server_close)
        parts.callback(server.shutdown)
        if spark.conf.get(REPORTS_SETTING, None):
            raise Invalid("setting-invalid", "metrics of this session are served already: stop them first")
        address = str(Path(parts.enter_context(TemporaryDirectory(prefix="rootline-"))) / "commits")
        parts.enter_context(_received(address, metrics, listener))
        spark.streams.addListener(listener)
        parts.callback(spark.streams.removeListener, listener)
        parts.callback(register, spark)
        spark.conf.set(REPORTS_SETTING, address)
        parts.callback(spark.conf.unset, REPORTS_SETTING)
        register(spark)
        return ServedMetrics(server.server_port, parts.pop_all())


@contextlib.contextmanager
def _received(address: str, metrics: StreamMetrics, listener: QueryListener) -> Iterator[None]:
    """Count the commits that report to a socket, until the block ends."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        try:
            receiver.bind(address)
        except OSError as error:
            raise Invalid(
                "setting-invalid", f"commits cannot report to {address}: {error}; set TMPDIR to another folder"
            ) from error

        def receive() -> None:
            while (data := receiver.recv(_REPORT_BYTES_MAX)) != _STOP:
                report = CommitReport.of(data)
                with contextlib.suppress(TypeError, ValueError):  # of a report with values of other types
                    if report is not None:
                        metrics.committed(listener.label_of(report.query), report)

        thread = Thread(target=receive, name="rootline-spark-metrics", daemon=True)
        thread.start()
        try:
            yield
        finally:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.sendto(_STOP, address)
            thread.join()
