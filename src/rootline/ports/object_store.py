"""Objects in a bucket (or a folder that behaves like one), under one warehouse: whole, in parts, or as files.

Owns: the port, the optional ports beside it (`ObjectParts`, `ObjectsUpTo`, `ObjectFiles`, `ObjectUploads`) and the
values they exchange. Does not own: the meaning of an answer for a commit (`put_rules`), deletion (`object_remover`).
Invariants: Keys are relative to the warehouse. Only reads accept absolute keys too (`s3://other/key`, `file:///p`,
`/p`), which are not decoded. An object never changes once written. `put_if_absent` has exactly one winner for a key.
Every wait has a deadline. If a store lacks an optional port, callers read whole objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, runtime_checkable

from rootline.schemas.identifiers import ObjectKey


class PutStatus(Enum):
    """The answer to a conditional PUT. CREATED and STALE are conclusive. After the others, read the object back."""

    CREATED = "created"
    EXISTS = "exists"  # 412 or 409: perhaps from our own earlier attempt
    NO_ANSWER = "no_answer"  # timeout, dropped connection, 5xx: the object may be stored or not
    STALE = "stale"  # nothing was written: `after` is not the first key of its folder any more


@dataclass(frozen=True, slots=True)
class Predecessor:
    """The key that must still sort first in the folder when the object is created. `None`: the folder must be empty.

    A store without dates checks this under a lock, which deletion takes too (protocol page, "Finding and confirming the
    head"). A store with dates ignores it, because the date of its reply has the same purpose.
    """

    key: ObjectKey | None


@dataclass(frozen=True, slots=True)
class PutReply:
    """The reply to a PUT. `store_ms`: the store's own date of the answer, milliseconds since the epoch, or `None`."""

    answer: PutStatus
    store_ms: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object that was read.

    `last_modified_ms`: the date of the object. `store_ms`: the date of the answer. Both are from the store's clock, in
    milliseconds since the epoch.
    """

    key: ObjectKey
    body: bytes
    last_modified_ms: int | None
    store_ms: int | None


@dataclass(frozen=True, slots=True)
class Listing:
    """Keys in ascending order. `store_ms` is the store's own date of this answer."""

    keys: Sequence[ObjectKey]
    store_ms: int | None


class ObjectStore(Protocol):
    """The store of one warehouse.

    Every method raises `Unavailable` (`store-unavailable`) if the store does not answer.
    """

    async def get(self, key: ObjectKey) -> StoredObject | None:
        """Read the whole object. `None`: it does not exist, or a pipe, a device or a folder has its name.

        An absolute key is an adopted table's file outside the warehouse. A folder store reads `file:` locations and
        paths. An S3 store reads from every bucket that its settings reach. The key is not percent-decoded.

        Raises:
            Invalid: `location-invalid`, or `file-unreadable`, an absolute key with a scheme that this store does
                not read, or outside what `ROOTLINE_ABSOLUTE_READS` allows.
        """
        ...

    async def put_if_absent(self, key: ObjectKey, body: bytes, *, after: Predecessor | None = None) -> PutReply:
        """Create `key` with `body` unless it exists. The object is durable when the reply is CREATED.

        Cancellation leaves the outcome unknown, as NO_ANSWER does.
        """
        ...

    async def list(self, prefix: str, *, limit: int | None = None) -> Listing:
        """The keys under `prefix` (which ends in `/`), ascending, at most the first `limit` of them."""
        ...

    async def stored_ms(self, key: ObjectKey) -> int | None:
        """The date of an object by the store's own clock, milliseconds since the epoch.

        `None`: it does not exist, or access is denied. The key is never absolute.
        """
        ...

    async def folders(self, prefix: str) -> Sequence[str]:
        """The folders with keys, one level below `prefix` (empty, or ends in `/`), each ending in `/`.

        Ascending and complete, and valid as arguments of `list`. A store with real folders may include empty ones.
        """
        ...

    async def close(self) -> None:
        """Close the connections. The store must not be used afterwards."""
        ...


@runtime_checkable
class ObjectParts(Protocol):
    """A store that reads parts of objects. Both methods raise the errors of `ObjectStore.get`."""

    async def length_of(self, key: ObjectKey) -> int | None:
        """The number of bytes of an object, or `None` if it does not exist."""
        ...

    async def part_of(self, key: ObjectKey, start: int, length: int) -> bytes | None:
        """Read `length` bytes (at least 1) from `start` on, fewer at the object's end. `None`: it does not exist."""
        ...


@dataclass(frozen=True, slots=True)
class LongObject:
    """An object that was not read, because it is larger than the reader accepts. `length`: its size in bytes."""

    length: int


@runtime_checkable
class ObjectsUpTo(Protocol):
    """A store that can read an object only if it is not larger than a limit."""

    async def get_up_to(self, key: ObjectKey, bytes_max: int) -> StoredObject | LongObject | None:
        """Read the object, or only its length if that is above `bytes_max`. Costs as much as `ObjectStore.get`."""
        ...


@runtime_checkable
class ObjectFiles(Protocol):
    """A store whose objects are files of this machine. Methods raise the errors of `ObjectStore.get`."""

    async def path_of(self, key: ObjectKey) -> str | None:
        """The path of the object's regular file, for reading only. `None`: it does not exist."""
        ...

    def place_of(self, key: ObjectKey) -> str:
        """The path for the object's file, which another program may be about to write."""
        ...

    async def make_durable(self, key: ObjectKey) -> None:
        """Make a file that another program wrote durable: its bytes, and the names that lead to it.

        Raises:
            Invalid: `file-missing`.
            Unavailable: `store-unavailable`.
        """
        ...


@dataclass(frozen=True, slots=True)
class UploadedPart:
    """A stored part of an upload. `checksums`: name (`CRC32C`) and value (base64) of each that was sent with the part.

    A store refuses to complete an upload that was begun with an algorithm, unless it gets them back.
    """

    etag: str
    checksums: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PendingUpload:
    """An upload in parts, all of which are stored. The object does not exist until the upload is completed.

    `parts`: in their order. `length`: of the object, in bytes.
    """

    key: ObjectKey
    upload_id: str
    parts: tuple[UploadedPart, ...]
    length: int


@dataclass(frozen=True, slots=True)
class CopiedBytes:
    """`length` bytes of an object from `start` on, which the store copies itself."""

    source: ObjectKey
    start: int
    length: int


@runtime_checkable
class ObjectUploads(Protocol):
    """A store in a bucket, to which objects are uploaded in parts, also by other programs."""

    def url_of(self, key: str) -> str:
        """The URL of an object, or of a folder: `s3://bucket/prefix/key`. It is not percent-encoded."""
        ...

    async def begin_upload(self, key: ObjectKey) -> str:
        """Begin an upload. Returns its id. Raises `Unavailable`."""
        ...

    async def put_part(self, key: ObjectKey, upload_id: str, number: int, part: bytes | CopiedBytes) -> UploadedPart:
        """Store a part of an upload. Only the last part may have less than 5 MiB.

        Raises:
            Unavailable: `store-unavailable`, also of a store that copies no bytes, or `store-denied`.
        """
        ...

    async def complete_upload(self, upload: PendingUpload) -> None:
        """Complete an upload, so that the object exists. Nothing happens if it exists already.

        Raises:
            Unavailable: `store-unavailable`, `store-denied`. A repeated call is safe.
        """
        ...
