"""Reads what a range of versions changed, root by root, each from that root alone.

Owns: the reads, and keeping them few and small. Does not own: what a root shows (`rootline.tree.check.root_diff`),
which versions are addressable (the caller knows), the fold (`rootline.tree.check.net_changes`).
Invariants: beside the result, a few roots and the leaves that one of them changed are held, a few of these at a time;
a leaf that no root of the range changed is not read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyroaring import BitMap, BitMap64

from rootline.ports.object_store import ObjectStore, StoredObject
from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import ContentEntry, ContentType, Status
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.object_keys import root_key
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.leaf_reader import LEAVES_AT_ONCE, read_leaves
from rootline.storage.metadata.root_reader import proven_root, read_definition, read_root
from rootline.storage.metadata.table_loader import load_state
from rootline.storage.metadata.vector_reader import read_stored_manifest_vectors, read_vector
from rootline.tree.check.net_changes import NetChange, NetChanges, VectorsChange
from rootline.tree.check.root_diff import Changes, RootDiff
from rootline.tree.proof.adopted_rows import is_adopted
from rootline.tree.state.live_index import StoredAt
from rootline.tree.state.table_state import TableState

ROOTS_AHEAD: Final = 4
_VECTORS_AT_ONCE: Final = 8


async def changes_by_root(
    store: ObjectStore, table: TableName, after: int, up_to: int
) -> AsyncIterator[tuple[Root, Changes]]:
    """The changes of each root after version `after` up to and with `up_to`, in parts: a root may come several times.

    Raises:
        Corrupt: an object is missing, or not what was written.
        Unavailable: `store-unavailable`.

    """
    async for root in _roots(store, table, after + 1, up_to):
        async for part in changes_of(store, root):
            yield root, part


async def changes_of(
    store: ObjectStore, root: Root, known_leaves: Mapping[str, Leaf] | None = None
) -> AsyncIterator[Changes]:
    """The changes of one root, in parts. Raises as `changes_by_root`."""
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
    """What the versions after `after` up to and with `up_to` come to. Raises as `changes_by_root`."""
    changes = NetChanges()
    async for _, part in changes_by_root(store, table, after, up_to):
        changes.take(part)
    return changes.net()


async def read_difference(store: ObjectStore, table: TableName, older: Version, newer: Version) -> NetChange:
    """What two versions come to that need not have all versions between them. Raises as `changes_by_root`.

    Both are read whole; of leaves that both have, only what differs is compared.
    """
    before = await load_state(store, await read_root(store, table, older))
    after = await load_state(store, await read_root(store, table, newer, known=before.root))
    changes = NetChanges()
    changes.take(Changes((), tuple(_only_in(before, after))))
    changes.take(Changes(tuple(_only_in(after, before)), ()))
    return changes.net()


def _only_in(state: TableState, other: TableState) -> Iterator[ContentEntry]:
    """Live entries of a version, without those of leaves that are live in the same leaf of the other one too."""
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
    """A data file that stayed: the positions of its rows that were deleted, and of those that came back."""

    data_location: str
    deleted: BitMap64
    restored: BitMap64


async def read_rows_changes(store: ObjectStore, table: TableName, changes: Sequence[VectorsChange]) -> list[RowsChange]:
    """What changed vectors mean for rows; one whose positions are the same, because it was only moved, is left out.

    Raises as `changes_by_root`.
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
    """In order, a few bodies ahead. What a root shares with the one before it is decoded once, and held once."""
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
                raise Corrupt("object-missing", f"{root_key(table, version)}: this root does not exist")
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
    """The manifest vectors of a root that are in Puffin files, dropped ones included. Raises as `changes_by_root`."""
    rows = (row.entry for row in root.rows if row.entry.content_type is ContentType.MANIFEST_DV)
    return await read_stored_manifest_vectors(store, root.header.table, rows)
