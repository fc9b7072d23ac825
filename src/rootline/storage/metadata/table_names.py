"""Which tables a warehouse holds.

Owns: finding them by their folders. Does not own: what makes a name valid (`rootline.schemas.identifiers`).
Invariants: a folder is a table when it holds a root; folders of other things are passed over.
"""

from __future__ import annotations

from rootline.ports.object_store import ObjectStore
from rootline.schemas.identifiers import TableName
from rootline.schemas.object_keys import table_in
from rootline.storage.metadata.head_finder import find_head


async def list_tables(store: ObjectStore, *, known: frozenset[TableName] = frozenset()) -> list[TableName]:
    """Every table, by name. Those in `known` are not looked into again: a table never loses its roots."""
    found: list[TableName] = []
    for namespace in await store.folders(""):
        for folder in await store.folders(namespace):
            name = table_in(folder)
            if name is None:
                continue
            if name in known or await find_head(store, name) is not None:
                found.append(name)
    return found
