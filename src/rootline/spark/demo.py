"""`python -m rootline.spark.demo --root DIR`: the whole thing on real flights, in one or two minutes.

Owns: the order of the demo's stages, the terminal, the exit code. Does not own: the steps (`demo_story`), the report
(`demo_report`).
Invariants: 1 when anything that was read differs from what pandas computes; what was started is stopped, Ctrl-C and
SIGTERM included; nothing of the folder is deleted, and each run has a table of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from rootline.client.example_flights import as_arrow, flights_of_new_york, fresh_table
from rootline.connect import connect
from rootline.schemas.errors import RootlineError
from rootline.spark.demo_report import Report
from rootline.spark.demo_service import running_service
from rootline.spark.demo_story import BUCKETS, PROPERTIES, Story, write_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER: Final = "demo-files"
"""Beside the lake's tables: what the demo itself keeps."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m rootline.spark.demo", description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=Path, default=Path("demo-lake"), help="the lake's folder; ./demo-lake")
    parser.add_argument("--months", type=int, default=12, choices=range(1, 13), help="so many months of flights")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupted)
    report = Report()
    try:
        run(given.root.absolute(), given.months, report)
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


def run(root: Path, months: int, report: Report) -> None:
    """Tell the whole story on the lake at `root`.

    Raises:
        RootlineError: a service, a store or the table failed.

    """
    home = root / FOLDER
    home.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as around:
        with stage(report, "flights read"):
            flights = flights_of_new_york(months)
        with stage(report, "services up"):
            service = around.enter_context(running_service(root, home / "rootline-up.log"))
            say(f"  rootline up on {root}, HTTP at {service.url}, log in {home / 'rootline-up.log'}")
            lake = around.enter_context(connect(root, coordinator="elsewhere"))
            schema = as_arrow(flights).schema
            table = fresh_table(lake, schema, buckets=BUCKETS, properties=PROPERTIES)
            files = home / table.name
            write_source(flights, files)
            say(f"  table {table.name}, by month(time_hour) and bucket({BUCKETS}, carrier)")
        with stage(report, "Spark up"):
            spark = around.enter_context(spark_session(home / "spark.log"))
        report.table, report.lake, report.files = table.name, _shown(root), _shown(files)
        story = Story(spark, service, table, root, files, flights, say, report)
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
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
