"""Objects in a dictionary: the store of tests, simulations and `memory://`.

Owns: the objects, which end with the process. Does not own: faults (`rootline.testing.faulty_object_store`).
Invariants: passes the contract of every store; with a clock it dates its answers as S3 does and ignores `after`,
without one it checks `after` as a local folder does; objects with absolute keys are made by `place` alone and never
listed.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from rootline.adapters.absolute_keys import FILE_SCHEMES, S3_SCHEMES, AbsoluteKeys
from rootline.adapters.object_key_rules import check_key, check_prefix
from rootline.ports.object_remover import DatedObject
from rootline.ports.object_store import Listing, Predecessor, PutReply, PutStatus, StoredObject
from rootline.schemas.identifiers import ObjectKey
from rootline.schemas.object_keys import is_absolute

_ABSOLUTE: Final = AbsoluteKeys("a store in memory", (*FILE_SCHEMES, *S3_SCHEMES))


class MemoryObjectStore:
    """One warehouse in memory. `clock_ms`: the store's own clock, milliseconds since the epoch; `None`: no dates."""

    def __init__(self, clock_ms: Callable[[], int] | None = None) -> None:
        self._clock_ms = clock_ms
        self._objects: dict[ObjectKey, tuple[bytes, int | None]] = {}
        self._keys: list[ObjectKey] = []

    async def get(self, key: ObjectKey) -> StoredObject | None:
        """The whole object, or `None` when there is none; an absolute key exactly as it was placed."""
        found = self._found(key)
        return None if found is None else StoredObject(key, found[0], found[1], self._now_ms())

    async def length_of(self, key: ObjectKey) -> int | None:
        """How many bytes are stored, or `None` when there is no such object."""
        found = self._found(key)
        return None if found is None else len(found[0])

    async def part_of(self, key: ObjectKey, start: int, length: int) -> bytes | None:
        """`length` bytes from `start` on, fewer where the object ends."""
        found = self._found(key)
        return None if found is None else found[0][start : start + length]

    async def put_if_absent(self, key: ObjectKey, body: bytes, *, after: Predecessor | None = None) -> PutReply:
        """Create `key` with `body` unless it exists."""
        check_key(key)
        now_ms = self._now_ms()
        if key in self._objects:
            return PutReply(PutStatus.EXISTS, now_ms)
        if after is not None and self._clock_ms is None and self._first_in_folder_of(key) != after.key:
            return PutReply(PutStatus.STALE, now_ms, f"{after.key} is not the first key of its folder")
        self.place(key, body)
        return PutReply(PutStatus.CREATED, now_ms)

    async def list(self, prefix: str, *, limit: int | None = None) -> Listing:
        """The keys under `prefix`, ascending; the first `limit` of them."""
        check_prefix(prefix)
        return Listing(tuple(islice(self._keys_under(prefix), limit)), self._now_ms())

    async def stored_ms(self, key: ObjectKey) -> int | None:
        """When the object was stored, by this store's clock; without one everything is of the epoch."""
        check_key(key)
        found = self._objects.get(key)
        return None if found is None else found[1] or 0

    async def folders(self, prefix: str) -> Sequence[str]:
        """The prefixes one level below `prefix`, each ending in `/`, that hold keys; ascending."""
        check_prefix(prefix)
        rests = (key[len(prefix) :] for key in self._keys_under(prefix))
        return tuple(dict.fromkeys(f"{prefix}{rest[: rest.index('/') + 1]}" for rest in rests if "/" in rest))

    async def close(self) -> None:
        """Keep everything: a test may go on looking."""

    def place(self, key: ObjectKey, body: bytes) -> None:
        """Write or replace an object outside the port: for tests that damage bytes and for stores that lie.

        The key may be absolute; then only `get` finds it.
        """
        if key not in self._objects and not is_absolute(key):
            insort(self._keys, key)
        self._objects[key] = (bytes(body), self._now_ms())

    def discard(self, key: ObjectKey) -> None:
        """Delete an object outside the port, as expiry and operators do."""
        if self._objects.pop(key, None) is not None and not is_absolute(key):
            del self._keys[bisect_left(self._keys, key)]

    def dated(self, prefix: str) -> Sequence[DatedObject]:
        """The objects under `prefix`, ascending by key; without a clock all of them are dated 0."""
        held = ((key, self._objects[key]) for key in self._keys_under(prefix))
        return [DatedObject(key, len(body), date_ms or 0) for key, (body, date_ms) in held]

    def _found(self, key: ObjectKey) -> tuple[bytes, int | None] | None:
        if is_absolute(key):
            _ABSOLUTE.place_of(key)
        else:
            check_key(key)
        return self._objects.get(key)

    def _now_ms(self) -> int | None:
        return None if self._clock_ms is None else self._clock_ms()

    def _keys_under(self, prefix: str) -> Sequence[ObjectKey]:
        # a slice by bisection: the character after the last one that a key may hold ends the range
        start = bisect_left(self._keys, prefix)
        end = bisect_left(self._keys, f"{prefix}\U0010ffff")
        return self._keys[start:end]

    def _first_in_folder_of(self, key: ObjectKey) -> ObjectKey | None:
        folder = key[: key.rfind("/") + 1]
        return next((found for found in self._keys_under(folder) if "/" not in found[len(folder) :]), None)
