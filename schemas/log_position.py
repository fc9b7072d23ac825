"""The position of a record on the log, and the record itself before it is decoded.

Owns: identity and position of log records. Does not own: how a log is read (`rootline.ports.intent_log`).
Invariants: a `LogId` changes when the log is created again (a topic's id, an embedded log's uuid), never otherwise.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple, NewType

LogId = NewType("LogId", str)  # "<cluster id>/<topic id>", or "embedded/<uuid>"
Headers = tuple[tuple[str, bytes | None], ...]
"""A record's headers as Kafka has them: in order, a name perhaps twice, a value perhaps null."""


OLDEST_FILE_HEADER: Final = "rootline-oldest-file-ms"
"""The header in which a writer says when the oldest file of its intent was uploaded: the store's date, milliseconds."""
CLOCKS_APART_MS: Final = 60 * 60 * 1000
"""The clocks of store, log and writer may differ by this much: a claim may be so far from the date of the upload."""
MARK_BYTES: Final = 8
CLAIM_UNREADABLE: Final = 2**63 - 1
"""A claim that is no number: later than every append time, so that it is rejected where it counts."""


def oldest_file_header(oldest_file_ms: int | None) -> Headers:
    """The headers that say so; none without a claim."""
    return () if oldest_file_ms is None else ((OLDEST_FILE_HEADER, str(oldest_file_ms).encode()),)


def oldest_file_of(headers: Headers) -> int | None:
    """What a record's headers say of its files; the oldest of several claims, for they may be a resender's too."""
    said = [value or b"" for name, value in headers if name == OLDEST_FILE_HEADER]
    readable = [int(value) for value in said if value.isdigit() and len(value) <= 18]
    if len(readable) < len(said):
        return CLAIM_UNREADABLE
    return min(readable, default=None)


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


def mark_of(value: bytes, appended_ms: int) -> bytes:
    """Eight bytes that tell a record from any other at its offset, if the log was restored and has grown since.

    The append time is part of them, because a writer may publish the same intent again.
    """
    return hashlib.sha256(b"%d," % appended_ms + value).digest()[:MARK_BYTES]


def by_name(headers: Headers) -> dict[str, bytes]:
    """Each header's value; of several with one name the last one's, for null the empty one."""
    return {name: value or b"" for name, value in headers} if headers else {}
