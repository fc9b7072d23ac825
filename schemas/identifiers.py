"""The names of things: a type for each kind of number or string that must not be mistaken for another.

Owns: `NewType`s of ids, and the snapshot id's arithmetic. Does not own: fresh ids (the edge makes them).
Invariants: a snapshot id follows from (table uuid, version), so a duplicate's commit can be named from its version.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from functools import lru_cache
from typing import Final, NewType

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
