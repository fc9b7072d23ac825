"""`rootline demo`: runs a table of flights through appends, a delete, an overwrite, a flush and an export.

Owns: the order of the steps, the report at the end, the spans of one intent as lines of text. Does not own: the
flights and the expected rows (`example_flights`), any part of the product that it shows.
Invariants: each run creates a new table, so the demo can be repeated in the same folder. Nothing in the folder is
deleted. The report names every difference from the rows that pandas computes.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rootline.client.lake import Lake
from rootline.client.session import Session
from rootline.client.table_handle import TableHandle
from rootline.connect import RecordedSpan, connect, lake_folder, recording_spans
from rootline.demo.example_flights import (
    CARRIER,
    LATE,
    Agreement,
    as_arrow,
    correct_carrier,
    delete_cancelled,
    expected_rows,
    flights_of_new_york,
    fresh_table,
    late_rows,
    objects_below,
)
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.object_keys import table_prefix

if TYPE_CHECKING:
    import pandas as pd

_STEPS: Final = ("rootline publish", "rootline decide", "rootline put root", "rootline tell verdict")
_WIDTH: Final = 40


def typical_intent(spans: Iterable[RecordedSpan]) -> list[RecordedSpan]:
    """The spans of the intent with the median duration. Empty if no intent has all spans."""
    by_trace: dict[str, dict[str, RecordedSpan]] = defaultdict(dict)
    for span in spans:
        by_trace[span.trace_id][span.name] = span
    complete = [[found[name] for name in _STEPS] for found in by_trace.values() if set(_STEPS) <= set(found)]
    complete.sort(key=_duration_ns)
    return complete[len(complete) // 2] if complete else []


def waterfall(spans: Sequence[RecordedSpan]) -> list[str]:
    """A heading, then a line for each span. Empty without spans."""
    if not spans:
        return []
    began_ns, whole_ns = min(span.start_ns for span in spans), max(1, _duration_ns(spans))
    facts = spans[-1].facts
    lines = [f"version {facts.get('rootline.version')} of {facts.get('rootline.table')} in {whole_ns / 1e6:.1f} ms"]
    for span in spans:
        start = min(_WIDTH - 1, (span.start_ns - began_ns) * _WIDTH // whole_ns)
        length = max(1, min(_WIDTH - start, round((span.end_ns - span.start_ns) * _WIDTH / whole_ns)))
        bar = f"{' ' * start}{'█' * length}".ljust(_WIDTH)
        lines.append(f"{span.name.removeprefix('rootline '):<13}{bar} {(span.end_ns - span.start_ns) / 1e6:>7.1f} ms")
    return lines


def _duration_ns(spans: Sequence[RecordedSpan]) -> int:
    return max(span.end_ns for span in spans) - min(span.start_ns for span in spans)


WRITERS: Final = 4


@dataclass
class QuickReport:
    """The results of a run. Times are in milliseconds. Times of appends include writing the Parquet files."""

    table: str = ""
    folder: str = ""
    picture: str = ""
    rows_expected: int = 0
    rows_read: int = 0
    rows_appended: int = 0
    rows_deleted: int = 0
    rows_overwritten: int = 0
    intents: int = 0
    commits: int = 0
    objects_per_commit: float = 0.0
    files_flushed: int = 0
    append_ms_median: float = 0.0
    append_ms_max: float = 0.0
    scan_ms: float = 0.0
    export_format: int = 0
    export_objects: int = 0
    export_ms: float = 0.0
    rows_read_by_pyiceberg: int = 0
    elapsed_s: float = 0.0
    waterfall: list[str] = field(default_factory=list)
    mismatches: list[str] = field(default_factory=list)

    @property
    def agreement(self) -> Agreement:
        """The comparisons, which add their differences to `mismatches`."""
        return Agreement(self.mismatches)

    @property
    def agrees(self) -> bool:
        """Whether all rows that were read equal those that pandas computes."""
        return self.agreement.agrees

    def lines(self) -> Iterator[str]:
        """The report as text."""
        yield f"rows      expected {self.rows_expected:,}, read {self.rows_read:,}: " + (
            "the same rows" if self.agrees else "NOT the same"
        )
        yield (
            f"changes   {self.rows_appended:,} rows appended by {WRITERS} writers at once, {self.rows_deleted:,} "
            f"cancelled flights deleted by vectors, {self.rows_overwritten:,} rows of {CARRIER} overwritten"
        )
        yield (
            f"commits   {self.intents} intents in {self.commits} commits, "
            f"{self.objects_per_commit:g} object per commit; then one flush moved {self.files_flushed} entries"
        )
        yield (
            f"latency   append {self.append_ms_median:.0f} ms median, {self.append_ms_max:.0f} ms at most, "
            f"including writing Parquet; scan {self.scan_ms:.0f} ms"
        )
        yield (
            f"engines   PyIceberg read {self.rows_read_by_pyiceberg:,} rows of an export as Iceberg "
            f"V{self.export_format}: {self.export_objects} objects in {self.export_ms:.0f} ms, no file copied"
        )
        for number, line in enumerate(self.waterfall):
            yield f"{'' if number else 'intent':<10}{line}"
        yield f"took      {self.elapsed_s:.1f} s"
        yield f"files     {self.folder} (table {self.table})"
        yield f"picture   {self.picture}"
        yield from self.agreement.lines()


FLUSHED_BY_HAND: Final = {"rootline.expire": "false", "rootline.flush.retained-bytes": str(2**50)}
"""At this pace the hosted worker would flush the table between two commits, and their objects could not be counted."""


def run_demo(url: str, log: str | None, months: int, step_done: Callable[[], None]) -> QuickReport:
    """Run the demo on the lake at `url`. Calls `step_done` after each of its 8 steps.

    Raises:
        Invalid: `setting-invalid`, the warehouse is not a folder, or the extra `demo` is not installed.
    """
    began_s = time.perf_counter()
    flights = flights_of_new_york(months)
    step_done()
    folder = lake_folder(url)
    if folder is None:
        raise Invalid("setting-invalid", f"{url}: this demo needs a lake in a folder, for its picture: name a path")
    with recording_spans() as recorded, connect(url, log=log) as lake:
        report = _run(lake, folder, flights, step_done)
    report.waterfall = waterfall(typical_intent(recorded.spans))
    report.elapsed_s = time.perf_counter() - began_s
    return report


def _run(lake: Lake, folder: Path, flights: pd.DataFrame, step_done: Callable[[], None]) -> QuickReport:
    report = QuickReport(folder=str(folder.absolute()))
    table = fresh_table(lake, as_arrow(flights).schema, buckets=4, properties=FLUSHED_BY_HAND)
    report.table = table.name
    metadata = f"{table_prefix(table.name)}metadata/"
    objects_before, version_before = objects_below(lake, metadata), table.head().version
    step_done()

    _append(table, flights, report)
    step_done()

    before_delete = table.head().version
    report.rows_deleted = delete_cancelled(table, flights)
    step_done()
    report.rows_overwritten = correct_carrier(table, flights)
    report.intents += 2
    report.commits = table.head().version - version_before
    report.objects_per_commit = (objects_below(lake, metadata) - objects_before) / report.commits
    step_done()

    report.files_flushed = lake.holder.run(lambda session: _flush(session, table.name))
    step_done()

    _compare(table, flights, before_delete, report)
    step_done()

    _compare_export(table, flights, report)
    picture = folder / f"{table.name}.svg"
    picture.write_text(table.tree().svg(), encoding="utf-8")
    report.picture = str(picture.absolute())
    step_done()
    return report


def _append(table: TableHandle, flights: pd.DataFrame, report: QuickReport) -> None:
    """Append the flights in batches of four days, by several concurrent writers."""
    parts = [part for _, part in flights.groupby(["month", (flights.day - 1) // 4])]
    took_ms: list[float] = []

    def append(part: pd.DataFrame) -> None:
        began_s = time.perf_counter()
        table.append(as_arrow(part))
        took_ms.append((time.perf_counter() - began_s) * 1000)

    append(parts[0])
    with ThreadPoolExecutor(WRITERS, thread_name_prefix="writer") as writers:
        list(writers.map(append, parts[1:]))
    report.intents, report.rows_appended = len(parts), len(flights)
    report.append_ms_median, report.append_ms_max = statistics.median(took_ms), max(took_ms)


async def _flush(session: Session, table: TableName) -> int:
    """Run the flush that a worker would run later. Returns the number of entries that moved to leaves."""
    from rootline.workers.kinds import FLUSH, maintain

    done = await maintain(session.store, session.log, session.environment, table, FLUSH, dry_run=False)
    return done.entries


def _compare(table: TableHandle, flights: pd.DataFrame, before_delete: int, report: QuickReport) -> None:
    expected = expected_rows(flights)
    began_s = time.perf_counter()
    read = table.scan().to_arrow().to_pandas()
    report.scan_ms = (time.perf_counter() - began_s) * 1000
    report.rows_expected, report.rows_read = len(expected), len(read)
    agreement = report.agreement
    agreement.hold_rows("a scan", expected, read)
    agreement.hold(f"rows where {LATE}", late_rows(expected), table.scan(where=LATE).count())
    agreement.hold("rows before the delete", len(flights), table.scan(version=before_delete).count())
    agreement.hold("objects per commit", 1.0, report.objects_per_commit)
    agreement.hold("findings of a check", [], list(table.check()))
    agreement.hold("whether the flush moved anything", True, report.files_flushed > 0)


def _compare_export(table: TableHandle, flights: pd.DataFrame, report: QuickReport) -> None:
    """Compare the rows that PyIceberg, which does not know Rootline, reads from an export."""
    from pyiceberg.table import StaticTable

    began_s = time.perf_counter()
    exported = table.export()
    report.export_ms = (time.perf_counter() - began_s) * 1000
    report.export_format, report.export_objects = int(exported.format_version), exported.cost.puts
    read = StaticTable.from_metadata(exported.metadata_location).scan().to_arrow().to_pandas()
    report.rows_read_by_pyiceberg = len(read)
    report.agreement.hold_rows("PyIceberg", expected_rows(flights), read)
