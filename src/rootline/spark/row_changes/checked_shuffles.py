"""Spark's own check that rows which it computes again are those that it computed before, for as long as a change runs.

Owns: the session's settings of that check. Does not own: the check, which fails the job; what such a change is told.
Invariants: a session is left as it was found, also by changes that run side by side. From 4.2 on Spark checks unasked.

Theory. An executor that dies takes rows along that it had computed for others. Spark computes them again, while rows of
tasks that ended stay as they are. Where the source does not give the same rows twice, some would be there twice and
others not at all.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final = (
    "spark.sql.shuffle.orderIndependentChecksum.enabled",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch",
)
_lock: Final = threading.Lock()
_running: Final[WeakKeyDictionary[SparkSession, int]] = WeakKeyDictionary()
_before: Final[WeakKeyDictionary[SparkSession, dict[str, str]]] = WeakKeyDictionary()


@contextlib.contextmanager
def checked_shuffles(spark: SparkSession) -> Iterator[None]:
    """Let Spark fail a job whose rows came out differently when it computed some of them again."""
    with _lock:
        running = _running.get(spark, 0)
        if not running:
            given = {name: spark.conf.get(name) or "" for name in SETTINGS}
            _before[spark] = {name: value for name, value in given.items() if value != "true"}
            for name in _before[spark]:
                spark.conf.set(name, "true")
        _running[spark] = running + 1
    try:
        yield
    finally:
        with _lock:
            _running[spark] -= 1
            if not _running[spark]:
                for name, value in _before.pop(spark).items():
                    spark.conf.set(name, value)
