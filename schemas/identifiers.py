"""The names of things: a type for each kind of id, and the position of a record on the log.

Owns: `NewType`s of ids, the snapshot id's arithmetic, identity and position of log records. Does not own: fresh ids
(the edge makes them), reading a log (`rootline.ports.intent_log`).
Invariants: a snapshot id follows from (table uuid, version), so a duplicate's commit can be named from its version. A
`LogId` changes when the log is created again (a topic's id, an embedded log's uuid), never otherwise.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from functools import lru_cache
from typing import Final, NamedTuple, NewType

from rootline.schemas.errors import Invalid

NamespaceName = NewType("NamespaceName", str)  # "a", "a.b"
TableName = NewType("TableName", str)  # "namespace.table", split at the last dot
Version = NewType("Version", int)  # of a root, from 0
SnapshotId = NewType("SnapshotId", int)  # 63 bits, positive
SequenceNumber = NewType("SequenceNumber", int)  # per intent, from 1
CommitId = NewType("CommitId", str)  # one per attempted root, 32 hex digits
IntentId = NewType("IntentId", str)
WriterId = NewType("WriterId", str)
Location = NewType("Location", str)  # relative to the table's prefix, or absolute (with a scheme)
ObjectKey = NewType("ObjectKey", str)  # relative to the warehouse

NAMESPACE_BYTES_MAX: Final = 255
"""A namespace is one folder, and longer names no file system takes."""
_NAME_PART: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_\-]{0,127}\Z")
_PARTS: Final = "each part begins with a letter or _ and goes on with letters, digits, _ and -, 128 at most"


@lru_cache(maxsize=4096)
def table_name(text: str) -> TableName:
    """`namespace.table`: parts between dots, the last one the table's own name, the others its namespace.

    A part begins with a letter or `_` and goes on with letters, digits, `_` or `-`, at most 128; a namespace has at
    most 255 bytes, dots included.

    Raises:
        Invalid: `table-name-invalid`.

    """
    namespace, _, name = text.rpartition(".")
    if not _NAME_PART.match(name) or not _is_namespace(namespace):
        raise Invalid(
            "table-name-invalid",
            f"{text[:80]!r} is not a table name of the form namespace.table: {_PARTS}; a namespace may have several "
            f"parts, {NAMESPACE_BYTES_MAX} bytes in all",
        )
    return TableName(text)


@lru_cache(maxsize=4096)
def namespace_name(text: str) -> NamespaceName:
    """`a`, or several levels, `a.b`; as the namespace of a table's name.

    Raises:
        Invalid: `namespace-invalid`.

    """
    if not _is_namespace(text):
        raise Invalid(
            "namespace-invalid",
            f"{text[:80]!r} is not a namespace: give parts with dots between them, {NAMESPACE_BYTES_MAX} bytes in all; "
            f"{_PARTS}",
        )
    return NamespaceName(text)


def namespace_of(table: TableName) -> NamespaceName:
    """The namespace that a table is in."""
    return NamespaceName(table.rpartition(".")[0])


def name_in_namespace(table: TableName) -> str:
    """A table's name without its namespace."""
    return table.rpartition(".")[2]


def snapshot_id_of(table_uuid: uuid.UUID, version: Version) -> SnapshotId:
    """The snapshot id of root `version`: 63 bits of SHA-256 over the table's uuid and the version, never zero."""
    digest = hashlib.sha256(table_uuid.bytes + version.to_bytes(8, "big")).digest()
    return SnapshotId(int.from_bytes(digest[:8], "big") >> 1 or 1)


def _is_namespace(text: str) -> bool:
    return len(text) <= NAMESPACE_BYTES_MAX and all(_NAME_PART.match(part) for part in text.split("."))


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
