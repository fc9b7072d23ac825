"""The types of ids and names, and the position of a record on the log.

Owns: `NewType`s of ids, the snapshot id's arithmetic, identity and position of log records. Does not own: fresh ids
(the caller makes them), reading a log (`rootline.ports.intent_log`).
Invariants: a snapshot id is computed from the table's UUID and the version, so a verdict on a duplicate can name the
snapshot of the first commit. A `LogId` changes when the log is recreated (a topic's id, an embedded log's uuid), never
otherwise.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple, NewType, TypeAlias

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

PROCESS_WRITER_PREFIX: Final = "process/"
"""The prefix of writer ids that exist for one process only. The ledger drops them after `writer_retention_s`."""

NAMESPACE_BYTES_MAX: Final = 255
"""A namespace is one folder, and file systems do not accept longer names."""
_NAME_PART: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_\-]{0,127}\Z")
_PARTS: Final = "each part begins with a letter or _ and goes on with letters, digits, _ and -, 128 at most"


@lru_cache(maxsize=4096)
def table_name(text: str) -> TableName:
    """Validate `namespace.table`: parts between dots, the last one the table's own name, the others its namespace.

    A part begins with a letter or `_`, followed by letters, digits, `_` or `-`, 128 characters at most. A namespace has
    at most 255 bytes, including dots.

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
    """Validate a namespace of one or more levels, such as `a` or `a.b`, by the rules of `table_name`.

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
    """The namespace of a table."""
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
"""A record's headers as in Kafka: ordered, with possibly repeated names and null values."""


OLDEST_FILE_HEADER: Final = "rootline-oldest-file-ms"
"""The header with the upload time of the oldest file in the intent: the store's date, in milliseconds."""
CLOCKS_APART_MS: Final = 60 * 60 * 1000
"""The largest expected difference between the clocks of store, log and writer."""
MARK_BYTES: Final = 8
CLAIM_UNREADABLE: Final = 2**63 - 1
"""The value of a header that is not a number. It is later than every append time, so checks of age reject it."""


def oldest_file_header(oldest_file_ms: int | None) -> Headers:
    """The header with this upload time, or no header for `None`."""
    return () if oldest_file_ms is None else ((OLDEST_FILE_HEADER, str(oldest_file_ms).encode()),)


def oldest_file_of(headers: Headers) -> int | None:
    """The upload time in a record's headers, or `None`. Of several, the oldest is used, because software that resends a
    record may add its own header.
    """
    said = [value or b"" for name, value in headers if name == OLDEST_FILE_HEADER]
    readable = [int(value) for value in said if value.isdigit() and len(value) <= 18]
    if len(readable) < len(said):
        return CLAIM_UNREADABLE
    return min(readable, default=None)


class LogPosition(NamedTuple):
    """The position of a record: log, partition, offset."""

    log: LogId
    partition: int
    offset: int


Acknowledged: TypeAlias = Mapping[tuple[LogId, int], int]
"""(log, partition) → the offset below which every record of the table has a verdict acknowledged by the log."""
NOTHING_ACKNOWLEDGED: Final[Acknowledged] = {}


class LogRecord(NamedTuple):
    """A record of the log. `appended_ms` is the log's own append time, milliseconds since the epoch.

    `not_read`: the reason why the record could not be read. Key, value and headers are empty then. The class is a
    tuple, because one is made for every record, in half the time of a data class.
    """

    position: LogPosition
    key: bytes | None
    value: bytes
    appended_ms: int
    headers: Headers = ()
    not_read: str = ""


def mark_of(value: bytes, appended_ms: int) -> bytes:
    """Eight bytes that identify a record at its offset. They show whether the log was restored from a backup, so that
    the offset now has another record.

    They include the append time, because a writer may publish the same intent twice.
    """
    return hashlib.sha256(b"%d," % appended_ms + value).digest()[:MARK_BYTES]


def by_name(headers: Headers) -> dict[str, bytes]:
    """Header name → value. Of repeated names the last one counts, and null becomes empty."""
    return {name: value or b"" for name, value in headers} if headers else {}
