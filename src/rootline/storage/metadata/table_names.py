"""Which tables a warehouse holds.

Owns: finding them by their folders. Does not own: what makes a name valid (`rootline.schemas.identifiers`), what a name
is (`rootline.tree.state.name_state`).
Invariants: a folder is a name's when it holds a root; folders of other things are passed over; a name whose table was
dropped is no table, but what is left of that table is still looked after under its name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import Corrupt, Unavailable
from rootline.schemas.identifiers import TableName
from rootline.schemas.object_keys import namespace_in, table_in
from rootline.schemas.root_header import NameState
from rootline.storage.few_at_once import gather_bounded
from rootline.storage.metadata.head_finder import find_head
from rootline.storage.metadata.table_head import is_table, name_state

_LOOKS_AT_ONCE: Final = 16


async def names_of_folders(store: ObjectStore, unread: list[Unavailable] | None = None) -> list[TableName]:
    """Every name whose folder is there, with or without a root.

    Folders that no name can have are passed over, whatever other software called them and keeps in them.

    Args:
        store: the warehouse.
        unread: takes why the folder of a namespace cannot be listed. Without it that is raised.

    Raises:
        Unavailable: `store-unavailable`.

    """
    found: list[TableName] = []
    for namespace in await store.folders(""):
        if namespace_in(namespace) is not None:
            with _noted(unread):
                found += [name for name in map(table_in, await store.folders(namespace)) if name is not None]
    return found


async def list_names(
    store: ObjectStore, *, known: frozenset[TableName] = frozenset(), unread: list[Unavailable] | None = None
) -> list[TableName]:
    """Every name that has or had a table or a view.

    Those in `known` are not looked into again: a name never loses its roots. `unread` as of `names_of_folders`; it also
    takes why the roots of a name cannot be listed.
    """
    found: list[TableName] = []
    for name in await names_of_folders(store, unread):
        with _noted(unread):
            if name in known or await find_head(store, name) is not None:
                found.append(name)
    return found


@contextmanager
def _noted(unread: list[Unavailable] | None) -> Iterator[None]:
    try:
        yield
    except Unavailable as error:
        if unread is None:
            raise
        unread.append(error)


async def list_tables(store: ObjectStore) -> list[TableName]:
    """Every table, by name. One whose newest root cannot be read is among them: it is there, and says so when opened.

    Raises `Unavailable` (`store-unavailable`).
    """

    async def is_there(name: TableName) -> bool:
        try:
            return await is_table(store, name)
        except Corrupt:
            return True

    return await _those(store, is_there)


async def list_views(store: ObjectStore) -> list[TableName]:
    """Every view, by name. Raises `Unavailable` (`store-unavailable`)."""

    async def is_there(name: TableName) -> bool:
        try:
            return await name_state(store, name) is NameState.VIEW
        except Corrupt:
            return False  # `list_tables` has it

    return await _those(store, is_there)


async def _those(store: ObjectStore, wanted: Callable[[TableName], Awaitable[bool]]) -> list[TableName]:
    names = await list_names(store)
    there = await gather_bounded(names, wanted, _LOOKS_AT_ONCE)
    return [name for name, is_one in zip(names, there, strict=True) if is_one]
