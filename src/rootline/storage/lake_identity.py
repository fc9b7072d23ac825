"""The id of a lake: one object in its warehouse, made once.

Owns: reading it, and making it where there is none. Does not own: its bytes (`lake_claim`), what follows from it.
Invariants: a conditional PUT decides between two that make it; a warehouse in which nothing can be put, or in which the
object may not be read, has none, and nothing is compared then; an object that is no id stops nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from rootline.ports.object_store import ObjectStore, PutStatus
from rootline.schemas.bytes.record_headers import LAKE_KEY, Lake, decode_lake, encode_lake
from rootline.schemas.errors import RootlineError, Unavailable

FindLake = Callable[[], Awaitable[Lake | None]]


async def lake_of(store: ObjectStore, place: str, fresh_id: Callable[[], str]) -> Lake | None:
    """The lake in `store`, under the URL `place` of the caller. An id is created if the lake has no id.

    Costs one GET, and in a warehouse without an id also a PUT and perhaps another GET. `None`: it has no id, and none
    can be created or read with the rights that there are.

    Raises:
        Unavailable: `store-unavailable`, the id cannot be read.

    """
    try:
        found = await store.get(LAKE_KEY)
    except Unavailable as error:
        if await store.stored_ms(LAKE_KEY) is not None:  # a store that does not answer raises here as well
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
        _log_without(place, f"{LAKE_KEY} is not what Rootline writes")
    return None if lake is None else lake._replace(place=place)


def _log_without(place: str, reason: str) -> None:
    logger = structlog.get_logger("rootline.lake")
    logger.info("the lake has no id, so a log of another lake is not noticed", warehouse=place, reason=reason)
