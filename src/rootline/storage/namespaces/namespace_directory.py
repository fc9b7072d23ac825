"""Which namespaces a warehouse has.

Owns: finding them by their folders and objects. Does not own: what makes a name valid (`rootline.schemas.identifiers`).
Invariants: a namespace exists if it was created and not dropped since, or if a table or view is in it; a namespace
below it does not make it exist, but keeps it from being dropped.
"""

from __future__ import annotations

from typing import Final

from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import NamespaceName, TableName
from rootline.schemas.object_keys import namespace_in, table_in
from rootline.schemas.root_header import NameState
from rootline.storage.few_at_once import gather_bounded
from rootline.storage.metadata.table_head import name_state
from rootline.storage.namespaces.namespace_chain import read_namespace

_LOOKS_AT_ONCE: Final = 16


async def list_namespaces(store: ObjectStore) -> list[NamespaceName]:
    """Every namespace that exists, ascending.

    One whose properties cannot be read is among them: it says so when it is asked for.

    Raises `Unavailable` (`store-unavailable`).
    """
    names = [name for folder in await store.folders("") if (name := namespace_in(folder)) is not None]

    async def is_there(name: NamespaceName) -> bool:
        return await namespace_exists(store, name)

    found = await gather_bounded(names, is_there, _LOOKS_AT_ONCE)
    return sorted(name for name, there in zip(names, found, strict=True) if there)


async def namespace_exists(store: ObjectStore, namespace: NamespaceName) -> bool:
    """Whether it was created, or a table or view is in it. Raises as `list_namespaces`."""
    return await is_created(store, namespace) or await name_inside(store, namespace) is not None


async def is_created(store: ObjectStore, namespace: NamespaceName) -> bool:
    """Whether it was created and not dropped since; so is one whose newest object cannot be read.

    Raises `Unavailable`.
    """
    try:
        return (await read_namespace(store, namespace)).is_there
    except Corrupt:
        return True


async def name_inside(store: ObjectStore, namespace: NamespaceName) -> TableName | None:
    """A table or view of this namespace, if it has one; one whose newest root cannot be read is there.

    Raises `Unavailable`.
    """
    for folder in await store.folders(f"{namespace}/"):
        name = table_in(folder)
        if name is None:
            continue
        try:
            if await name_state(store, name) in (NameState.TABLE, NameState.VIEW):
                return name
        except Corrupt:
            return name
    return None


async def namespace_below(store: ObjectStore, namespace: NamespaceName) -> NamespaceName | None:
    """A namespace that exists and whose name begins with this one's and a dot. Raises as `list_namespaces`."""
    for folder in await store.folders(""):
        name = namespace_in(folder)
        if name is not None and name.startswith(f"{namespace}.") and await namespace_exists(store, name):
            return name
    return None
