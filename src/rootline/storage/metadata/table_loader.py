"""Loads a table: one version whole, or as much of it as a scan needs.

Owns: the order of the reads. Does not own: proving bytes (the readers), which version is addressable (the client's
time travel), what a state holds (`rootline.tree.state.table_state`).
Invariants: leaves and pages never change, so what is known is not read again; a plan reads no leaf that its filter
prunes; pages are read only to build on a version, because they say what was decided, not what is in the table.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace

from pyroaring import BitMap

from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import LEAF_TYPES, ContentEntry, ContentType, Status
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata import vector_reader
from rootline.storage.metadata.leaf_reader import read_leaves
from rootline.storage.metadata.mapped_bytes import mapped
from rootline.storage.metadata.page_reader import read_pages
from rootline.storage.metadata.read_cache import ReadCache
from rootline.storage.metadata.root_reader import read_definition, read_root
from rootline.tree.filter.prune import PruningFilter
from rootline.tree.scan.scan_plan import DeletesFor, ScanPlan, ScanPlanner, manifest_vectors
from rootline.tree.state.table_pages import NO_PAGES
from rootline.tree.state.table_state import TableState


async def load_to_build_on(
    store: ObjectStore, table: TableName, version: Version, known: TableState | None = None
) -> TableState:
    """The whole table at `version` with its pages, to make the next version from.

    `known`: an older version of the table, whose leaves and pages are not read again. Raises as `load_state`.
    """
    root = await read_root(store, table, version)
    pages = NO_PAGES if known is None else known.pages
    state = await load_state(store, root, known_leaves=None if known is None else known.leaves, to_build_on=True)
    return replace(state, pages=await read_pages(store, root.header, pages))


async def load_state(
    store: ObjectStore, root: Root, *, known_leaves: Mapping[str, Leaf] | None = None, to_build_on: bool = False
) -> TableState:
    """The table that `root`, read already, describes; arguments and `Raises` as `load_table`.

    `to_build_on`: it is kept for long; leaves' bytes leave the process's memory, and the location index is built.
    """
    definition = await read_definition(store, root.header)
    rows = [row.entry for row in root.rows if row.entry.content_type in LEAF_TYPES]
    live = [entry for entry in rows if entry.version_info.status is not Status.DELETED]
    leaves = await read_leaves(store, root.header.table, live, known_leaves, definition=definition)
    stored = await read_stored_manifest_vectors(store, root)
    if not to_build_on or not leaves:
        return TableState.of(root, definition, leaves, stored_vectors=stored)

    def whole() -> TableState:
        kept = {location: leaf.kept_by(mapped) for location, leaf in leaves.items()}
        state = TableState.of(root, definition, kept, stored_vectors=stored)
        state.live.locations.build()
        return state

    return await asyncio.to_thread(whole)  # other tables go on meanwhile


async def plan_scan(
    store: ObjectStore,
    root: Root,
    definition: TableDefinition,
    pruning: PruningFilter,
    *,
    cache: ReadCache | None = None,
    deletes_for: DeletesFor = DeletesFor.MATCHING_ROWS,
) -> ScanPlan:
    """The plan of a scan of `root`, reading the leaves that it needs and `cache` does not hold, all at once.

    Raises:
        Corrupt: an object is missing, or not what was written.
        Invalid: `equality-delete-unread`.
        Unavailable: `store-unavailable`.

    """
    table = root.header.table
    planner = ScanPlanner(root, definition, pruning, deletes_for)
    kept = {} if cache is None else _kept_leaves(cache, table, planner.missing({}))
    reading = asyncio.ensure_future(read_stored_manifest_vectors(store, root))
    try:
        leaves = kept | await read_leaves(store, table, planner.missing(kept), definition=definition)
        dead = manifest_vectors(root, await reading)
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    found = await asyncio.to_thread(planner.plan, leaves, dead)
    if cache is not None:
        for leaf in leaves.values():
            cache.keep_leaf(table, leaf)
    return found


def _kept_leaves(cache: ReadCache, table: TableName, rows: Iterable[ContentEntry]) -> dict[str, Leaf]:
    found = ((row, cache.leaf(table, row.location)) for row in rows)
    return {row.location: leaf.of_row(row) for row, leaf in found if leaf is not None}


async def read_stored_manifest_vectors(store: ObjectStore, root: Root) -> dict[tuple[str, int], BitMap]:
    """(location, offset) → the manifest vectors that are in Puffin files; ours are inline. Raises as `plan_scan`."""
    rows = (row.entry for row in root.rows if row.entry.content_type is ContentType.MANIFEST_DV)
    live = [entry for entry in rows if entry.version_info.status is not Status.DELETED]
    return await vector_reader.read_stored_manifest_vectors(store, root.header.table, live)
