"""Parts of objects, and objects up to a size, for the reader that need not have all of a large one.

Owns: two ports beside `ObjectStore`. Does not own: whole objects (`object_store`), what is read in parts.
Invariants: keys are those of `ObjectStore.get`, absolute ones too; nothing is changed; a store that has no such reads
is asked for whole objects (`rootline.storage.whole_objects`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from rootline.ports.object_store import StoredObject
from rootline.schemas.identifiers import ObjectKey


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
