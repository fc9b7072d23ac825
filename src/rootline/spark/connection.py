"""Connections of Spark's Python workers to lakes.

Owns: how long a worker keeps a lake open. Does not own: connecting (`rootline.connect`).
Invariants: what hosts no coordinator keeps its connection, so that a micro-batch opens none to Kafka or S3; what may
host one, because the log is embedded and nobody else does, keeps it not a moment longer than its commit: a worker of
Spark's is no place for a service to live.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

from rootline.client.lake import Lake
from rootline.connect import connect
from rootline.spark.options import SourceOptions


def guest_lake(options: SourceOptions) -> Lake:
    """The lake for reading, and for writing data files; one a process, never closed."""
    return _guest(options.warehouse, options.log)


@contextlib.contextmanager
def committing_lake(options: SourceOptions) -> Iterator[Lake]:
    """The lake for publishing an intent and waiting for its verdict."""
    if options.log is not None:  # somebody else commits, here nobody would
        yield guest_lake(options)
        return
    with connect(options.warehouse) as lake:
        yield lake


@functools.cache
def _guest(warehouse: str, log: str | None) -> Lake:
    return connect(warehouse, log=log, coordinator="elsewhere")
