"""Where a record stands on the log, and the record itself before it is decoded.

Owns: identity and position of log records. Does not own: how a log is read (`rootline.ports.intent_log`).
Invariants: a `LogId` changes when the log is made anew (a topic's id, an embedded log's uuid), never otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, NewType

LogId = NewType("LogId", str)  # "<cluster id>/<topic id>", or "embedded/<uuid>"


class LogPosition(NamedTuple):
    """One record's place: log, partition, offset."""

    log: LogId
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A record as the log keeps it. `appended_ms` is the log's own append time, milliseconds since the epoch."""

    position: LogPosition
    key: bytes | None
    value: bytes
    appended_ms: int
    headers: Mapping[str, bytes] = field(default_factory=dict)
