"""Reads the newest root of a view.

Owns: the answer where the name is no view. Does not own: finding and reading roots (`table_head`), a view's metadata
(`rootline.schemas.views`).
"""

from __future__ import annotations

from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.root_header import NameState, RootHeader
from rootline.schemas.view_metadata import ViewMetadata
from rootline.storage.metadata.table_head import newest_root


async def view_root(store: ObjectStore, name: TableName) -> Root:
    """The newest root of a view.

    Raises:
        Invalid: `view-unknown`; `name-is-table`.
        Corrupt: as `newest_root`.
        Unavailable: `store-unavailable`.

    """
    root = await newest_root(store, name)
    if root is None or root.header.is_tombstone:
        raise Invalid(
            "view-unknown", f"{name}: no view has this name in this warehouse; `rootline view list` shows all"
        )
    if root.header.name_is is NameState.TABLE:
        raise Invalid("name-is-table", f"{name} is a table, not a view: `rootline scan {name}` shows its rows")
    return root


def view_of(header: RootHeader) -> ViewMetadata:
    """The view that a root of one holds. Raises `Corrupt` (`root-corrupt`): it cannot be read."""
    try:
        return ViewMetadata.from_json(header.view or b"", name=f"{header.table}, version {header.version}")
    except Invalid as error:
        raise Corrupt("root-corrupt", f"{error.message} [{error.code}]") from error
