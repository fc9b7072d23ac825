"""The demo's story: a table of flights lives through appends, a delete, an overwrite and a flush.

Owns: the story. Does not own: the flights and what is expected of them (`rootline.demo.example_flights`), any part
of what it shows.
Invariants: what is expected is computed with pandas from the source alone; a table of its own for each run, so that
it can be run again in the same folder; nothing of the folder is deleted.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rootline.client.lake import Lake
from rootline.client.session.session import Session
from rootline.client.table_handle import TableHandle
from rootline.connect import connect, lake_folder
from rootline.demo.example_flights import (
    CANCELLED,
    Agreement,
    as_arrow,
    corrected,
    expected_rows,
    flights_of_new_york,
    fresh_table,
    objects_below,
)
from rootline.schemas.errors import Invalid
from rootline.schemas.object_keys import table_prefix

if TYPE_CHECKING:
    import pandas as pd

WRITERS: Final = 4
CARRIER: Final = "UA"
_FLUSH_AT_FILES: Final = 16
_BUCKETS: Final = 4


@dataclass
class DemoReport:
    """What happened, and whether it was right. Times in milliseconds, append times with writing Parquet."""

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
    mismatches: list[str] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        """Whether all that was read is what pandas computes."""
        return not self.mismatches

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
            f"latency   append {self.append_ms_median:.0f} ms median, {self.append_ms_max:.0f} ms at most, writing "
            f"Parquet included; scan {self.scan_ms:.0f} ms"
        )
        yield (
            f"engines   PyIceberg read {self.rows_read_by_pyiceberg:,} rows of an export as Iceberg "
            f"V{self.export_format}: {self.export_objects} objects in {self.export_ms:.0f} ms, no file copied"
        )
        yield f"took      {self.elapsed_s:.1f} s"
        yield f"files     {self.folder} (table {self.table})"
        yield f"picture   {self.picture}"
        for mismatch in self.mismatches:
            yield f"MISMATCH  {mismatch}"


def run_demo(url: str, log: str | None, months: int, step_done: Callable[[], None]) -> DemoReport:
    """Tell the whole story on the lake at `url`; `step_done` is called after each of its 8 steps.

    Raises:
        Invalid: `setting-invalid`, the warehouse is no folder, or the extra `demo` is not installed.

    """
    began_s = time.perf_counter()
    flights = flights_of_new_york(months)
    step_done()
    folder = lake_folder(url)
    if folder is None:
        raise Invalid("setting-invalid", f"{url}: this demo keeps its picture in the lake's folder; name a path")
    with connect(url, log=log) as lake:
        report = _tell(lake, folder, flights, step_done)
    report.elapsed_s = time.perf_counter() - began_s
    return report


def _tell(lake: Lake, folder: Path, flights: pd.DataFrame, step_done: Callable[[], None]) -> DemoReport:
    report = DemoReport(folder=str(folder.absolute()))
    properties = {"rootline.flush.data-files": str(_FLUSH_AT_FILES)}
    table = fresh_table(lake, as_arrow(flights).schema, buckets=_BUCKETS, properties=properties)
    report.table = table.name
    metadata = f"{table_prefix(table.name)}metadata/"
    objects_before, version_before = objects_below(lake, metadata), table.head().version
    step_done()

    _append(table, flights, report)
    step_done()

    before_delete = table.head().version
    table.delete_where(CANCELLED)
    step_done()
    table.overwrite(as_arrow(corrected(flights, CARRIER)), where=f"carrier = '{CARRIER}'")
    report.intents += 2
    report.commits = table.head().version - version_before
    report.objects_per_commit = (objects_below(lake, metadata) - objects_before) / report.commits
    step_done()

    report.files_flushed = lake.holder.run(_flush)
    step_done()

    _compare(table, flights, before_delete, report)
    step_done()

    _compare_export(table, flights, report)
    picture = folder / f"{table.name}.svg"
    picture.write_text(table.tree().svg(), encoding="utf-8")
    report.picture = str(picture.absolute())
    step_done()
    return report


def _append(table: TableHandle, flights: pd.DataFrame, report: DemoReport) -> None:
    """A table of each four days of a month, appended by several writers at once."""
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


async def _flush(session: Session) -> int:
    """What `rootline worker` does all day, once; the number of entries that moved into leaves."""
    from rootline.workers.app import WorkerService

    worker = WorkerService(store=session.store, log=session.log)
    await worker.look_once()
    moved = 0
    while (done := await worker.carry_out_one()) is not None:
        moved += done.entries
    return moved


def _compare(table: TableHandle, flights: pd.DataFrame, before_delete: int, report: DemoReport) -> None:
    expected = expected_rows(flights, CARRIER)
    began_s = time.perf_counter()
    read = table.scan().to_arrow().to_pandas()
    report.scan_ms = (time.perf_counter() - began_s) * 1000
    report.rows_expected, report.rows_read = len(expected), len(read)
    report.rows_deleted, report.rows_overwritten = (
        int(flights.dep_time.isna().sum()),
        int((expected.carrier == CARRIER).sum()),
    )
    agreement = Agreement(report.mismatches)
    agreement.hold_rows("a scan", expected, read)
    late = "dep_delay > 60 and month = 1"
    agreement.hold(late, int(((expected.dep_delay > 60) & (expected.month == 1)).sum()), table.scan(where=late).count())
    agreement.hold("rows before the delete", len(flights), table.scan(version=before_delete).count())
    agreement.hold("objects per commit", 1.0, report.objects_per_commit)
    agreement.hold("findings of a check", [], list(table.check()))
    agreement.hold("whether the flush moved anything", True, report.files_flushed > 0)


def _compare_export(table: TableHandle, flights: pd.DataFrame, report: DemoReport) -> None:
    """What an engine sees that knows nothing of Rootline."""
    from pyiceberg.table import StaticTable

    began_s = time.perf_counter()
    exported = table.export()
    report.export_ms = (time.perf_counter() - began_s) * 1000
    report.export_format, report.export_objects = int(exported.format_version), exported.cost.puts
    read = StaticTable.from_metadata(exported.metadata_location).scan().to_arrow().to_pandas()
    report.rows_read_by_pyiceberg = len(read)
    Agreement(report.mismatches).hold_rows("PyIceberg", expected_rows(flights, CARRIER), read)
