"""Versions of a table and its tree, read from its roots.

Owns: bounded reading of the chain. Does not own: what a root holds, how a tree is drawn.
Invariants: not many more than `limit` roots are read, a few at the same time; of versions that record verdicts only at
most `_HIDDEN_MAX` are passed over; versions that the head does not address are not read.
"""

from __future__ import annotations

from typing import Final

from rootline.client.read.time_travel import PointInTime, read_head, read_older_root, read_root_at
from rootline.client.read.tree_view import TreeView
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.root_header import RootHeader
from rootline.storage.metadata.object_reader import read_kept
from rootline.storage.metadata.table_loader import load_state
from rootline.storage.stored_objects import gather_bounded
from rootline.tree.check.verdict_roots import records_verdicts_only
from rootline.tree.state.addressable import Addressable

_AT_ONCE: Final = 8
_ROOTS_TOGETHER: Final = 64
_HIDDEN_MAX: Final = 1_000


async def read_history(
    store: ObjectStore, table: TableName, limit: int, *, everything: bool = False
) -> list[RootHeader]:
    """The newest `limit` addressable headers, newest first; those that record verdicts only if `everything` is wanted.

    Raises:
        Invalid: `table-unknown`; `setting-invalid`, the limit is less than 1.

    """
    if limit < 1:
        raise Invalid("setting-invalid", f"limit is {limit}; give 1 or more")
    newer = await read_head(store, table)
    oldest, found = newer.header.oldest_version, list[RootHeader]()
    last = max(oldest, newer.header.version - (limit - 1 if everything else limit + _HIDDEN_MAX))

    head = newer.header

    async def root_of(version: int) -> Root | None:
        try:
            return await read_older_root(store, table, version)
        except Invalid as error:
            if error.code == "version-unknown":  # it has expired since the head was read
                return None
            raise

    next_version = newer.header.version - 1
    while len(found) < limit and next_version >= last:
        # the parent of the last one that is wanted is read too: it shows if that one changed anything
        count = min(limit - len(found), _ROOTS_TOGETHER)
        versions = range(next_version, max(last, next_version - count + 1) - 1, -1)
        for older in await gather_bounded(versions, root_of, _AT_ONCE):
            if older is None:
                continue
            if everything or not records_verdicts_only(older, newer):
                found.append(newer.header)
            newer = older
        next_version = versions[-1] - 1
    if len(found) < limit and next_version < last:
        found.append(newer.header)
    if len(found) < limit:
        below = Addressable.of(head, await read_kept(store, head)).older()[-(limit - len(found)) :]
        kept = await gather_bounded(reversed(below), root_of, _AT_ONCE)
        found += [root.header for root in kept if root is not None]
    return found[:limit]


async def read_tree(store: ObjectStore, table: TableName, point: PointInTime) -> TreeView:
    """The tree of the version that `point` means."""
    return TreeView(await load_state(store, await read_root_at(store, table, point)))
