"""A daemon for Spark's Python workers that has imported the library, and the choice of Python for these workers.

Spark forks a new worker whenever a query ends before its worker did, as with `show()` and `limit`. Each new worker
imports the library, which takes most of a second. A worker that is forked from this daemon has it already. Spark runs
this module itself: `spark.python.daemon.module=rootline.spark.daemon`. The user's settings win, and nothing is set on
a cluster.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import os
import subprocess
import sys
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

DAEMON: Final = "rootline.spark.daemon"
_SETTING: Final = "spark.python.daemon.module"
_PATIENCE_S: Final = 20.0


def classic_context(spark: SparkSession) -> SparkContext | None:
    """Spark's context, or `None` in a client of Spark Connect, which has no JVM."""
    try:
        return spark.sparkContext
    except (AttributeError, NotImplementedError):
        return None


def use_this_python(spark: SparkSession) -> None:
    """Let the workers of a local master run this Python, unless the user named one. Elsewhere, warn if none is
    named.

    Such workers are forked from a process that has imported the library (docs/spark.md).
    """
    context = classic_context(spark)
    if context is None:  # a client cannot configure the server's workers
        return
    named = os.environ.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python")
    master = context.master or ""
    is_local = master.startswith("local") and not master.startswith("local-cluster")
    if is_local and (not named or named == sys.executable):
        context.pythonExec = sys.executable
        _fork_from_ours(context)
    elif not named:
        warnings.warn(
            f"Spark's workers will run {context.pythonExec!r} of their machines. It must have Rootline, and the "
            f"version {sys.version_info.major}.{sys.version_info.minor} of this process: set spark.pyspark.python, or "
            "PYSPARK_PYTHON before Spark starts",
            stacklevel=3,
        )


def _fork_from_ours(context: Any) -> None:
    """Set our daemon, unless the user set one. Spark reads the setting whenever it needs a worker."""
    with contextlib.suppress(Exception):  # not a public interface of Spark: after any error workers start as before
        settings = context._jsc.sc().conf()  # `getConf` returns a copy
        if not settings.contains(_SETTING) and _is_found_by(sys.executable):
            settings.set(_SETTING, DAEMON)


@functools.cache
def _is_found_by(python: str) -> bool:
    """Whether a new process can import the daemon. Otherwise no worker would start."""
    command = [python, "-c", f"import importlib.util as u, sys; sys.exit(u.find_spec({DAEMON!r}) is None)"]
    try:
        return subprocess.run(command, capture_output=True, timeout=_PATIENCE_S, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


_IMPORTED: Final = (
    "pandas",
    "rootline.spark.data_source",
    "rootline.spark.batch_reader",
    "rootline.storage.rows.scan_executor",
    "rootline.spark.change_stream",
    "rootline.spark.source_writers",
    "rootline.spark.parquet_files",
    "rootline.spark.row_change_tasks",
)
_OF_BUCKETS: Final = "rootline.adapters.s3_object_store"
"""Takes 0.4 s. Imported where the environment shows that the warehouse is in a bucket."""


def imported_first(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The modules that workers need. `environment`: the daemon's variables, which its workers have too."""
    is_in_bucket = environment.get("ROOTLINE_WAREHOUSE", "").startswith(("s3://", "s3a://"))
    if is_in_bucket or any(name.startswith("ROOTLINE_S3__") for name in environment):
        return (*_IMPORTED, _OF_BUCKETS)
    return _IMPORTED


def main() -> None:
    """Import the library, then run Spark's own daemon. Spark's only argument is the module of the workers."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a forked worker would not have the threads of its pool
    for module in (*sys.argv[1:2], *imported_first(os.environ)):
        with contextlib.suppress(Exception):  # a worker that needs the module reports the error, others do not need it
            importlib.import_module(module)
    daemon = importlib.import_module("pyspark.daemon")
    gc.freeze()  # a worker runs the collector after each task, which then skips the imported objects
    daemon.manager()


if __name__ == "__main__":
    main()
