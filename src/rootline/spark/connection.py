"""Connections of Spark's Python workers to lakes.

Owns: how long a worker keeps a lake open. Does not own: connecting (`rootline.connect`).
Invariants: a connection that hosts no coordinator is kept, so that a micro-batch opens none to Kafka or S3; one that
may host a coordinator, because the log is embedded and no other process hosts it, ends with its commit: a service
must not run in a worker of Spark's.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

from rootline.client.lake import Lake
from rootline.connect import connect
from rootline.spark.options import SourceOptions


def guest_lake(options: SourceOptions) -> Lake:
    """The lake for reading, and for writing data files; one for each process, never closed."""
    return _guest(options.warehouse, options.log)


@contextlib.contextmanager
def committing_lake(options: SourceOptions) -> Iterator[Lake]:
    """The lake for publishing an intent and waiting for its verdict."""
    if options.log is not None:  # a coordinator elsewhere commits; this connection would host none
        yield guest_lake(options)
        return
    with connect(options.warehouse) as lake:
        yield lake


@functools.cache
def _guest(warehouse: str, log: str | None) -> Lake:
    return connect(warehouse, log=log, coordinator="elsewhere")
