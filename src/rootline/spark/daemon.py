"""Spark's daemon for Python workers, with the library imported: `spark.python.daemon.module=rootline.spark.daemon`.

Spark forks a new worker whenever a query ends before its worker did, as with `show()` and `limit`, and each new one
imports the library for most of a second. One that is forked from here need not.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
from typing import Final

_IMPORTED: Final = ("pandas", "rootline.spark.data_source", "rootline.spark.batch_reader")


def main() -> None:
    """Import, then do what Spark's own daemon does. Spark's only argument is the module of the workers."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the threads of its pool would not be in a forked worker
    for module in (*sys.argv[1:2], *_IMPORTED):
        with contextlib.suppress(Exception):  # a worker that needs it says what is wrong; others need not have it
            importlib.import_module(module)
    daemon = importlib.import_module("pyspark.daemon")
    gc.freeze()  # a worker collects after each task: not through all that was imported
    daemon.manager()


if __name__ == "__main__":
    main()
