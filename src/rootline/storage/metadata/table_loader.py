"""Loading a table: one version whole, or the changes of a range of versions.

Owns: the order of the reads, and keeping them few and small. Does not own: verifying bytes (`root_reader`,
`object_reader`, `page_reader`), the part of a version that a scan needs (`scan_loader`), the choice of addressable
versions (the caller knows them), the content of a state, the combination of several changes (`rootline.tree`).
Invariants: leaves and pages never change, so a known one is not re-read. Pages are read only to build on a version,
because they record decisions, not the table's content. While changes are read, only a few roots, and the leaves that
one of them changed, are in memory. A leaf that no root of the range changed is not read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyroaring import BitMap, BitMap64

from rootline.ports.object_store import ObjectStore, StoredObject
from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import LEAF_TYPES, ContentEntry, ContentType, Status
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.object_keys import root_key
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.object_reader import (
    DECODED_AT_ONCE,
    LEAVES_AT_ONCE,
    read_leaves,
    read_stored_manifest_vectors,
    read_vector,
)
from rootline.storage.metadata.page_reader import read_pages
from rootline.storage.metadata.read_cache import mapped
from rootline.storage.metadata.root_reader import proven_root, read_definition, read_root
from rootline.storage.metadata.scan_loader import read_root_vectors
from rootline.storage.stored_objects import gather_bounded
from rootline.tree.check.net_changes import NetChange, NetChanges, VectorsChange
from rootline.tree.check.rewrite_rules import states_rewrites
from rootline.tree.check.root_diff import Changes, RootDiff
from rootline.tree.parts.restores import RESTORED_VERSIONS
from rootline.tree.proof.adoption import is_adopted
from rootline.tree.state.leaf_lookup import LeafKeys, LeafLookup
from rootline.tree.state.live_index import LiveIndex, StoredAt
from rootline.tree.state.table_state import NO_PAGES, TableState


async def load_to_build_on(
    store: ObjectStore, table: TableName, version: Version, known: TableState | None = None
) -> TableState:
    """Load the whole table at `version`, with its pages, so that the next version can be built on it.

    `known`: an older version of the table, whose leaves and pages are not re-read. Raises the errors of `load_state`.
    """
    root = await read_root(store, table, version)
    pages, leaves, live = (NO_PAGES, None, None) if known is None else (known.pages, known.leaves, known.live)
    state = await load_state(store, root, known_leaves=leaves, known=live, to_build_on=True)
    return replace(state, pages=await read_pages(store, root.header, pages))


async def load_state(
    store: ObjectStore,
    root: Root,
    *,
    known_leaves: Mapping[str, Leaf] | None = None,
    known: LiveIndex | None = None,
    to_build_on: bool = False,
) -> TableState:
    """Load the table of a root that was already read. Leaves in `known_leaves` are not re-read.

    `to_build_on`: the state will be kept for long. So the leaves' bytes are mapped from a file, and the index of
    locations is built. `known`: the index of an older version, which has hashed its leaves.

    Raises:
        Corrupt: an object is missing or damaged.
        Invalid: `file-unreadable`.
        Unavailable: `store-unavailable`.
    """
    definition = await read_definition(store, root.header)
    rows = [row.entry for row in root.rows if row.entry.content_type in LEAF_TYPES]
    live = [entry for entry in rows if entry.version_info.status is not Status.DELETED]
    keep = mapped if to_build_on else None
    leaves = await read_leaves(store, root.header.table, live, known_leaves, definition=definition, keep=keep)
    stored = await read_root_vectors(store, root)
    if not to_build_on or not leaves:
        return TableState.of(root, definition, leaves, stored_vectors=stored)

    def whole() -> TableState:
        kept = {location: leaf.kept_by(mapped) for location, leaf in leaves.items()}
        return TableState.of(root, definition, kept, stored_vectors=stored, known=known)

    async def indexed(lookup: LeafLookup) -> LeafKeys:
        return await asyncio.to_thread(lambda: lookup.keys)

    state = await asyncio.to_thread(whole)  # on threads, so that other tables' work can run
    await gather_bounded(state.live.lookups.values(), indexed, DECODED_AT_ONCE)
    await asyncio.to_thread(state.live.locations.build)
    return state


ROOTS_AHEAD: Final = 4
_VECTORS_AT_ONCE: Final = 8


async def changes_by_root(
    store: ObjectStore, table: TableName, after: int, up_to: int
) -> AsyncIterator[tuple[Root, Changes]]:
    """Yield the changes of each root after version `after`, up to and including `up_to`, in parts.

    A root may be yielded several times.

    Raises:
        Corrupt: an object is missing or damaged.
        Unavailable: `store-unavailable`.
    """
    async for root in _roots(store, table, after + 1, up_to):
        async for part in changes_of(store, root):
            yield root, part


async def changes_of(
    store: ObjectStore, root: Root, known_leaves: Mapping[str, Leaf] | None = None
) -> AsyncIterator[Changes]:
    """Yield the changes of one root, in parts. Raises the errors of `changes_by_root`."""
    table = root.header.table
    work = RootDiff(root, await read_manifest_vectors(store, root))
    yield work.of_root()
    definition = None
    if any(is_adopted(row) for row in (*work.carriers, *work.changed)):
        definition = await read_definition(store, root.header)
    async for entry, leaf in _leaves(store, table, work.carriers, known_leaves, definition):
        await asyncio.to_thread(work.carry, entry, leaf)
    async for entry, leaf in _leaves(store, table, work.changed, known_leaves, definition):
        yield await asyncio.to_thread(work.of_leaf, entry, leaf)


async def read_net_change(store: ObjectStore, table: TableName, after: int, up_to: int) -> NetChange:
    """The net change of the versions after `after`, up to and including `up_to`. Raises the errors of
    `changes_by_root`.

    Roots do not show what a rewrite replaced. If a restore follows one, the first and the last version are compared.
    """
    changes = NetChanges()
    is_rewritten = is_restored = False
    async for root, part in changes_by_root(store, table, after, up_to):
        summary = root.header.snapshot.summary
        is_rewritten |= states_rewrites(summary)
        is_restored |= is_rewritten and RESTORED_VERSIONS in summary
        changes.take(part)
    return await read_difference(store, table, Version(after), Version(up_to)) if is_restored else changes.net()


async def read_difference(store: ObjectStore, table: TableName, older: Version, newer: Version) -> NetChange:
    """The net change between two versions, even if some in between have expired. Raises the errors of
    `changes_by_root`.

    Both versions are read whole. Of a leaf that both reference, only entries that are live in one of them are compared.
    """
    before = await load_state(store, await read_root(store, table, older))
    after = await load_state(store, await read_root(store, table, newer, known=before.root))
    changes = NetChanges()
    changes.take(Changes((), tuple(_only_in(before, after))))
    changes.take(Changes(tuple(_only_in(after, before)), ()))
    return changes.net()


def _only_in(state: TableState, other: TableState) -> Iterator[ContentEntry]:
    """Yield live entries of a version, except those that are live in the same leaf of the other one."""
    yield from (row.entry for row in state.live.rows.values())
    nothing = BitMap()
    for location, leaf in state.leaves.items():
        live = BitMap(range(leaf.length)) - state.live.dead.get(location, nothing)
        if location in other.leaves:
            live &= other.live.dead.get(location, nothing)
        for entry in leaf.entries_at(list(live)):
            if entry.version_info.status is not Status.DELETED:
                yield entry


@dataclass(frozen=True, slots=True)
class RowsChange:
    """A data file that both versions have: the positions of rows that were deleted, and that were restored."""

    data_location: str
    deleted: BitMap64
    restored: BitMap64


async def read_rows_changes(store: ObjectStore, table: TableName, changes: Sequence[VectorsChange]) -> list[RowsChange]:
    """Read changed deletion vectors, and return the rows that each change deletes and restores.

    A vector that was only moved is skipped.

    Raises the errors of `changes_by_root`.
    """
    slots = asyncio.Semaphore(_VECTORS_AT_ONCE)

    async def positions(entries: Iterable[ContentEntry]) -> BitMap64:
        found = BitMap64()
        for entry in entries:
            async with slots:
                found |= await read_vector(store, table, entry)
        return found

    async def one(change: VectorsChange) -> RowsChange:
        before, after = await positions(change.before), await positions(change.after)
        return RowsChange(change.data_location, after - before, before - after)

    found = await asyncio.gather(*(one(change) for change in changes))
    return [change for change in found if change.deleted or change.restored]


async def _roots(store: ObjectStore, table: TableName, first: int, last: int) -> AsyncIterator[Root]:
    """Yield the roots in order, with a few GETs ahead. Blocks of rows that two neighbours share are decoded once."""
    ahead: deque[tuple[Version, asyncio.Task[StoredObject | None]]] = deque()
    following = iter(range(first, last + 1))
    known: Root | None = None
    try:
        while True:
            while len(ahead) < ROOTS_AHEAD and (number := next(following, None)) is not None:
                version = Version(number)
                ahead.append((version, asyncio.ensure_future(store.get(root_key(table, version)))))
            if not ahead:
                return
            version, reading = ahead.popleft()
            found = await reading
            if found is None:
                raise Corrupt("object-missing", f"{root_key(table, version)}: it does not exist; it may have expired")
            root = await asyncio.to_thread(proven_root, found.body, table, version, known)
            yield root
            known = root
    finally:
        readings = [reading for _, reading in ahead]
        for reading in readings:
            reading.cancel()
        await asyncio.gather(*readings, return_exceptions=True)


async def _leaves(
    store: ObjectStore,
    table: TableName,
    rows: Sequence[ContentEntry],
    known: Mapping[str, Leaf] | None,
    definition: TableDefinition | None,
) -> AsyncIterator[tuple[ContentEntry, Leaf]]:
    for start in range(0, len(rows), LEAVES_AT_ONCE):
        some = rows[start : start + LEAVES_AT_ONCE]
        leaves = await read_leaves(store, table, some, known, definition=definition)
        for row in some:
            yield row, leaves[row.location]


async def read_manifest_vectors(store: ObjectStore, root: Root) -> dict[StoredAt, BitMap]:
    """The manifest vectors in Puffin files, also those that the root drops. Raises the errors of `changes_by_root`."""
    rows = (row.entry for row in root.rows if row.entry.content_type is ContentType.MANIFEST_DV)
    return await read_stored_manifest_vectors(store, root.header.table, rows)
