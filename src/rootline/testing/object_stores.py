"""Object stores with faults from a script or a seed, and stores that ignore the precondition of conditional PUTs.

Owns: the faults and the two lies. Does not own: the store behind.
Invariants: behind faults the store stays correct: an object is created once, whole. Only the answers, and the moment
of a PUT, are faulty. The same script or seed over the same calls gives the same faults. In a store that lies
everything but `put_if_absent` is correct, so that only a probe can tell.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from rootline.ports.object_store import Listing, ObjectStore, Predecessor, PutReply, PutStatus, StoredObject
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import ObjectKey


class Operation(Enum):
    """What the caller asked for; `folders` counts as LIST."""

    GET = "get"
    PUT = "put"
    LIST = "list"


class Fault(Enum):
    """What goes wrong. The first five are a PUT's."""

    LOST_REQUEST = "lost_request"  # NO_ANSWER, nothing stored
    LOST_REPLY = "lost_reply"  # stored, NO_ANSWER
    LANDS_LATER = "lands_later"  # NO_ANSWER, stored some calls later, unless another took the key before
    OWN_CONFLICT = "own_conflict"  # stored, then EXISTS: the client had sent it twice
    FULL = "full"  # raises Unavailable, nothing stored
    UNAVAILABLE = "unavailable"  # GET and LIST raise Unavailable
    TRUNCATED = "truncated"  # GET: the second half of the body is missing


PUT_FAULTS = frozenset({Fault.LOST_REQUEST, Fault.LOST_REPLY, Fault.LANDS_LATER, Fault.OWN_CONFLICT, Fault.FULL})
_ALLOWED = {
    Operation.PUT: PUT_FAULTS,
    Operation.GET: frozenset({Fault.UNAVAILABLE, Fault.TRUNCATED}),
    Operation.LIST: frozenset({Fault.UNAVAILABLE}),
}
FaultSource = Callable[[Operation, str], Fault | None]


def scripted(faults: Iterable[Fault | None], *, under: str = "") -> FaultSource:
    """The faults in this order, each at the next operation that it fits; `None` lets one operation pass.

    Operations on keys that do not begin with `under` get no fault, and none does after the end of the script.
    """
    rest = list(faults)

    def draw(operation: Operation, key: str) -> Fault | None:
        if not rest or not key.startswith(under):
            return None
        if rest[0] is not None and rest[0] not in _ALLOWED[operation]:
            return None
        return rest.pop(0)

    return draw


def seeded(seed: int, chances: Mapping[Fault, float]) -> FaultSource:
    """Each fault with its chance, 0 to 1, at every operation that it fits."""
    generator = random.Random(seed)

    def draw(operation: Operation, key: str) -> Fault | None:
        point = generator.random()
        for fault, chance in chances.items():
            if fault not in _ALLOWED[operation]:
                continue
            if point < chance:
                return fault
            point -= chance
        return None

    return draw


@dataclass(slots=True)
class _Delayed:
    """A PUT that has not arrived yet."""

    key: ObjectKey
    body: bytes
    after: Predecessor | None
    calls_left: int


class FaultyObjectStore:
    """`inner`, with the faults of `source`; a delayed PUT arrives after `landing_calls` more calls, or in `land`."""

    def __init__(self, inner: ObjectStore, source: FaultSource, *, landing_calls: int = 3) -> None:
        self._inner = inner
        self._source = source
        self._landing_calls = landing_calls
        self._delayed: list[_Delayed] = []
        self.drawn: list[tuple[Operation, str, Fault]] = []

    async def get(self, key: ObjectKey) -> StoredObject | None:
        """The object, half of it, or `Unavailable`."""
        fault = await self._next(Operation.GET, key)
        found = await self._inner.get(key)
        if fault is Fault.TRUNCATED and found is not None:
            body = found.body[: len(found.body) // 2]
            return StoredObject(found.key, body, found.last_modified_ms, found.store_ms)
        return found

    async def put_if_absent(self, key: ObjectKey, body: bytes, *, after: Predecessor | None = None) -> PutReply:
        """The store's answer, or one that hides it."""
        fault = await self._next(Operation.PUT, key)
        match fault:
            case Fault.FULL:
                raise Unavailable("store-unavailable", f"{key}: no space left (a fault of the test)")
            case Fault.LOST_REQUEST:
                return PutReply(PutStatus.NO_ANSWER, detail="the request was lost (a fault of the test)")
            case Fault.LANDS_LATER:
                self._delayed.append(_Delayed(key, bytes(body), after, self._landing_calls))
                return PutReply(PutStatus.NO_ANSWER, detail="the request is on its way (a fault of the test)")
        reply = await self._inner.put_if_absent(key, body, after=after)
        if fault is Fault.LOST_REPLY:
            return PutReply(PutStatus.NO_ANSWER, detail="the reply was lost (a fault of the test)")
        if fault is Fault.OWN_CONFLICT and reply.answer is PutStatus.CREATED:
            return PutReply(PutStatus.EXISTS, reply.store_ms, "sent twice (a fault of the test)")
        return reply

    async def list(self, prefix: str, *, limit: int | None = None) -> Listing:
        """The keys, or `Unavailable`."""
        await self._next(Operation.LIST, prefix)
        return await self._inner.list(prefix, limit=limit)

    async def stored_ms(self, key: ObjectKey) -> int | None:
        """The date, or `Unavailable`."""
        await self._next(Operation.GET, key)
        return await self._inner.stored_ms(key)

    async def folders(self, prefix: str) -> Sequence[str]:
        """The folders, or `Unavailable`."""
        await self._next(Operation.LIST, prefix)
        return await self._inner.folders(prefix)

    async def land(self) -> None:
        """Let every delayed PUT arrive now."""
        await self._land(0)

    async def close(self) -> None:
        """Close the store behind; delayed PUTs are lost."""
        await self._inner.close()

    async def _next(self, operation: Operation, key: str) -> Fault | None:
        await self._land(1)
        fault = self._source(operation, key)
        if fault is not None:
            if fault not in _ALLOWED[operation]:
                raise ValueError(f"{fault} does not happen to a {operation.value}")
            self.drawn.append((operation, key, fault))
        if fault is Fault.UNAVAILABLE:
            raise Unavailable("store-unavailable", f"{operation.value} {key}: no answer (a fault of the test)")
        return fault

    async def _land(self, calls: int) -> None:
        """Count `calls` more, and let the PUTs that are due arrive; 0: all of them."""
        for put in self._delayed:
            put.calls_left -= calls
        due = [put for put in self._delayed if calls == 0 or put.calls_left <= 0]
        self._delayed = [put for put in self._delayed if put not in due]
        for put in due:
            await self._inner.put_if_absent(put.key, put.body, after=put.after)


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
