"""Parts of objects, and objects up to a size, of any store: one that cannot read these is asked for whole objects."""

from __future__ import annotations

from dataclasses import dataclass

from rootline.ports.object_store import LongObject, ObjectParts, ObjectStore, ObjectsUpTo, StoredObject
from rootline.schemas.identifiers import ObjectKey


def parts_of(store: ObjectStore) -> ObjectParts:
    """The store itself if it reads parts."""
    return store if isinstance(store, ObjectParts) else WholeObjects(store)


async def get_up_to(store: ObjectStore, key: ObjectKey, bytes_max: int) -> StoredObject | LongObject | None:
    """As `ObjectsUpTo.get_up_to`. Raises as `ObjectStore.get`."""
    if isinstance(store, ObjectsUpTo):
        return await store.get_up_to(key, bytes_max)
    found = await store.get(key)
    return found if found is None or len(found.body) <= bytes_max else LongObject(len(found.body))


@dataclass(frozen=True, slots=True)
class WholeObjects:
    """Each answer costs a GET of the object."""

    store: ObjectStore

    async def length_of(self, key: ObjectKey) -> int | None:
        """As `ObjectParts.length_of`."""
        found = await self.store.get(key)
        return None if found is None else len(found.body)

    async def part_of(self, key: ObjectKey, start: int, length: int) -> bytes | None:
        """As `ObjectParts.part_of`."""
        found = await self.store.get(key)
        return None if found is None else found.body[start : start + length]
