"""A lake without I/O, put into a memory store; and what is read of it, counted."""

from __future__ import annotations

import asyncio
from collections import Counter

from rootline.adapters.memory import MemoryObjectStore
from rootline.schemas.identifiers import Version
from rootline.schemas.object_keys import key_of, root_key
from rootline.testing.object_stores import Fault, FaultyObjectStore, Operation
from tests.tree.tables import TABLE, Lake


class CountedStore(FaultyObjectStore):
    """Every root and object of `lake`. `requests`: how often each kind of request was made of it."""

    def __init__(self, lake: Lake) -> None:
        self.requests: Counter[Operation] = Counter()
        self.keys: Counter[str] = Counter()
        super().__init__(asyncio.run(_stored(lake)), self._count)

    def _count(self, operation: Operation, key: str) -> Fault | None:
        self.requests[operation] += 1
        self.keys[key] += 1
        return None


async def _stored(lake: Lake) -> MemoryObjectStore:
    store = MemoryObjectStore()
    for location, body in lake.objects.items():
        await store.put_if_absent(key_of(TABLE, location), body)
    for version, body in enumerate(lake.bodies):
        await store.put_if_absent(root_key(TABLE, Version(version)), body)
    return store
