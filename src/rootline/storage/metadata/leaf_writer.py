"""Stores immutable objects whose names carry their digest, such as leaves.

Owns: what the answers to such a PUT mean. Does not own: the bytes (`rootline.schemas.bytes.leaf.leaf_codec`), roots
(the coordinator alone writes those).
Invariants: returns only when the store holds exactly these bytes; deletes nothing, whatever the outcome.
"""

from __future__ import annotations

from rootline.ports.object_store import ObjectStore, PutAnswer
from rootline.schemas.bytes.leaf.leaf_codec import EncodedLeaf
from rootline.schemas.errors import Corrupt, Unavailable
from rootline.schemas.identifiers import TableName
from rootline.schemas.object_keys import key_of


async def write_leaf(store: ObjectStore, table: TableName, leaf: EncodedLeaf) -> None:
    """Store `leaf`, or find it stored already.

    Raises:
        Unavailable: `store-unavailable`, the store does not say that it holds the leaf; perhaps it does.
        Corrupt: `leaf-corrupt`, other bytes rest under the leaf's name.

    """
    key = key_of(table, leaf.location)
    reply = await store.put_if_absent(key, leaf.body)
    if reply.answer is PutAnswer.CREATED:
        return
    found = await store.get(key)  # one's own PUT may have been sent twice, or its answer lost
    if found is None:
        raise Unavailable("store-unavailable", f"{key}: the store did not confirm the leaf: {reply.detail}")
    if found.body != leaf.body:
        raise Corrupt("leaf-corrupt", f"{key}: the store holds other bytes than were written")
