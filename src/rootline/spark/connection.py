"""Connections of Spark's Python workers to lakes, and the version of a table that one of them read.

Owns: the lifetime of a worker's connection. Does not own: connecting (`rootline.connect`).
Invariants: a connection that hosts no coordinator is cached, so a micro-batch opens no new one to Kafka or S3. A
connection may host a coordinator if the log is embedded and no other process hosts it. Such a connection is closed
after its commit, because a service must not run in a Spark worker.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass

from rootline.client.lake import Lake
from rootline.connect import connect
from rootline.spark.options import SourceOptions


@dataclass(frozen=True, slots=True)
class TableAt:
    """One version of a table, with the definition to read it by. `digest`: of the definition's object."""

    version: int
    definition: bytes
    digest: bytes


def guest_lake(options: SourceOptions) -> Lake:
    """The lake for reading, and for writing data files. One for each process, never closed."""
    return _guest(options.warehouse, options.log)


@contextlib.contextmanager
def committing_lake(options: SourceOptions) -> Iterator[Lake]:
    """The lake for publishing an intent and waiting for its verdict."""
    if options.log is not None:  # a coordinator elsewhere commits, so this connection hosts none
        yield guest_lake(options)
        return
    with connect(options.warehouse) as lake:
        yield lake


@functools.cache
def _guest(warehouse: str, log: str | None) -> Lake:
    return connect(warehouse, log=log, coordinator="elsewhere")
