"""Whether an object store does conditional PUTs, reads and lists as tables need them.

Owns: the test and its result; source: the protocol page, section 1, "Stores that lie". Does not own: when it is run
(the coordinator's start, `rootline store probe`).
Invariants: uses the port alone; a store passes only if every race had one winner whose body is what is read back, a
later PUT was refused, and LIST yields keys in order; what it writes lies outside every table.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from rootline.ports.object_store import ObjectStore, PutReply, PutStatus
from rootline.schemas.errors import Fenced, Unavailable
from rootline.schemas.identifiers import ObjectKey

PROBE_PREFIX: Final = "0-rootline-probe/"
"""No namespace begins with a digit."""

_LATE: Final = b"a later writer"
_RESENDS_MAX: Final = 4


async def probe_store(
    stores: Sequence[ObjectStore], fresh_id: Callable[[], str], *, rounds: int = 3, racers: int = 32
) -> None:
    """Let `racers` conditional PUTs of one fresh key race in each of `rounds`, then try one more.

    `stores` are clients of the same warehouse, through every endpoint there is; `fresh_id` makes an id that no one
    had before.

    Raises:
        Fenced: `store-lies`, the message says how.
        Unavailable: `store-unavailable`, the store did not answer well enough to be judged.

    """
    for _ in range(rounds):
        await _race(stores, ObjectKey(f"{PROBE_PREFIX}{fresh_id()}"), racers)
    await _check_order(stores, f"{PROBE_PREFIX}{fresh_id()}/")


async def _race(stores: Sequence[ObjectStore], key: ObjectKey, racers: int) -> None:
    bodies = [f"{key} by racer {number}".encode() for number in range(racers)]
    puts = (stores[number % len(stores)].put_if_absent(key, body) for number, body in enumerate(bodies))
    replies: list[PutReply] = []
    for reply in await asyncio.gather(*puts, return_exceptions=True):
        if isinstance(reply, BaseException):
            raise reply
        replies.append(reply)
    winners = [number for number, reply in enumerate(replies) if reply.answer is PutStatus.CREATED]
    held = await _read_back(stores[0], key, replies)
    late = await stores[-1].put_if_absent(key, _LATE)
    held_after = await _read_back(stores[0], key, replies)
    store = stores[0]
    if late.answer is PutStatus.CREATED or held_after == _LATE:
        raise _lies(store, "it ignores If-None-Match: a PUT to an object that exists was carried out")
    if len(winners) > 1:
        raise _lies(store, f"it let {len(winners)} of {racers} writers win a race for one object")
    if winners and held != bodies[winners[0]]:
        raise _lies(store, "the one writer that it confirmed is not the one whose object is read back")
    if held not in bodies or held_after != held:
        raise _lies(store, "an object that was created once has other bytes when it is read back")
    for other in stores[1:]:
        if await _read_back(other, key, replies) != held:
            raise _lies(other, "its endpoint reads back another object than the first endpoint")


async def _read_back(store: ObjectStore, key: ObjectKey, replies: Sequence[PutReply]) -> bytes:
    found = await store.get(key)
    if found is not None:
        return found.body
    if any(reply.answer in (PutStatus.CREATED, PutStatus.EXISTS) for reply in replies):
        raise _lies(store, "an object that it confirmed cannot be read back right after")
    detail = next((reply.detail for reply in replies if reply.detail), "the store gave no reason")
    raise Unavailable("store-unavailable", f"{store!r}: none of {len(replies)} PUTs was carried out: {detail}")


async def _check_order(stores: Sequence[ObjectStore], folder: str) -> None:
    """The newest root is found by a LIST of one key, so that key must be the first one."""
    keys = [ObjectKey(f"{folder}{name}") for name in ("2", "3", "1")]
    for number, key in enumerate(keys):
        await _put_acknowledged(stores[number % len(stores)], key)
    for store in stores:
        first = (await store.list(folder, limit=1)).keys
        every = (await store.list(folder)).keys
        if list(every) != sorted(keys) or list(first) != sorted(keys)[:1]:
            raise _lies(store, "a LIST right after PUTs does not yield all keys in ascending order")


async def _put_acknowledged(store: ObjectStore, key: ObjectKey) -> None:
    reply = await store.put_if_absent(key, b"")
    for _ in range(_RESENDS_MAX):
        if reply.answer is not PutStatus.NO_ANSWER:
            return
        reply = await store.put_if_absent(key, b"")
    raise Unavailable("store-unavailable", f"{store!r}: PUT {key} was not answered: {reply.detail}")


def _lies(store: ObjectStore, fault: str) -> Fenced:
    return Fenced("store-lies", f"{store!r} cannot hold tables: {fault}; use another store")
