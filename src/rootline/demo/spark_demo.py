"""`python -m rootline.demo.spark_demo`: the whole thing on real flights, in one or two minutes.

On an embedded lake that it serves itself (`--root DIR`), or on one that services work on already (`--warehouse URL
--log URL`), wherever that is.

Owns: the order of the demo's stages, the terminal, the exit code. Does not own: the steps (`story`), the report
(`report`).
Invariants: 1 when anything that was read differs from what pandas computes; what was started is stopped, Ctrl-C and
SIGTERM included; nothing of the lake is deleted, and each run has a table of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from rootline.connect import connect
from rootline.demo.example_flights import as_arrow, flights_of_new_york, fresh_table
from rootline.demo.report import Report
from rootline.demo.service import ServedLake, running_service
from rootline.demo.story import BUCKETS, Story, flush_at, flush_properties, write_source
from rootline.schemas.errors import RootlineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER: Final = "demo-files"
"""What the demo itself keeps, beside the tables of an embedded lake."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line asks for: `lake` is a folder to be served, or what is served already."""

    lake: Path | ServedLake
    files: Path
    months: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; the exit code."""
    wanted = _wanted(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupted)
    report = Report()
    try:
        run(wanted, report)
    except KeyboardInterrupt:
        say("stopped")
        sys.stdout.flush()
        os._exit(130)  # Spark's own handlers must not turn what is over into another exit code
    except RootlineError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    say("")
    for line in report.lines():
        say(line)
    return 0 if report.agreement.agrees else 1


def run(wanted: Wanted, report: Report) -> None:
    """Tell the whole story.

    Raises:
        RootlineError: a service, a store or the table failed.

    """
    home = wanted.files
    home.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as around:
        with stage(report, "flights read"):
            flights = flights_of_new_york(wanted.months)
        if isinstance(wanted.lake, ServedLake):
            served = wanted.lake
        else:
            with stage(report, "services up"):
                served = _serve(around, wanted.lake, home)
        with stage(report, "table made"):
            lake = around.enter_context(connect(served.warehouse, log=served.log, coordinator="elsewhere"))
            properties = flush_properties(wanted.months)
            table = fresh_table(lake, as_arrow(flights).schema, buckets=BUCKETS, properties=properties)
            files = home / table.name
            write_source(flights, files)
            say(f"  table {table.name}, by month(time_hour) and bucket({BUCKETS}, carrier)")
        with stage(report, "Spark up"):
            spark = around.enter_context(spark_session(home / "spark.log"))
        report.table, report.files, report.lake = table.name, _shown(files), served.warehouse
        if isinstance(wanted.lake, Path):
            report.lake = _shown(wanted.lake)
            report.look = f"rootline history {table.name} --warehouse {report.lake}"
        story = Story(spark, lake, served, table, files, flights, flush_at(wanted.months), say, report)
        for name, step in (
            ("streamed", story.stream),
            ("deleted and corrected", story.change),
            ("flushed", story.await_flush),
            ("objects counted", story.count_objects),
            ("read by Spark", story.read_with_spark),
            ("read by commands", story.read_with_commands),
            ("drawn", story.draw),
        ):
            with stage(report, name):
                step()


def _serve(around: contextlib.ExitStack, root: Path, home: Path) -> ServedLake:
    service = around.enter_context(running_service(root, home / "rootline-up.log"))
    say(f"  rootline up on {root}, HTTP at {service.url}, log in {home / 'rootline-up.log'}")
    return ServedLake(str(root), None, (service.url,))


def _wanted(arguments: Sequence[str] | None) -> Wanted:
    purpose = "The whole thing on real flights, in one or two minutes; everything that is read is held against pandas."
    parser = argparse.ArgumentParser(prog="python -m rootline.demo.spark_demo", description=purpose)
    parser.add_argument("--months", type=int, default=12, choices=range(1, 13), help="so many months of flights")
    parser.add_argument("--root", type=Path, help="an embedded lake's folder, served by the demo itself; ./demo-lake")
    parser.add_argument("--warehouse", metavar="URL", help="instead: a lake that services work on already")
    parser.add_argument("--log", metavar="URL", help="the log of that lake, such as kafka://host:port")
    parser.add_argument(
        "--metrics", metavar="URL", action="append", default=[], help="HTTP of each of its coordinators"
    )
    parser.add_argument(
        "--files", type=Path, help=f"what the demo itself keeps: ./{FOLDER}, or there in a lake's folder"
    )
    given = parser.parse_args(arguments)
    if given.warehouse is None and (given.log is not None or given.metrics):
        parser.error("--log and --metrics belong to a lake that is served already: name it with --warehouse")
    if given.warehouse is not None and given.root is not None:
        parser.error("--root and --warehouse name two lakes: give one of them")
    if given.warehouse is not None:
        served = ServedLake(given.warehouse, given.log, tuple(url.rstrip("/") for url in given.metrics))
        return Wanted(served, (given.files or Path(FOLDER)).absolute(), given.months)
    root = (given.root or Path("demo-lake")).absolute()
    return Wanted(root, (given.files or root / FOLDER).absolute(), given.months)


@contextlib.contextmanager
def stage(report: Report, name: str) -> Iterator[None]:
    """Time one stage, and say when it is done."""
    began_s = time.perf_counter()
    yield
    took_s = time.perf_counter() - began_s
    report.stages.append((name, took_s))
    say(f"{name:<22} {took_s:6.1f} s")


@contextlib.contextmanager
def spark_session(output: Path) -> Iterator[SparkSession]:
    """A local Spark with our data source, until the block ends; what Java says goes to the file `output`."""
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
    """Processes that are started in the block write their stderr to the file."""
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def say(text: str) -> None:
    """One line of progress or report, at once."""
    print(text, flush=True)


def _shown(path: Path) -> str:
    """`path` as a person would type it here."""
    with contextlib.suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # a second one must not interrupt the stopping, which has its deadlines
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
