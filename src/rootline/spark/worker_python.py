"""Which Python Spark's workers run: that of this process, where Rootline and its dependencies are installed."""

from __future__ import annotations

import os
import sys
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def use_this_python(spark: SparkSession) -> None:
    """Let the workers of a local master run this Python, unless the user named one; elsewhere, warn how to name it."""
    try:
        context = spark.sparkContext
    except (AttributeError, NotImplementedError):  # Spark Connect: the server's workers are not ours to set up
        return
    if os.environ.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python"):
        return
    master = context.master or ""
    if master.startswith("local") and not master.startswith("local-cluster"):
        context.pythonExec = sys.executable
        return
    warnings.warn(
        f"Spark's workers will run {context.pythonExec!r}, whatever that is there. It must have Rootline, and the "
        f"version {sys.version_info.major}.{sys.version_info.minor} of this process: set spark.pyspark.python, or "
        "PYSPARK_PYTHON before Spark starts",
        stacklevel=3,
    )
