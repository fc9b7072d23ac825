"""The Spark that benchmarks run in, and what it costs in CPU time: of the JVM and of the Python workers.

Owns: one local session of two cores, and the CPU seconds of this process and all below it. Does not own: what is
measured.
Invariants: a process that has ended still counts, by what its parent says of its children.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import rootline.spark
from benchmarks.coordinator_process import cpu_of_tree

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
    return cpu_of_tree(os.getpid())
