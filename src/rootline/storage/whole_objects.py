"""Parts of objects, of any store: one that cannot read parts is asked for whole objects."""

from __future__ import annotations

from dataclasses import dataclass

from rootline.ports.object_parts import ObjectParts
from rootline.ports.object_store import ObjectStore
from rootline.schemas.identifiers import ObjectKey


def parts_of(store: ObjectStore) -> ObjectParts:
    """The store itself if it reads parts."""
    return store if isinstance(store, ObjectParts) else WholeObjects(store)


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
