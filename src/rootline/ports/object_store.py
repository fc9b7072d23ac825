"""Objects in a bucket (or a folder that behaves like one), under one warehouse: whole, in parts, or as files.

Owns: the port, the optional ports beside it (`ObjectParts`, `ObjectsUpTo`, `ObjectFiles`) and the values they
exchange. Does not own: the meaning of an answer for a commit (`put_rules`), deletion (`object_remover`).
Invariants: keys are relative to the warehouse. Reads alone also take absolute ones (`s3://other/key`, `file:///p`,
`/p`), which are not decoded. An object never changes once written. `put_if_absent` has exactly one winner for a key.
Every wait has a deadline. A store that lacks an optional port is asked for whole objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, runtime_checkable

from rootline.schemas.identifiers import ObjectKey


class PutStatus(Enum):
    """The answer to a conditional PUT. Only CREATED proves anything; after the others, read the object back."""

    CREATED = "created"
    EXISTS = "exists"  # 412 or 409: perhaps by our own earlier attempt
    NO_ANSWER = "no_answer"  # timeout, dropped connection, 5xx: stored or not
    STALE = "stale"  # nothing was written: `after` is not the newest of its folder any more


@dataclass(frozen=True, slots=True)
class Predecessor:
    """The key that must still sort first in the folder when the object is created; `None`: the folder is empty.

    A store without dates checks this under the lock that deletion takes too (protocol page, "Finding and confirming the
    head"); a store with dates ignores it, and dates its answer.
    """

    key: ObjectKey | None


@dataclass(frozen=True, slots=True)
class PutReply:
    """`store_ms`: the store's own date of the answer, milliseconds since the epoch; `None` if it has none."""

    answer: PutStatus
    store_ms: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """`last_modified_ms` and `store_ms` (the date of this answer): the store's own, milliseconds since the epoch."""

    key: ObjectKey
    body: bytes
    last_modified_ms: int | None
    store_ms: int | None


@dataclass(frozen=True, slots=True)
class Listing:
    """Keys in ascending order; `store_ms` is the date of this answer."""

    keys: Sequence[ObjectKey]
    store_ms: int | None


class ObjectStore(Protocol):
    """One warehouse. Every method raises `Unavailable` (`store-unavailable`) when the store cannot be reached."""

    async def get(self, key: ObjectKey) -> StoredObject | None:
        """The whole object, or `None` when it does not exist, or a pipe, a device or a folder is in its place.

        An absolute key is an adopted table's file outside the warehouse: a folder reads `file:` locations and paths,
        a bucket those of any bucket that its settings reach. The key is not percent-decoded.

        Raises:
            Invalid: `location-invalid`, or `file-unreadable`, an absolute key with a scheme that this store does
                not read, or outside what `ROOTLINE_ABSOLUTE_READS` allows.

        """
        ...

    async def put_if_absent(self, key: ObjectKey, body: bytes, *, after: Predecessor | None = None) -> PutReply:
        """Create `key` with `body` unless it exists. Durable when it answers CREATED.

        Cancellation leaves the outcome unknown, as NO_ANSWER does.
        """
        ...

    async def list(self, prefix: str, *, limit: int | None = None) -> Listing:
        """The keys under `prefix` (which ends in `/`), ascending; the first `limit` of them."""
        ...

    async def stored_ms(self, key: ObjectKey) -> int | None:
        """When an object was stored: the store's own date, milliseconds since the epoch.

        `None`: there is none, or it may not be read. The key is never absolute.
        """
        ...

    async def folders(self, prefix: str) -> Sequence[str]:
        """The prefixes, one level below `prefix` (empty, or ends in `/`) and each ending in `/`, that hold keys.

        Ascending, and complete, so that `list` takes them. A store with real folders may name empty ones.
        """
        ...

    async def close(self) -> None:
        """Give back connections; the store is not used afterwards."""
        ...


@runtime_checkable
class ObjectParts(Protocol):
    """One warehouse. Both methods raise as `ObjectStore.get` does."""

    async def length_of(self, key: ObjectKey) -> int | None:
        """How many bytes are stored, or `None` when there is no such object."""
        ...

    async def part_of(self, key: ObjectKey, start: int, length: int) -> bytes | None:
        """`length` bytes (at least 1) from `start` on, fewer where the object ends; `None` when there is none."""
        ...


@dataclass(frozen=True, slots=True)
class LongObject:
    """An object that was not read, because it has more bytes than the reader takes. `length`: its size in bytes."""

    length: int


@runtime_checkable
class ObjectsUpTo(Protocol):
    """One warehouse."""

    async def get_up_to(self, key: ObjectKey, bytes_max: int) -> StoredObject | LongObject | None:
        """Read the object as `ObjectStore.get` does, at the same cost. Only the length of a longer object is read."""
        ...


@runtime_checkable
class ObjectFiles(Protocol):
    """One warehouse in a folder. Raises as `ObjectStore.get` does."""

    async def path_of(self, key: ObjectKey) -> str | None:
        """The path of the regular file that holds the object, to be read only; `None` when there is no such object."""
        ...

    def place_of(self, key: ObjectKey) -> str:
        """The path that the object has, or would have: of a file that another program is to write."""
        ...

    async def make_durable(self, key: ObjectKey) -> None:
        """Of a file that another program wrote: from now on its bytes and the names that lead to it outlive a crash.

        Raises:
            Invalid: `file-missing`.
            Unavailable: `store-unavailable`.

        """
        ...
