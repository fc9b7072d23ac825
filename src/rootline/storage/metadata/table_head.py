"""Reads the newest root of a name, as those need it who look for a table.

Owns: the LIST and the GET together, and the answer where there is no table. Does not own: each of them (`head_finder`,
`root_reader`), what a name can be (`rootline.tree.state.name_state`).
Invariants: a name whose newest root is a tombstone has no table; a root that expires meanwhile is found again.
"""

from __future__ import annotations

from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import TableName
from rootline.schemas.root_header import NameState
from rootline.storage.metadata.head_finder import HeadKey, at_head, existing_head
from rootline.storage.metadata.root_reader import read_root
from rootline.tree.state.name_state import check_is_table


async def newest_root(store: ObjectStore, name: TableName, known: Root | None = None) -> Root | None:
    """The newest root of a name, a tombstone included; `known` as of `read_root`. `None`: it has none.

    Raises:
        Corrupt: as `read_root`.
        Unavailable: `store-unavailable`.

    """
    return await at_head(store, name, lambda head: read_root(store, name, head.version, known=known))


async def table_root(store: ObjectStore, name: TableName, known: Root | None = None) -> Root:
    """The newest root of a table. Raises as `newest_root`, and `Invalid` (`table-unknown`, `table-dropped`)."""

    async def root_of(head: HeadKey) -> Root:
        return await read_root(store, name, head.version, known=known)

    root = await at_head(store, name, root_of, await existing_head(store, name))
    assert root is not None, "there was a head"
    check_is_table(root.header)
    return root


async def is_table(store: ObjectStore, name: TableName) -> bool:
    """Whether a table has this name now. Raises as `newest_root`."""
    return await name_state(store, name) is NameState.TABLE


async def name_state(store: ObjectStore, name: TableName) -> NameState | None:
    """What a name is now; `None`: it never was anything. Raises as `newest_root`."""
    root = await newest_root(store, name)
    return None if root is None else root.header.name_is


async def check_there(store: ObjectStore, name: TableName) -> None:
    """Raises as `table_root` where there is no table. One whose newest root is damaged is there all the same."""
    try:
        await table_root(store, name)
    except Corrupt as error:
        if error.code == "object-missing":
            raise
