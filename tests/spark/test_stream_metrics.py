"""What a Prometheus sees of a driver's streams and writes."""

from __future__ import annotations

import asyncio
import json
import socket
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.connect import pause_table, resume_table
from rootline.schemas.errors import Invalid
from rootline.schemas.verdict import VerdictKind
from rootline.spark import append, batch_appender, batch_commit, serve_metrics
from rootline.spark.batch_commit import CommitReport, WrittenBatch, commit_append
from rootline.spark.file_sink import write_task
from rootline.spark.options import parse_options
from rootline.spark.stream_metrics import QueryListener, ServedMetrics, StreamMetrics, _received, versions_behind
from tests.spark.conftest import FLIGHTS
from tests.spark.file_stream import COLUMNS, PATIENCE_S, Stream

Series = dict[tuple[str, tuple[str, ...]], float]
LABELS = ("query", "table", "verdict", "code")
NIGHTLY = ("nightly", "demo.flights")


def scraped(metrics: ServedMetrics) -> Series:
    """(name without `rootline_spark_`, values of the labels) → value, as Prometheus reads it."""
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics.port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return {
        (
            sample.name.removeprefix("rootline_spark_"),
            tuple(sample.labels[label] for label in LABELS if label in sample.labels),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def until(metrics: ServedMetrics, holds: Callable[[Series], bool]) -> Series:
    """The first scrape of which it holds. Spark passes events on a little later."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds(found := scraped(metrics)):
        assert time.monotonic() < deadline_s, found
    return found


@pytest.fixture
def stream(spark: SparkSession, folder: Path, tmp_path: Path) -> Stream:
    return Stream(spark, str(folder), tmp_path / "stream")


@pytest.fixture
def metrics(spark: SparkSession) -> Iterator[ServedMetrics]:
    with serve_metrics(spark, 0) as served:
        yield served


@pytest.mark.spark
def test_a_scrape_shows_rows_versions_and_duplicates_of_a_stream_by_its_name(
    flights: TableHandle, stream: Stream, metrics: ServedMetrics
) -> None:
    stream.drop(1, 2)
    stream.drop(3)
    stream.run(queryName="nightly")
    stream.forget_last_commit()
    stream.run(queryName="nightly")
    found = until(metrics, lambda seen: seen.get(("commits_total", (*NIGHTLY, "duplicate", ""))) == 1)
    assert found["rows_total", NIGHTLY] == 3
    assert found["commits_total", (*NIGHTLY, "committed", "")] == 2
    assert found["version", NIGHTLY] == 2, "of the newest rows"
    assert found["verdict_seconds_count", NIGHTLY] == 3
    until(metrics, lambda seen: ("last_progress_timestamp_seconds", ("nightly",)) not in seen)


@pytest.mark.spark
def test_commits_of_a_batch_appender_and_of_batch_writes_are_counted_too(
    spark: SparkSession, lake: Lake, folder: Path, stream: Stream, metrics: ServedMetrics
) -> None:
    lake.create_table("demo.flights", FLIGHTS)
    stream.drop(1, 2)
    source = spark.readStream.schema(COLUMNS).json(str(stream.source))
    writer = source.writeStream.foreachBatch(batch_appender("demo.flights", warehouse=str(folder)))
    writer = writer.option("checkpointLocation", str(stream.checkpoint)).queryName("nightly").trigger(availableNow=True)
    assert writer.start().awaitTermination(PATIENCE_S)
    append(spark.createDataFrame([(3, "UA", 1.0)], COLUMNS), "demo.flights", warehouse=str(folder))
    found = until(metrics, lambda seen: ("rows_total", ("_batch", "demo.flights")) in seen)
    assert (found["rows_total", NIGHTLY], found["rows_total", ("_batch", "demo.flights")]) == (2, 1)
    assert (found["version", NIGHTLY], found["version", ("_batch", "demo.flights")]) == (1, 2)


@pytest.mark.spark
def test_a_reading_stream_shows_the_versions_that_it_has_not_read(
    flights: TableHandle, spark: SparkSession, folder: Path, tmp_path: Path, metrics: ServedMetrics
) -> None:
    for at in range(3):
        flights.append(pa.table({"id": [at], "carrier": ["UA"], "delay": [1.0]}))
    began, goes_on = Event(), Event()

    def second_waits(_: DataFrame, number: int) -> None:
        if number == 1:
            began.set()
            assert goes_on.wait(PATIENCE_S)

    source = spark.readStream.format("rootline").option("warehouse", str(folder)).option("maxFilesPerTrigger", 1)
    reading = source.option("startingVersion", 1).load("demo.flights").writeStream.foreachBatch(second_waits)
    query: StreamingQuery = reading.option("checkpointLocation", str(tmp_path / "c")).queryName("nightly").start()
    try:
        assert began.wait(PATIENCE_S)
        found = until(metrics, lambda seen: ("versions_behind", NIGHTLY) in seen)
        assert found["versions_behind", NIGHTLY] == 2
        assert '"name":"demo.flights"' in query.lastProgress["sources"][0]["latestOffset"].replace(" ", "")
        goes_on.set()
        until(metrics, lambda seen: seen["versions_behind", NIGHTLY] == 0)
    finally:
        goes_on.set()
        query.stop()
    until(metrics, lambda seen: ("versions_behind", NIGHTLY) not in seen)


@pytest.mark.spark
def test_a_failed_query_is_counted_and_keeps_the_time_of_its_last_progress(
    spark: SparkSession, stream: Stream, metrics: ServedMetrics
) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("broken")

    stream.drop(1)
    source = spark.readStream.schema(COLUMNS).json(str(stream.source))
    writer = source.writeStream.foreachBatch(broken).option("checkpointLocation", str(stream.checkpoint))
    query = writer.queryName("nightly").trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(PATIENCE_S)
    found = until(metrics, lambda seen: seen.get(("failures_total", ("nightly",))) == 1)
    assert ("last_progress_timestamp_seconds", ("nightly",)) in found


@pytest.mark.spark
def test_metrics_that_cannot_be_served_are_refused_and_a_session_goes_on_without_them(
    flights: TableHandle, spark: SparkSession, stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve_metrics(spark, 0) as served, pytest.raises(Invalid, match="give another port"):
        serve_metrics(spark, served.port)
    with serve_metrics(spark, 0), pytest.raises(Invalid, match="served already: stop them first"):
        serve_metrics(spark, 0)
    with pytest.raises(Invalid, match="port is 70000: give 65535 or less"):
        serve_metrics(spark, 70_000)
    deep = tmp_path / ("deep" * 30)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with pytest.raises(Invalid, match="too long; set TMPDIR to another folder"):
        serve_metrics(spark, 0)
    assert spark.conf.get("spark.rootline.reportsTo", None) is None
    stream.drop(1)
    stream.run()
    assert flights.head().version == 1


@pytest.mark.spark
def test_jobs_are_described_unless_the_user_has_described_them(spark: SparkSession, lake: Lake, folder: Path) -> None:
    table = lake.create_table("demo.notes", pa.schema([("note", pa.string())]))

    def described(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            context = TaskContext.get()
            assert context is not None
            yield pa.record_batch({"note": [context.getLocalProperty("spark.job.description")]})

    notes = spark.range(0, 1, 1, 1).mapInArrow(described, "note string")
    append(notes, "demo.notes", warehouse=str(folder))
    spark.sparkContext.setJobDescription("mine")
    try:
        append(notes, "demo.notes", warehouse=str(folder))
        assert spark.sparkContext.getLocalProperty("spark.job.description") == "mine"
    finally:
        spark.sparkContext.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
    append(notes, "demo.notes", warehouse=str(folder))
    found = sorted(table.scan().to_arrow().column("note").to_pylist())
    assert found == ["mine", "rootline: append to demo.notes", "rootline: append to demo.notes"]


def test_the_end_of_a_run_that_is_reported_late_does_not_hide_the_next_run() -> None:
    metrics = StreamMetrics(CollectorRegistry())
    listener: Any = QueryListener(metrics)
    name, query = "rootline_spark_last_progress_timestamp_seconds", {"query": "nightly"}

    def run(number: int) -> SimpleNamespace:
        return SimpleNamespace(id="q", runId=number, name="nightly", exception=None)

    listener.onQueryStarted(run(1))
    listener.onQueryStarted(run(2))
    listener.onQueryTerminated(run(1))
    assert metrics.registry.get_sample_value(name, query) is not None
    listener.onQueryTerminated(run(2))
    assert metrics.registry.get_sample_value(name, query) is None


def test_a_version_that_is_not_read_to_its_end_counts_as_not_read() -> None:
    latest = '{"table": "u", "version": 7, "files": -1, "name": "a.b"}'
    assert versions_behind(latest, '{"table": "u", "version": 7, "files": -1}') == ("a.b", 0)
    assert versions_behind(latest, '{"table": "u", "version": 4, "files": 12}') == ("a.b", 4)


@pytest.mark.parametrize("latest", [None, "null", "7", "{}", "no json", '{"topic": {"0": 5}}'])
def test_offsets_of_other_sources_are_passed_over(latest: str | None) -> None:
    assert versions_behind(latest, '{"table": "u", "version": 7, "files": -1}') is None


def test_a_rejected_batch_is_counted_with_its_code_and_adds_no_rows() -> None:
    metrics, labels = StreamMetrics(CollectorRegistry()), {"query": "nightly", "table": "demo.flights"}
    sent = CommitReport("id", "demo.flights", "rejected", "location-invalid", None, 2, 0.1)
    assert CommitReport.of(json.dumps(asdict(sent)).encode()) == sent
    metrics.committed("nightly", sent)
    of_code = {**labels, "verdict": "rejected", "code": "location-invalid"}
    assert metrics.registry.get_sample_value("rootline_spark_commits_total", of_code) == 1
    assert metrics.registry.get_sample_value("rootline_spark_rows_total", labels) is None
    assert metrics.registry.get_sample_value("rootline_spark_version", labels) is None


def test_a_write_to_a_paused_table_reports_how_long_it_waits_and_for_what(
    flights: TableHandle,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(batch_commit, "_STEP_S", 0.05)
    address, metrics = str(tmp_path / "commits"), StreamMetrics(CollectorRegistry())
    given = {"path": "demo.flights", "warehouse": str(folder), "reportsTo": address}
    options, definition = parse_options(given, {}), flights.definition()
    rows = pa.RecordBatch.from_pylist([{"id": 1, "carrier": "UA", "delay": 1.0}], FLIGHTS)
    batch = WrittenBatch.of([write_task([rows], definition, options)], "writer", 1)
    asyncio.run(pause_table(str(folder), None, options.table, "bad source"))
    deadline_s = time.monotonic() + PATIENCE_S
    while "action='pause'" not in caplog.text:
        assert time.monotonic() < deadline_s, "the coordinator does not pause"
        flights.head()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver, ThreadPoolExecutor() as threads:
        receiver.settimeout(PATIENCE_S)
        receiver.bind(address)
        committing = threads.submit(commit_append, batch, definition, options)
        waits = [CommitReport.of(receiver.recv(65_536)) for _ in range(3)]
        asyncio.run(resume_table(str(folder), None, options.table))
        verdict = committing.result(PATIENCE_S)
    assert verdict is not None
    assert verdict.kind is VerdictKind.COMMITTED
    for wait in waits:
        assert wait is not None
        metrics.committed("nightly", wait)
    labels = {"query": "nightly", "table": "demo.flights"}
    of_pause = {**labels, "reason": "paused"}
    waited_s = metrics.registry.get_sample_value("rootline_spark_waited_seconds_total", of_pause)
    seconds = [wait.seconds for wait in waits if wait is not None]
    assert min(seconds) >= 0.05, "a step"
    assert waited_s == pytest.approx(sum(seconds))
    assert metrics.registry.get_sample_value("rootline_spark_verdict_seconds_count", labels) is None, "no verdict yet"


def test_a_report_with_values_of_other_types_does_not_end_the_reception_of_later_ones(tmp_path: Path) -> None:
    metrics, address = StreamMetrics(CollectorRegistry()), str(tmp_path / "commits")
    wrong: Any = "many"
    with _received(address, metrics, QueryListener(metrics)):
        for query, rows in (({}, 1), (None, wrong), (None, 2)):
            CommitReport(query, "demo.flights", "committed", None, 1, rows, 0.1).send(address)  # type: ignore[arg-type]
    labels = {"query": "_batch", "table": "demo.flights"}
    assert metrics.registry.get_sample_value("rootline_spark_rows_total", labels) == 2


def test_a_report_to_no_one_or_of_something_else_is_passed_over(tmp_path: Path) -> None:
    CommitReport(None, "demo.flights", "committed", None, 1, 2, 0.1).send(str(tmp_path / "absent"))
    assert CommitReport.of(b"{}") is None
    assert CommitReport.of(b"[1]") is None
