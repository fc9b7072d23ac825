"""The end of the demo: Spark SQL inserts through the REST catalog into a table that a stream writes meanwhile.

Owns: that table, its stream and the files that arrive for it, the statement, the comparison. Does not own: the Spark
that runs the statement (`SqlEngine`), the first table (`story`).
Invariants: the history of the table proves that micro-batches were committed before and after the INSERT. Every row is
read in two ways and compared with pandas.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, Self

import pyarrow as pa
import pyarrow.parquet as pq

from examples.spark_demo.report import SqlInsert
from examples.spark_demo.story import Story, in_utc
from examples.spark_demo.terminal import say
from rootline.client.table_handle import TableHandle
from rootline.demo.example_flights import CARRIER, as_arrow, expected_rows
from rootline.schemas.errors import OutcomeUnknown
from rootline.schemas.root_header import Operation, RootHeader
from rootline.spark.spark_types import spark_schema_of

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.query import StreamingQuery

CATALOG: Final = "rootline"
"""The name of the catalog in Spark SQL."""
_FILE_ROWS: Final = 50
_FILE_EVERY_S: Final = 0.5
_BATCH_PATIENCE_S: Final = 120.0
_ENGINE: Final = "engine-name"
"""Iceberg's clients name themselves with it in the summary of their snapshot."""


class SqlEngine(Protocol):
    """A Spark with Iceberg's runtime, in its own process. Whatever fails there is a `RuntimeError` here."""

    def rest_catalog(self, name: str, address: str, **options: str) -> None:
        """Add a catalog. `options`: further ones of Iceberg's."""

    def run(self, *statements: str) -> None:
        """Run statements."""

    def rows(self, statement: str) -> pa.Table:
        """The rows of a query."""


OpenSql = Callable[[Path], AbstractContextManager[SqlEngine]]
"""Starts the engine, which keeps its files in the folder, until the block ends."""


class SqlUnavailable(Exception):
    """The software for Spark SQL is not installed. The text is the reason."""


def insert_by_sql(story: Story, open_sql: OpenSql) -> None:
    """Insert the corrected flights of one carrier by SQL while a stream writes the flights of all others.

    Raises:
        OutcomeUnknown: `verdict-timeout`, the stream committed nothing before or after the INSERT.
    """
    source, engine_files = story.files / "live-source", story.files / "spark-sql"
    source.mkdir()
    engine_files.mkdir()
    schema = as_arrow(story.flights).schema
    live = story.lake.create_table(f"{story.table.name}_live", schema=schema, partition_by=["month(time_hour)"])
    others = story.flights[story.flights.carrier != CARRIER]
    statement = (
        f"INSERT INTO {CATALOG}.{live.name} SELECT * FROM {CATALOG}.{story.table.name} WHERE carrier = '{CARRIER}'"
    )
    with _stream(story, live, source) as query, _Arrivals(as_arrow(others), source) as arrivals:
        say(f"  a stream writes {live.name}: a file of {_FILE_ROWS} flights arrives every {_FILE_EVERY_S:g} s")
        try:
            with open_sql(engine_files) as engine:
                inserted = _insert(story, live, engine, statement)
                arrivals.stop()
                query.processAllAvailable()
                streamed = others[: arrivals.rows]
                story.report.sql = _compared(story, live, engine, inserted, streamed)
        except RuntimeError as error:
            reason = f"{str(error).splitlines()[0]} (log in {engine_files})"
            story.report.sql_agreement.hold(statement, "committed", reason)
            arrivals.stop()
            query.processAllAvailable()  # PySpark prints a traceback if a stream is stopped within a micro-batch


def _insert(story: Story, live: TableHandle, engine: SqlEngine, statement: str) -> RootHeader:
    """Run the statement between two commits of the stream. Returns the version of the INSERT."""
    [catalog] = story.served.coordinators
    engine.rest_catalog(CATALOG, catalog, warehouse="own")
    _await_commit(live, 0)
    say(f"  Spark SQL is up with the catalog {catalog}; the stream is at version {live.head().version}")
    say(f"  spark-sql> {statement}")
    began_s = time.perf_counter()
    engine.run(statement)
    took_s = time.perf_counter() - began_s
    after = live.head().version
    _await_commit(live, after)
    [inserted] = [header for header in live.history(limit=after + 2) if _ENGINE in header.snapshot.summary]
    say(
        f"  committed as version {inserted.version}, in {took_s:.1f} s; the stream goes on, and is at version "
        f"{live.head().version}"
    )
    return inserted


def _await_commit(table: TableHandle, version: int) -> None:
    """Wait for a version above this one."""
    deadline_s = time.monotonic() + _BATCH_PATIENCE_S
    while table.head().version <= version:
        if time.monotonic() > deadline_s:
            raise OutcomeUnknown(
                "verdict-timeout", f"{table.name}: no micro-batch within {_BATCH_PATIENCE_S:.0f} s of version {version}"
            )
        time.sleep(0.1)


def _compared(
    story: Story, live: TableHandle, engine: SqlEngine, inserted: RootHeader, streamed: pd.DataFrame
) -> SqlInsert:
    """Compare every row that both Sparks read, and the order of the commits."""
    import pandas as pd

    agreement, changed = story.report.sql_agreement, expected_rows(story.flights)
    expected = pd.concat([streamed, changed[changed.carrier == CARRIER]], ignore_index=True)
    by_spark = in_utc(story.load(live.name).toArrow())
    by_sql = in_utc(engine.rows(f"SELECT * FROM {CATALOG}.{live.name}"))
    agreement.hold_rows("Spark after the INSERT", expected, by_spark)
    agreement.hold_rows("Spark SQL after the INSERT", expected, by_sql)
    batches = [
        header.version
        for header in live.history(limit=live.head().version)
        if header.version and header.snapshot.operation is Operation.APPEND and _ENGINE not in header.snapshot.summary
    ]
    before = sum(version < inserted.version for version in batches)
    later = sum(version > inserted.version for version in batches)
    agreement.hold("whether the stream committed before and after the INSERT", True, before > 0 and later > 0)
    return SqlInsert(
        table=live.name,
        engine=inserted.snapshot.summary.get("engine-version", "of an unknown version"),
        version=inserted.version,
        batches_before=before,
        batches_after=later,
        rows_inserted=len(expected) - len(streamed),
        rows_expected=len(expected),
        rows_by_spark=len(by_spark),
        rows_by_sql=len(by_sql),
    )


@contextlib.contextmanager
def _stream(story: Story, table: TableHandle, source: Path) -> Iterator[StreamingQuery]:
    """Stream the files in `source` into the table until the block ends. Each micro-batch takes what has arrived."""
    stream = story.spark.readStream.schema(spark_schema_of(table.definition().schema)).parquet(str(source))
    query = (
        stream.writeStream.format("rootline")
        .options(**story.served.options())
        .option("checkpointLocation", str(story.files / "live-checkpoint"))
        .start(table.name)
    )
    try:
        yield query
    finally:
        query.stop()


class _Arrivals:
    """Rows that arrive in a folder as files, until `stop`, the end of the block, or the end of the rows."""

    def __init__(self, rows: pa.Table, folder: Path) -> None:
        self._rows = rows
        self._folder = folder
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._arrive)
        self.rows = 0
        """The number of rows that have arrived."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Let nothing more arrive. Repeatable."""
        self._enough.set()
        self._thread.join()

    def _arrive(self) -> None:
        while self.rows < len(self._rows) and not self._enough.wait(_FILE_EVERY_S):
            part = self._rows.slice(self.rows, _FILE_ROWS)
            name = f"{self.rows:06}.parquet"
            unfinished = self._folder / f".{name}"  # Spark ignores files whose names begin with a dot
            pq.write_table(part, unfinished)
            unfinished.rename(self._folder / name)
            self.rows += len(part)
