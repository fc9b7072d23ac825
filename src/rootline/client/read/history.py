"""Versions of a table and its tree, read from its roots.

Owns: bounded reading of the chain. Does not own: what a root holds, how a tree is drawn.
Invariants: at most `limit` roots are read, a few at the same time; versions that the head does not address are not.
"""

from __future__ import annotations

from typing import Final

from rootline.client.read.time_travel import PointInTime, read_head, read_older_root, read_root_at
from rootline.client.read.tree_view import TreeView
from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.root_header import RootHeader
from rootline.storage.few_at_once import few_at_once
from rootline.storage.metadata.page_reader import read_kept
from rootline.storage.metadata.table_loader import load_state
from rootline.tree.state.addressable import Addressable

_AT_ONCE: Final = 8


async def read_history(store: ObjectStore, table: TableName, limit: int) -> list[RootHeader]:
    """The newest `limit` addressable headers, newest first.

    Raises:
        Invalid: `table-unknown`; `setting-invalid`, the limit is less than 1.

    """
    if limit < 1:
        raise Invalid("setting-invalid", f"limit is {limit}; give 1 or more")
    head = (await read_head(store, table)).header
    oldest = max(head.oldest_version, head.version - limit + 1)
    versions = [*range(head.version - 1, oldest - 1, -1)]
    if len(versions) + 1 < limit:
        older = Addressable.of(head, await read_kept(store, head)).older()
        versions += reversed(older[-(limit - len(versions) - 1) :])

    async def header_of(version: int) -> RootHeader | None:
        try:
            return (await read_older_root(store, table, version)).header
        except Invalid as error:
            if error.code == "version-unknown":  # it has expired since the head was read
                return None
            raise

    older_headers = await few_at_once(versions, header_of, _AT_ONCE)
    return [head, *(header for header in older_headers if header is not None)]


async def read_tree(store: ObjectStore, table: TableName, point: PointInTime) -> TreeView:
    """The tree of the version that `point` means."""
    return TreeView(await load_state(store, await read_root_at(store, table, point)))
