"""`python -m examples.spark_demo`: the whole of Rootline on real flights, with Spark, in one or two minutes.

It runs on an embedded lake that it serves itself (`--root DIR`), or on a lake that is already served elsewhere
(`--warehouse URL --log URL`). `make demo` installs Spark 4.1 with Iceberg's runtime as well, which inserts by SQL at
the end of a demo on an embedded lake.

Owns: the order of the demo's stages, its arguments, the exit code. Does not own: the steps (`story`, `sql_insert`), the
report (`report`), installing a Spark.
Invariants: the exit code is 1 when any row differs from those that pandas computes. All processes that were started
are stopped, also after Ctrl-C and SIGTERM. Nothing in the lake is deleted, and each run creates new tables.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from examples.spark_demo.report import SparkReport
from examples.spark_demo.service import ServedLake, running_service
from examples.spark_demo.sql_insert import OpenSql, SqlUnavailable, insert_by_sql
from examples.spark_demo.story import BUCKETS, Story, flush_at, flush_properties, write_source
from examples.spark_demo.terminal import interrupt_on, say, stage
from rootline.connect import connect
from rootline.demo.example_flights import as_arrow, flights_of_new_york, fresh_table
from rootline.schemas.errors import RootlineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER: Final = "demo-files"
"""The folder of the demo's own files, beside the tables of an embedded lake."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The arguments. `lake`: a folder that the demo serves itself, or a lake that is already served."""

    lake: Path | ServedLake
    files: Path
    months: int


InstallSql = Callable[[], OpenSql]
"""Installs Spark SQL with Iceberg's runtime if it is not there yet. Raises `SqlUnavailable` if it cannot be."""


def main(arguments: Sequence[str] | None = None, install_sql: InstallSql | None = None) -> int:
    """Run the demo, with an INSERT by Spark SQL if `install_sql` is given. Returns the exit code."""
    wanted = _wanted(arguments)
    interrupt_on((signal.SIGINT, signal.SIGTERM))
    report = SparkReport()
    try:
        run(wanted, report, install_sql)
    except KeyboardInterrupt:
        say("stopped")
        sys.stdout.flush()
        os._exit(130)  # so that Spark's own handlers do not change the exit code
    except RootlineError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    say("")
    for line in report.lines():
        say(line)
    return 0 if report.agrees else 1


def run(wanted: Wanted, report: SparkReport, install_sql: InstallSql | None = None) -> None:
    """Run all stages. There is no INSERT by SQL if its software cannot be installed, or on a lake that is served
    already.

    Raises:
        RootlineError: a service, a store or the table failed.

    """
    home = wanted.files
    home.mkdir(parents=True, exist_ok=True)
    open_sql = None
    if install_sql is not None and isinstance(wanted.lake, Path):
        with stage("Spark 4.1 looked up", report.stages):
            open_sql = _installed(install_sql, report)
    with contextlib.ExitStack() as around:
        with stage("flights read", report.stages):
            flights = flights_of_new_york(wanted.months)
        if isinstance(wanted.lake, ServedLake):
            served = wanted.lake
        else:
            with stage("services up", report.stages):
                served = _serve(around, wanted.lake, home)
        with stage("table made", report.stages):
            lake = around.enter_context(connect(served.warehouse, log=served.log, coordinator="elsewhere"))
            properties = flush_properties(wanted.months)
            table = fresh_table(lake, as_arrow(flights).schema, buckets=BUCKETS, properties=properties)
            files = home / table.name
            write_source(flights, files)
            say(f"  table {table.name}, by month(time_hour) and bucket({BUCKETS}, carrier)")
        with stage("Spark up", report.stages):
            spark = around.enter_context(spark_session(home / "spark.log"))
        report.table, report.files, report.lake = table.name, _shown(files), served.warehouse
        if isinstance(wanted.lake, Path):
            report.lake = _shown(wanted.lake)
            report.look = f"rootline history {table.name} --warehouse {report.lake}"
        story = Story(spark, lake, served, table, files, flights, flush_at(wanted.months), report)
        for name, step in (
            ("streamed", story.stream),
            ("deleted and corrected", story.change),
            ("flushed", story.await_flush),
            ("objects counted", story.count_objects),
            ("read by Spark", story.read_with_spark),
            ("read by commands", story.read_with_commands),
            ("drawn", story.draw),
        ):
            with stage(name, report.stages):
                step()
        if open_sql is not None:
            with stage("inserted by SQL", report.stages):
                insert_by_sql(story, open_sql)


def _installed(install_sql: InstallSql, report: SparkReport) -> OpenSql | None:
    try:
        return install_sql()
    except SqlUnavailable as error:
        report.sql_missing = str(error)
        say(f"  the demo runs without its last step, an INSERT by Spark SQL: {error}")
        return None


def _serve(around: contextlib.ExitStack, root: Path, home: Path) -> ServedLake:
    service = around.enter_context(running_service(root, home / "rootline-up.log"))
    say(f"  rootline up on {root}, HTTP at {service.url}, log in {home / 'rootline-up.log'}")
    return ServedLake(str(root), None, (service.url,))


def _wanted(arguments: Sequence[str] | None) -> Wanted:
    purpose = (
        "Rootline on real flights with Spark, in one or two minutes; everything that is read is compared with pandas."
    )
    parser = argparse.ArgumentParser(prog="python -m examples.spark_demo", description=purpose)
    parser.add_argument("--months", type=int, default=12, choices=range(1, 13), help="how many months of flights")
    parser.add_argument(
        "--root", type=Path, help="folder of an embedded lake, which the demo serves itself; default: ./demo-lake"
    )
    parser.add_argument("--warehouse", metavar="URL", help="instead of --root: a lake that is served already")
    parser.add_argument("--log", metavar="URL", help="the log of that lake, such as kafka://host:port")
    parser.add_argument(
        "--metrics", metavar="URL", action="append", default=[], help="HTTP of each of its coordinators"
    )
    parser.add_argument(
        "--files",
        type=Path,
        help=f"folder of the demo's own files; default: {FOLDER} in the lake's folder, or ./{FOLDER}",
    )
    given = parser.parse_args(arguments)
    if given.warehouse is None and (given.log is not None or given.metrics):
        parser.error("--log and --metrics are for a lake that is served already: name it with --warehouse")
    if given.warehouse is not None and given.root is not None:
        parser.error("--root and --warehouse name two lakes: give one of them")
    if given.warehouse is not None:
        served = ServedLake(given.warehouse, given.log, tuple(url.rstrip("/") for url in given.metrics))
        return Wanted(served, (given.files or Path(FOLDER)).absolute(), given.months)
    root = (given.root or Path("demo-lake")).absolute()
    return Wanted(root, (given.files or root / FOLDER).absolute(), given.months)


@contextlib.contextmanager
def spark_session(output: Path) -> Iterator[SparkSession]:
    """A local Spark with the Rootline data source, until the block ends. Java's output is appended to the file
    `output`.
    """
    from pyspark.sql import SparkSession

    from rootline.spark.data_source import register

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[*]").appName("rootline demo")
    for setting, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
    }.items():
        builder = builder.config(setting, value)
    with _stderr_to(output):
        spark = builder.getOrCreate()
    try:
        register(spark)
        yield spark
    finally:
        spark.stop()


@contextlib.contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Redirect the stderr of processes that start in the block to the file."""
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _shown(path: Path) -> str:
    """`path`, relative to the current folder if it is below it."""
    with contextlib.suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)


if __name__ == "__main__":
    sys.exit(main())
