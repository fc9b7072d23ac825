"""One connection a process to each lake, whatever Spark calls in it.

Owns: the cache. Does not own: connecting (`rootline.connect`).
Invariants: readers and executors never host a coordinator; the driver's commit may, when nobody else does.
"""

from __future__ import annotations

import functools

from rootline.client.lake import Lake
from rootline.connect import connect
from rootline.spark.options import SourceOptions


def guest_lake(options: SourceOptions) -> Lake:
    """The lake for reading, and for writing data files."""
    return _guest(options.warehouse, options.log)


def committing_lake(options: SourceOptions) -> Lake:
    """The lake for publishing an intent and waiting for its verdict."""
    return _host(options.warehouse, options.log)


@functools.cache
def _guest(warehouse: str, log: str | None) -> Lake:
    return connect(warehouse, log=log, coordinator="elsewhere")


@functools.cache
def _host(warehouse: str, log: str | None) -> Lake:
    return connect(warehouse, log=log)
