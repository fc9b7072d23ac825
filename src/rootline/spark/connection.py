"""Connections of Spark's Python workers to lakes.

Owns: how long a worker keeps a lake open. Does not own: connecting (`rootline.connect`).
Invariants: what reads, or writes data files, hosts no coordinator and keeps its connection; what commits may host one
when nobody else does, but not a moment longer than its commit: a worker of Spark's is no place for a service to live.
"""

from __future__ import annotations

import functools

from rootline.client.lake import Lake
from rootline.connect import connect
from rootline.spark.options import SourceOptions


def guest_lake(options: SourceOptions) -> Lake:
    """The lake for reading, and for writing data files; one a process, never closed."""
    return _guest(options.warehouse, options.log)


def committing_lake(options: SourceOptions) -> Lake:
    """The lake for publishing an intent and waiting for its verdict; close it afterwards."""
    return connect(options.warehouse, log=options.log)


@functools.cache
def _guest(warehouse: str, log: str | None) -> Lake:
    return connect(warehouse, log=log, coordinator="elsewhere")
