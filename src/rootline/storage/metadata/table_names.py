"""Which tables a warehouse holds.

Owns: finding them by their folders. Does not own: what makes a name valid (`rootline.schemas.identifiers`).
Invariants: a folder is a table when it holds a root; folders of other things are passed over.
"""

from __future__ import annotations

from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName, table_name
from rootline.storage.metadata.head_finder import find_head


async def list_tables(store: ObjectStore, *, known: frozenset[TableName] = frozenset()) -> list[TableName]:
    """Every table, by name. Those in `known` are not looked into again: a table never loses its roots."""
    found: list[TableName] = []
    for namespace in await store.folders(""):
        for folder in await store.folders(namespace):
            try:
                name = table_name(folder.rstrip("/").replace("/", "."))
            except Invalid:
                continue
            if name in known or await find_head(store, name) is not None:
                found.append(name)
    return found
