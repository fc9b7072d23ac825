"""Store an immutable object once, and learn what the store holds under its name.

Owns: what the answers to such a PUT mean. Does not own: the bytes and the name, the words for other bytes under that
name (the caller's), roots (of these the coordinator alone decides).
"""

from __future__ import annotations

from dataclasses import dataclass

from rootline.ports.object_store import ObjectStore, PutStatus
from rootline.schemas.errors import Unavailable
from rootline.schemas.identifiers import ObjectKey


async def store_object(store: ObjectStore, key: ObjectKey, body: bytes) -> bytes:
    """Store `body` under `key`, or find an object stored there; the bytes that the store holds.

    They are `body`, unless another object had the name first: compare them. Nothing is overwritten or deleted. After
    any error the same call is safe to repeat.

    Raises:
        Unavailable: `store-unavailable`, the store does not say that it holds the object; perhaps it does.

    """
    return (await store_dated(store, key, body)).body


@dataclass(frozen=True, slots=True)
class Held:
    """The bytes that a store holds, and its own date of them; `None`: it has none."""

    body: bytes
    stored_ms: int | None


async def store_dated(store: ObjectStore, key: ObjectKey, body: bytes) -> Held:
    """As `store_object`, with the date of the object, or of the answer that it was created."""
    reply = await store.put_if_absent(key, body)
    if reply.answer is PutStatus.CREATED:
        return Held(body, reply.store_ms)
    found = await store.get(key)  # one's own PUT may have been sent twice, or its answer lost
    if found is None:
        reason = reply.detail or reply.answer.value
        raise Unavailable("store-unavailable", f"{key}: the store did not confirm this object ({reason}); try again")
    return Held(found.body, found.last_modified_ms)
