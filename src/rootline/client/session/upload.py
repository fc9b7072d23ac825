"""Putting the files of an intent into the store, before the intent is published.

Owns: how many at once, and trying again. Does not own: the bytes, the intent, what the answers to a PUT mean
(`rootline.storage.stored_objects`).
Invariants: returns only when the store holds exactly these bytes; deletes nothing: a file that no intent names is an
orphan for the sweep.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from rootline.client.session.session import Session
from rootline.ports.retry_policy import RetryPolicy
from rootline.schemas.errors import Internal, Unavailable
from rootline.schemas.identifiers import TableName
from rootline.schemas.object_keys import key_of
from rootline.storage.stored_objects import store_dated

_ATTEMPTS: Final = 5
_RETRY: Final = RetryPolicy(delay_s_min=0.25, delay_s_max=2.0)
_AT_ONCE: Final = 8


async def upload_all(session: Session, table: TableName, files: Iterable[tuple[str, bytes]]) -> None:
    """Store every (location, body), a few at the same time.

    Raises:
        Unavailable: `store-unavailable`, after several attempts; `store-denied`, at once.

    """
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(location: str, body: bytes) -> None:
        async with slots:
            await _upload(session, table, location, body)

    try:
        async with asyncio.TaskGroup() as group:
            for location, body in files:
                group.create_task(one(location, body))
    except* (Unavailable, Internal) as failures:
        raise failures.exceptions[0] from None


async def _upload(session: Session, table: TableName, location: str, body: bytes) -> None:
    key = key_of(table, location)
    reason = ""
    for attempt in range(_ATTEMPTS):
        if attempt:
            await asyncio.sleep(_RETRY.after_failure(attempt, session.environment.jitter()))
        begun_ms = session.environment.now_ms()
        try:
            held = await store_dated(session.store, key, body)
        except Unavailable as error:
            if error.code == "store-denied":  # asking again does not help
                raise
            reason = error.message
            continue
        if held.body != body:
            raise Internal("invariant-broken", f"{key}: a fresh name holds other bytes than were written")
        session.uploads.note(table, location, begun_ms if held.stored_ms is None else held.stored_ms)
        return
    raise Unavailable("store-unavailable", f"{key}: not stored in {_ATTEMPTS} attempts; the last one: {reason}")
