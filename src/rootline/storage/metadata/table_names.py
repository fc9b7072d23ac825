"""Which tables a warehouse holds.

Owns: finding them by their folders. Does not own: what makes a name valid (`rootline.schemas.identifiers`), what a name
is (`rootline.tree.state.name_state`).
Invariants: a folder is a name's when it holds a root; folders of other things are passed over; a name whose table was
dropped is no table, but what is left of that table is still looked after under its name.
"""

from __future__ import annotations

from typing import Final

from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import TableName
from rootline.schemas.object_keys import table_in
from rootline.storage.few_at_once import few_at_once
from rootline.storage.metadata.head_finder import find_head
from rootline.storage.metadata.table_head import is_table

_LOOKS_AT_ONCE: Final = 16


async def list_names(store: ObjectStore, *, known: frozenset[TableName] = frozenset()) -> list[TableName]:
    """Every name that has or had a table. Those in `known` are not looked into again: a name never loses its roots."""
    found: list[TableName] = []
    for namespace in await store.folders(""):
        for folder in await store.folders(namespace):
            name = table_in(folder)
            if name is None:
                continue
            if name in known or await find_head(store, name) is not None:
                found.append(name)
    return found


async def list_tables(store: ObjectStore) -> list[TableName]:
    """Every table, by name. One whose newest root cannot be read is among them: it is there, and says so when opened.

    Raises `Unavailable` (`store-unavailable`).
    """

    async def is_there(name: TableName) -> bool:
        try:
            return await is_table(store, name)
        except Corrupt:
            return True

    names = await list_names(store)
    there = await few_at_once(names, is_there, _LOOKS_AT_ONCE)
    return [name for name, is_one in zip(names, there, strict=True) if is_one]
