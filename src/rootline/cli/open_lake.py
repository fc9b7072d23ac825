"""How a command opens the lake that it works on.

Owns: that a command that only reads hosts no coordinator, and one that changes something may. Does not own: which
adapters a lake has (`rootline.connect`), what the command does.
Invariants: a lake that is opened to be read is never made.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rootline.cli.options import required
from rootline.schemas.errors import Corrupt

if TYPE_CHECKING:
    from rootline.client.lake import Lake
    from rootline.client.table_handle import TableHandle
    from rootline.schemas.root_header import RootHeader


def lake_to_read(warehouse: str | None, log: str | None = None) -> Lake:
    """The lake for a command that changes nothing. Raises as `rootline.connect`."""
    from rootline.connect import connect

    return connect(required(warehouse), log=log, coordinator="elsewhere")


def lake_to_change(warehouse: str | None, log: str | None = None) -> Lake:
    """The lake for a command that publishes intents. Raises as `rootline.connect`."""
    from rootline.connect import connect

    return connect(required(warehouse), log=log)


def any_name(lake: Lake, name: str) -> TableHandle:
    """A handle of a name that has roots: of a table that was dropped, or a view, too. Raises `Invalid`: it has none."""
    from rootline.client import checks
    from rootline.client.table_handle import TableHandle
    from rootline.storage.metadata.head_finder import existing_head

    checked = checks.table(name)
    lake.holder.run(lambda session: existing_head(session.store, checked))
    return TableHandle(lake, checked)


def newest_header(lake: Lake, handle: TableHandle) -> RootHeader:
    """The header of the newest root, a tombstone's or a view's too. Raises `Corrupt`: it cannot be read."""
    from rootline.client.session.session import Session
    from rootline.storage.metadata.head_finder import existing_head
    from rootline.storage.metadata.table_head import newest_root

    async def operation(session: Session) -> RootHeader:
        root = await newest_root(session.store, handle.name)
        if root is None:
            await existing_head(session.store, handle.name)
            raise Corrupt("object-missing", f"{handle.name}: its newest root left while it was read: try again")
        return root.header

    return lake.holder.run(operation)


def check_folder(warehouse: str) -> None:
    """Raises `Unavailable` (`store-unavailable`) when the warehouse is a folder of this machine that does not exist."""
    from rootline.connect import lake_folder
    from rootline.schemas.errors import Unavailable

    folder: Path | None = lake_folder(warehouse)
    if folder is not None and not folder.is_dir():
        raise Unavailable("store-unavailable", f"{folder}: there is no such folder; give another --warehouse")
