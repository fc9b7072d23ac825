"""Object stores with faults from a script or a seed, and stores that ignore the precondition of conditional PUTs.

Owns: the faults and the two violations. Does not own: the store that faults are added to.
Invariants: The store below the faults stays correct: an object is created once, whole. Only its answers, and the moment
of a PUT, are faulty. The same script or seed over the same calls gives the same faults. A `LyingObjectStore` is correct
in everything but `put_if_absent`, so that only a probe detects it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from typing_extensions import override

from rootline.ports.object_store import Listing, ObjectStore, Predecessor, PutReply, PutStatus, StoredObject
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import ObjectKey


class Operation(Enum):
    """The caller's operation. `folders` counts as LIST."""

    GET = "get"
    PUT = "put"
    LIST = "list"


class Fault(Enum):
    """A fault of one operation. The first five apply to PUT."""

    LOST_REQUEST = "lost_request"  # NO_ANSWER, nothing stored
    LOST_REPLY = "lost_reply"  # stored, NO_ANSWER
    LANDS_LATER = "lands_later"  # NO_ANSWER, stored some calls later, unless another PUT created the key before
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
    """Draw the faults in this order, each at the next operation that it applies to. `None` lets one operation succeed.

    Operations on keys that do not begin with `under` get no fault. After the end of the script, no operation does.
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
    """Draw each fault with its chance, 0 to 1, at every operation that it applies to."""
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


class FaultyObjectStore(ObjectStore):
    """Adds the faults of `source` to `inner`.

    A delayed PUT is carried out after `landing_calls` more calls, or by `land`.
    """

    def __init__(self, inner: ObjectStore, source: FaultSource, *, landing_calls: int = 3) -> None:
        self._inner = inner
        self._source = source
        self._landing_calls = landing_calls
        self._delayed: list[_Delayed] = []
        self.drawn: list[tuple[Operation, str, Fault]] = []

    @override
    async def get(self, key: ObjectKey) -> StoredObject | None:
        """Read the object, or only the first half of it, or raise `Unavailable`."""
        fault = await self._next(Operation.GET, key)
        found = await self._inner.get(key)
        if fault is Fault.TRUNCATED and found is not None:
            body = found.body[: len(found.body) // 2]
            return StoredObject(found.key, body, found.last_modified_ms, found.store_ms)
        return found

    @override
    async def put_if_absent(self, key: ObjectKey, body: bytes, *, after: Predecessor | None = None) -> PutReply:
        """Pass on the store's reply, or hide it."""
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

    @override
    async def list(self, prefix: str, *, limit: int | None = None) -> Listing:
        await self._next(Operation.LIST, prefix)
        return await self._inner.list(prefix, limit=limit)

    @override
    async def stored_ms(self, key: ObjectKey) -> int | None:
        await self._next(Operation.GET, key)
        return await self._inner.stored_ms(key)

    @override
    async def folders(self, prefix: str) -> Sequence[str]:
        await self._next(Operation.LIST, prefix)
        return await self._inner.folders(prefix)

    async def land(self) -> None:
        """Carry out every delayed PUT now."""
        await self._land(0)

    @override
    async def close(self) -> None:
        """Close the inner store. Delayed PUTs are lost."""
        await self._inner.close()

    async def _next(self, operation: Operation, key: str) -> Fault | None:
        await self._land(1)
        fault = self._source(operation, key)
        if fault is not None:
            if fault not in _ALLOWED[operation]:
                raise ValueError(f"{fault} does not apply to a {operation.value}")
            self.drawn.append((operation, key, fault))
        if fault is Fault.UNAVAILABLE:
            raise Unavailable("store-unavailable", f"{operation.value} {key}: no answer (a fault of the test)")
        return fault

    async def _land(self, calls: int) -> None:
        """Count `calls` more, and carry out the PUTs that are due. With 0, carry out all of them."""
        for put in self._delayed:
            put.calls_left -= calls
        due = [put for put in self._delayed if calls == 0 or put.calls_left <= 0]
        self._delayed = [put for put in self._delayed if put not in due]
        for put in due:
            await self._inner.put_if_absent(put.key, put.body, after=put.after)


class Lie(Enum):
    """The store's violation of the precondition."""

    IGNORES = "ignores"  # the last writer wins, always (as Garage 2.5)
    RACES = "races"  # checking and writing are two steps (as s3s-fs 0.14)


class LyingObjectStore(ObjectStore):
    """A warehouse in memory that violates the precondition of conditional PUTs."""

    def __init__(self, lie: Lie) -> None:
        self._lie = lie
        self._objects: dict[ObjectKey, bytes] = {}

    def __repr__(self) -> str:
        return f"a store that {self._lie.value} the precondition"

    @override
    async def get(self, key: ObjectKey) -> StoredObject | None:
        body = self._objects.get(key)
        return None if body is None else StoredObject(key, body, None, None)

    @override
    async def put_if_absent(self, key: ObjectKey, body: bytes, *, after: Predecessor | None = None) -> PutReply:
        """Overwrite the object and return CREATED where a correct store returns EXISTS."""
        if self._lie is Lie.RACES and key in self._objects:
            return PutReply(PutStatus.EXISTS)
        await asyncio.sleep(0)  # another PUT may run in between
        self._objects[key] = body
        return PutReply(PutStatus.CREATED)

    @override
    async def list(self, prefix: str, *, limit: int | None = None) -> Listing:
        return Listing(sorted(key for key in self._objects if key.startswith(prefix))[:limit], None)

    @override
    async def stored_ms(self, key: ObjectKey) -> int | None:
        """0 for every object that exists, because this store has no clock."""
        return 0 if key in self._objects else None

    @override
    async def folders(self, prefix: str) -> Sequence[str]:
        rests = (key[len(prefix) :] for key in self._objects if key.startswith(prefix))
        return sorted({f"{prefix}{rest.split('/', 1)[0]}/" for rest in rests if "/" in rest})

    @override
    async def close(self) -> None:
        """Keep all objects, so that a test can read them."""
