"""Stores Puffin files of maintenance.

Owns: what an answer to the PUT means. Does not own: the bytes and the name (`puffin_codec`).
Invariants: returns only when the store holds exactly these bytes; storing the same file again is no conflict.
"""

from __future__ import annotations

from rootline.ports.object_store import ObjectStore, PutAnswer
from rootline.schemas.errors import Corrupt, Unavailable
from rootline.schemas.identifiers import TableName
from rootline.schemas.object_keys import key_of


async def write_puffin(store: ObjectStore, table: TableName, location: str, body: bytes) -> None:
    """Store `body` at `location` of `table`, or find it stored already.

    Raises:
        Unavailable: `store-unavailable`, the store does not say that it holds the file; perhaps it does.
        Corrupt: `vector-corrupt`, other bytes rest under its name.

    """
    key = key_of(table, location)
    reply = await store.put_if_absent(key, body)
    if reply.answer is PutAnswer.CREATED:
        return
    found = await store.get(key)  # one's own PUT may have been sent twice, or its answer lost
    if found is None:
        raise Unavailable("store-unavailable", f"{key}: not stored, answer {reply.answer}")
    if found.body != body:
        raise Corrupt("vector-corrupt", f"{key}: other bytes rest under this name")
