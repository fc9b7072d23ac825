"""A store that does not honour the precondition of conditional PUTs, like some S3-compatible stores.

Owns: the two lies. Does not own: failures of honest stores (`faulty_object_store`).
Invariants: everything but `put_if_absent` is correct, so that only a probe can tell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import Enum

from rootline.ports.object_store import Listing, Predecessor, PutReply, PutStatus, StoredObject
from rootline.schemas.identifiers import ObjectKey


class Lie(Enum):
    """What the store does with the precondition."""

    IGNORES = "ignores"  # the last writer wins, always (as Garage 2.5)
    RACES = "races"  # checking and writing are two steps (as s3s-fs 0.14)


class LyingObjectStore:
    """A warehouse in memory that lies."""

    def __init__(self, lie: Lie) -> None:
        self._lie = lie
        self._objects: dict[ObjectKey, bytes] = {}

    def __repr__(self) -> str:
        return f"a store that {self._lie.value} the precondition"

    async def get(self, key: ObjectKey) -> StoredObject | None:
        """The whole object, or `None` when there is none."""
        body = self._objects.get(key)
        return None if body is None else StoredObject(key, body, None, None)

    async def put_if_absent(self, key: ObjectKey, body: bytes, *, after: Predecessor | None = None) -> PutReply:
        """Answers CREATED, and overwrites, where an honest store answers EXISTS."""
        if self._lie is Lie.RACES and key in self._objects:
            return PutReply(PutStatus.EXISTS)
        await asyncio.sleep(0)  # others come in between
        self._objects[key] = body
        return PutReply(PutStatus.CREATED)

    async def list(self, prefix: str, *, limit: int | None = None) -> Listing:
        """The keys under `prefix`, ascending; the first `limit` of them."""
        return Listing(sorted(key for key in self._objects if key.startswith(prefix))[:limit], None)

    async def stored_ms(self, key: ObjectKey) -> int | None:
        """0 for everything that there is: this store has no clock."""
        return 0 if key in self._objects else None

    async def folders(self, prefix: str) -> Sequence[str]:
        """The prefixes one level below `prefix`, ascending."""
        rests = (key[len(prefix) :] for key in self._objects if key.startswith(prefix))
        return sorted({f"{prefix}{rest.split('/', 1)[0]}/" for rest in rests if "/" in rest})

    async def close(self) -> None:
        """Keep everything."""
