"""The position of a record on the log, and the record itself before it is decoded.

Owns: identity and position of log records. Does not own: how a log is read (`rootline.ports.intent_log`).
Invariants: a `LogId` changes when the log is created again (a topic's id, an embedded log's uuid), never otherwise.
"""

from __future__ import annotations

from typing import NamedTuple, NewType

LogId = NewType("LogId", str)  # "<cluster id>/<topic id>", or "embedded/<uuid>"
Headers = tuple[tuple[str, bytes | None], ...]
"""A record's headers as Kafka has them: in order, a name perhaps twice, a value perhaps null."""


class LogPosition(NamedTuple):
    """One record's place: log, partition, offset."""

    log: LogId
    partition: int
    offset: int


class LogRecord(NamedTuple):
    """A record as the log keeps it. `appended_ms` is the log's own append time, milliseconds since the epoch.

    `not_read`: why only its position is known, if that is so; key, value and headers are empty then.
    A tuple: it is made for every record that is read, in half the time of a data class.
    """

    position: LogPosition
    key: bytes | None
    value: bytes
    appended_ms: int
    headers: Headers = ()
    not_read: str = ""


def by_name(headers: Headers) -> dict[str, bytes]:
    """Each header's value; of several with one name the last one's, for null the empty one."""
    return {name: value or b"" for name, value in headers} if headers else {}
