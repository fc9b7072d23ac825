"""A table as it is stored, loaded whole."""

from __future__ import annotations

from collections.abc import Mapping

from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.parts.name import NameState
from rootline.storage.metadata.root_reader import at_head, read_root
from rootline.storage.metadata.table_loader import load_state
from rootline.tree.state.table_state import TableState


async def load_table(
    store: ObjectStore,
    table: TableName,
    version: Version | None = None,
    *,
    known_leaves: Mapping[str, Leaf] | None = None,
) -> TableState | None:
    """The live table at its head, or at an addressable `version`, without its pages; `None` if there is no table."""

    async def state_of(version: Version) -> TableState:
        return await load_state(store, await read_root(store, table, version), known_leaves=known_leaves)

    if version is not None:
        return await state_of(version)
    state = await at_head(store, table, lambda head: state_of(head.version))
    return None if state is None or state.header.name.state is not NameState.TABLE else state
