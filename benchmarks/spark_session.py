"""The Spark that benchmarks run in, and what it costs in CPU time: of the JVM and of the Python workers.

Owns: one local session of two cores, and the CPU seconds of this process and all below it. Does not own: what is
measured.
Invariants: a process that has ended still counts, by what its parent says of its children.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import rootline.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def local_session(**settings: str) -> SparkSession:
    """A local Spark with two cores and the data source; `settings`: more of Spark's, with `__` for a dot."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("rootline benchmarks")
    for setting, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        **{name.replace("__", "."): value for name, value in settings.items()},
    }.items():
        builder = builder.config(setting, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    rootline.spark.register(session)
    return session


def cpu_seconds() -> float:
    """CPU time of this process and of all that it started, so far."""
    tree: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:  # it has ended meanwhile, and its parent counts it
            continue
        tree.setdefault(int(fields[1]), []).append(int(entry.name))
        ticks[int(entry.name)] = sum(map(int, fields[11:15]))
    found, todo = 0, [os.getpid()]
    while todo:
        process = todo.pop()
        found += ticks.get(process, 0)
        todo.extend(tree.get(process, ()))
    return found / os.sysconf("SC_CLK_TCK")
