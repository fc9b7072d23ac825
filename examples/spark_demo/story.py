"""The steps of the demo with Spark: streams flights, deletes, corrects and flushes them, and reads them in two ways.

Owns: the steps, and the facts that each adds to the report. Does not own: services (`service`), the flights and the
expected rows (`rootline.demo.example_flights`), the order of the steps and the terminal (`__main__`).
Invariants: nothing is faked. Services run in child processes, and reads use the public interfaces. Nothing depends on
the location of the lake.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from examples.spark_demo.quantiles import quantiles_at
from examples.spark_demo.report import Flush, SparkReport
from examples.spark_demo.service import ServedLake, command_line
from examples.spark_demo.terminal import say
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.demo.example_flights import (
    CANCELLED,
    CARRIER,
    LATE,
    as_arrow,
    correct_carrier,
    delete_cancelled,
    expected_rows,
    late_rows,
    objects_below,
    rows_by_carrier,
    rows_digest,
)
from rootline.schemas.errors import OutcomeUnknown
from rootline.schemas.object_keys import table_prefix
from rootline.spark.spark_types import spark_schema_of
from rootline.tree.view import TreeOutline

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BUCKETS: Final = 8
_FLUSH_PATIENCE_S: Final = 90.0


def flush_at(months: int) -> int:
    """The number of data files, or vectors, in the root at which the worker flushes them. A month makes 16."""
    return 24 if months > 1 else 8


def flush_properties(months: int) -> dict[str, str]:
    """The properties of the table that set `flush_at`."""
    return {f"rootline.flush.{what}": str(flush_at(months)) for what in ("data-files", "vectors")}


@dataclass
class Story:
    """The demo on one table. `files`: a folder for all files that are not part of the lake."""

    spark: SparkSession
    lake: Lake
    served: ServedLake
    table: TableHandle
    files: Path
    flights: pd.DataFrame
    flush_at: int
    report: SparkReport
    version_streamed: int = 0

    @property
    def _source(self) -> Path:
        return self.files / "source"

    def stream(self) -> None:
        """Stream each month as a micro-batch: one file of the source, one intent, one commit."""
        definition = self.table.definition()
        stream = (
            self.spark.readStream.schema(spark_schema_of(definition.schema))
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self._source))
        )
        query = (
            stream.writeStream.format("rootline")
            .options(**self.served.options())
            .option("checkpointLocation", str(self.files / "checkpoint"))
            .trigger(availableNow=True)
            .start(self.table.name)
        )
        try:
            self._follow(query)
        finally:
            query.stop()
        self.version_streamed = self.table.head().version

    def _follow(self, query: StreamingQuery) -> None:
        ended = False
        while not ended:
            ended = bool(query.awaitTermination(1))
            for progress in query.recentProgress[self.report.batches :]:
                if not progress["numInputRows"]:
                    continue
                self.report.batches += 1
                self.report.rows_streamed += progress["numInputRows"]
                took_ms = progress["durationMs"]["triggerExecution"]
                self.report.batches_ms.append(took_ms)
                say(
                    f"  micro-batch {progress['batchId']:>2}  {progress['numInputRows']:>7,} rows  "
                    f"{took_ms / 1000:5.1f} s  the table is at version {self.table.head().version}"
                )

    def change(self) -> None:
        """Delete the cancelled flights by vectors, then replace one carrier's flights with corrected ones."""
        self.report.rows_deleted = delete_cancelled(self.table, self.flights)
        say(f"  deleted the flights where {CANCELLED}: {self.report.rows_deleted:,} rows, no file rewritten")
        self.report.rows_corrected = correct_carrier(self.table, self.flights)
        say(f"  replaced the flights where carrier = '{CARRIER}': {self.report.rows_corrected:,} rows")

    def await_flush(self) -> None:
        """Wait until the worker has flushed the due rows.

        Raises:
            OutcomeUnknown: `verdict-timeout`, there was no flush in time.
        """
        deadline_s = time.monotonic() + _FLUSH_PATIENCE_S
        while any(group.files >= self.flush_at for group in self.table.tree().outline().groups):
            if time.monotonic() > deadline_s:
                raise OutcomeUnknown(
                    "verdict-timeout",
                    f"{self.table.name}: no flush within {_FLUSH_PATIENCE_S:.0f} s: look at the worker's log",
                )
            time.sleep(0.1)
        head = self.table.head().version
        trees = [self.table.tree(version=version).outline() for version in range(head + 1)]
        self.report.flushes = [
            Flush(before, after) for before, after in pairwise(trees) if _leaves(after) - _leaves(before)
        ]
        self.report.commits = head
        for flush in self.report.flushes:
            say(f"  version {flush.after.version} moved entries out of the root")

    def count_objects(self) -> None:
        """Count the objects under `metadata/` that commits other than flushes wrote: one each, their root."""
        report, metadata = self.report, f"{table_prefix(self.table.name)}metadata/"
        report.small_commits = report.commits - len(report.flushes)
        others = sum(objects_below(self.lake, f"{metadata}{folder}/") for folder in ("definitions", "leaves"))
        roots_of_others = len(report.flushes) + 1  # the first root: the creation
        of_small_commits = objects_below(self.lake, metadata) - others - roots_of_others
        report.objects_per_small_commit = of_small_commits / report.small_commits
        if self.served.coordinators:
            report.commit = quantiles_at(self.served.coordinators, "rootline_commit_seconds")
            report.visible = quantiles_at(self.served.coordinators, "rootline_intent_visible_seconds")
        report.agreement.hold("metadata objects of a small commit", 1.0, report.objects_per_small_commit)
        report.agreement.hold("whether the worker flushed", True, bool(report.flushes))

    def read_with_spark(self) -> None:
        """Read all rows, a selective query, and the table as it was before the delete."""
        agreement, expected = self.report.agreement, expected_rows(self.flights)
        read = in_utc(self.load(self.table.name).toArrow())
        self.report.rows_expected, self.report.rows_by_spark = len(expected), len(read)
        self.report.carriers, self.report.digest = len(rows_by_carrier(expected)), rows_digest(expected)
        agreement.hold_rows("Spark", expected, read)
        counted = self.load(self.table.name, columns="carrier").groupBy("carrier").count().collect()
        agreement.hold("Spark's count of each carrier", rows_by_carrier(expected), {row[0]: row[1] for row in counted})
        late = self.load(self.table.name, columns="carrier", where=LATE).count()
        agreement.hold(f"Spark's rows where {LATE}", late_rows(expected), late)
        before = self.load(self.table.name, columns="carrier", versionAsOf=self.version_streamed).count()
        agreement.hold("Spark's rows before the delete", len(self.flights), before)
        say(f"  Spark read {len(read):,} rows, {late:,} of them where {LATE}")

    def read_with_commands(self) -> None:
        """Read the same rows with `rootline scan`. Also check the whole chain with `rootline check`."""
        agreement, expected = self.report.agreement, expected_rows(self.flights)
        rows = self.files / "scan.csv"
        done = command_line("scan", self.table.name, *self.served.words(), output=rows)
        agreement.hold("exit code of rootline scan", (0, ""), (done.returncode, done.stderr))
        read = _read_csv(rows, as_arrow(self.flights).schema)
        self.report.rows_by_command = len(read)
        agreement.hold_rows("rootline scan", expected, read)
        late = command_line("scan", self.table.name, *self.served.words(), "--where", LATE, "--count", "--json")
        agreement.hold(
            f"rootline scan --where {LATE}", late_rows(expected), json.loads(late.stdout or "{}").get("rows")
        )
        say(f"  rootline scan read {len(read):,} rows")
        checked = command_line("check", self.table.name, *self.served.words())
        sound = checked.stdout.startswith(f"{self.table.name}: no findings in ")
        agreement.hold("rootline check finds nothing", (0, True), (checked.returncode, sound))
        say(f"  rootline check says: {checked.stdout.strip()}")

    def draw(self) -> None:
        """Draw the tree before the last flush, and now."""
        views = {"tree.svg": self.table.tree()}
        if self.report.flushes:
            views["tree-before-flush.svg"] = self.table.tree(version=self.report.flushes[-1].before.version)
        for name, view in views.items():
            path = self.files / name
            path.write_text(view.svg(), encoding="utf-8")
            self.report.pictures.append(str(Path(self.report.files) / name))
        self.report.tree = views["tree.svg"].text()

    def load(self, table: str, **options: Any) -> DataFrame:
        """A table of the lake in Spark. `options`: those of a read."""
        return self.spark.read.format("rootline").options(**self.served.options()).options(**options).load(table)


def write_source(flights: pd.DataFrame, files: Path) -> None:
    """Write one Parquet file for each month. The files' times are in the order of the months."""
    source = files / "source"
    source.mkdir(parents=True)
    began_s = int(time.time()) - 3600
    for month, rows in flights.groupby("month"):
        path = source / f"month-{int(month):02}.parquet"
        pq.write_table(as_arrow(rows), path)
        os.utime(path, (began_s + int(month), began_s + int(month)))


def in_utc(rows: pa.Table) -> pd.DataFrame:
    """`rows` with their times in UTC, as the source has them."""
    read = rows.to_pandas()
    return read.assign(time_hour=read.time_hour.dt.tz_convert("UTC"))


def _leaves(tree: TreeOutline) -> set[str]:
    return {leaf.location for leaf in tree.leaves}


def _read_csv(path: Path, schema: pa.Schema) -> pd.DataFrame:
    types = {column.name: column.type for column in schema}
    convert = pa_csv.ConvertOptions(
        column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    return pa_csv.read_csv(path, convert_options=convert).to_pandas()
