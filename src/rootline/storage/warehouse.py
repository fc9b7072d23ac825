"""The warehouse as a whole: the id of its lake, and the test whether its store is fit for tables.

Owns: reading the lake's id or creating it, the test of conditional PUTs, reads and lists (protocol page, section 1,
"Stores that lie"). Does not own: the id's bytes (`record_headers`), the time of the test (the coordinator's start,
`rootline store probe`).
Invariants: a conditional PUT decides between two processes that create the id. If the warehouse refuses the PUT or the
read, there is no id, and ids are not compared. The test uses only the port. A store passes only if every race had one
winner whose body is read back, a later PUT was refused, and LIST yields keys in order. The test writes outside every
table.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from rootline.library_log import library_logger
from rootline.ports.object_store import ObjectStore, PutReply, PutStatus
from rootline.schemas.bytes.record_headers import LAKE_KEY, Lake, decode_lake, encode_lake
from rootline.schemas.errors import Fenced, RootlineError, Unavailable
from rootline.schemas.identifiers import ObjectKey

FindLake = Callable[[], Awaitable[Lake | None]]


async def lake_of(store: ObjectStore, place: str, fresh_id: Callable[[], str]) -> Lake | None:
    """Read the id of the lake in `store`, or create it. `place`: the URL by which the caller knows the warehouse.

    Costs one GET, and in a warehouse without an id also a PUT and possibly another GET. `None`: the caller's rights do
    not allow to read the id, or to create one.

    Raises:
        Unavailable: `store-unavailable`, the id cannot be read.
    """
    try:
        found = await store.get(LAKE_KEY)
    except Unavailable as error:
        if await store.stored_ms(LAKE_KEY) is not None:  # an unreachable store raises here as well
            raise
        _log_without(place, str(error))
        return None
    if found is None:
        made = Lake(fresh_id(), place)
        try:
            reply = await store.put_if_absent(LAKE_KEY, encode_lake(made))
        except RootlineError as error:
            _log_without(place, str(error))
            return None
        if reply.answer is PutStatus.CREATED:
            return made
        found = await store.get(LAKE_KEY)
        if found is None:
            _log_without(place, reply.detail)
            return None
    lake = decode_lake(found.body)
    if lake is None:
        _log_without(place, f"{LAKE_KEY} was not written by Rootline")
    return None if lake is None else lake._replace(place=place)


def _log_without(place: str, reason: str) -> None:
    logger = library_logger("rootline.lake")
    logger.info("the lake has no id, so a log of another lake cannot be detected", warehouse=place, reason=reason)


PROBE_PREFIX: Final = "0-rootline-probe/"
"""No namespace begins with a digit."""

_LATE: Final = b"a later writer"
_RESENDS_MAX: Final = 4


async def probe_store(
    stores: Sequence[ObjectStore], fresh_id: Callable[[], str], *, rounds: int = 3, racers: int = 32
) -> None:
    """Test whether the store keeps the promises that commits need.

    In each of `rounds`, `racers` conditional PUTs race for one fresh key. Only one may win, and a later PUT must fail.
    `stores` are clients of the same warehouse, one for each endpoint. `fresh_id` makes a globally unique id.

    Raises:
        Fenced: `store-lies`. The message states the fault.
        Unavailable: `store-unavailable`, the store did not respond well enough to be judged.
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
    found = await _read_back(stores[0], key, replies)
    late = await stores[-1].put_if_absent(key, _LATE)
    found_after = await _read_back(stores[0], key, replies)
    store = stores[0]
    if late.answer is PutStatus.CREATED or found_after == _LATE:
        raise _lies(store, "it ignores If-None-Match: a PUT to an existing object succeeded")
    if len(winners) > 1:
        raise _lies(store, f"it let {len(winners)} of {racers} writers win a race for one object")
    if winners and found != bodies[winners[0]]:
        raise _lies(store, "it confirmed one writer's PUT, but the object that is read back is another writer's")
    if found not in bodies or found_after != found:
        raise _lies(store, "an object that was created once has other bytes when it is read back")
    for other in stores[1:]:
        if await _read_back(other, key, replies) != found:
            raise _lies(other, "this endpoint returns another object for the same key than the first endpoint")


async def _read_back(store: ObjectStore, key: ObjectKey, replies: Sequence[PutReply]) -> bytes:
    found = await store.get(key)
    if found is not None:
        return found.body
    if any(reply.answer in (PutStatus.CREATED, PutStatus.EXISTS) for reply in replies):
        raise _lies(store, "an object that it confirmed cannot be read back right after")
    detail = next((reply.detail for reply in replies if reply.detail), "the store gave no reason")
    raise Unavailable("store-unavailable", f"{store!r}: none of {len(replies)} PUTs succeeded: {detail}")


async def _check_order(stores: Sequence[ObjectStore], folder: str) -> None:
    """Check that LIST yields keys in order: the newest root is found by a LIST of one key, which must be the first."""
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
    return Fenced("store-lies", f"{store!r} cannot store tables: {fault}; use another store")
