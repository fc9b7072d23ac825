"""Loads a table: one version whole, or as much of it as a scan needs.

Owns: the order of the reads. Does not own: proving bytes (the readers), which version is addressable (the client's
time travel), what a state holds (`rootline.tree.table_state`).
Invariants: leaves and pages never change, so what is known is not read again; a plan reads no leaf that its filter
prunes; only who builds on a version reads its pages, because they say what was decided, not what is in the table.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from pyroaring import BitMap

from rootline.ports.object_store import ObjectStore
from rootline.schemas.content_entry import ContentType, Status
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.leaf import Leaf
from rootline.schemas.root_codec import Root
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.head_finder import find_head
from rootline.storage.leaf_reader import read_leaves
from rootline.storage.page_reader import read_pages
from rootline.storage.root_reader import read_definition, read_root
from rootline.storage.vector_reader import read_manifest_vector
from rootline.tree.prune import PruningFilter
from rootline.tree.scan_plan import ScanPlan, ScanPlanner, manifest_vectors
from rootline.tree.table_pages import NO_PAGES
from rootline.tree.table_state import TableState

_LEAF_TYPES = (ContentType.DATA_MANIFEST, ContentType.DELETE_MANIFEST)


async def load_to_build_on(
    store: ObjectStore, table: TableName, version: Version, known: TableState | None = None
) -> TableState:
    """The whole table at `version` with its pages, for who is going to make the next one.

    `known`: an older version of the table, whose leaves and pages are not read again. Raises as `load_table`.
    """
    root = await read_root(store, table, version)
    pages = NO_PAGES if known is None else known.pages
    state = await load_state(store, root, known_leaves=None if known is None else known.leaves)
    return replace(state, pages=await read_pages(store, root.header, pages))


async def load_table(
    store: ObjectStore,
    table: TableName,
    version: Version | None = None,
    *,
    known_leaves: Mapping[str, Leaf] | None = None,
) -> TableState | None:
    """The live table at its head, or at `version`, which the caller knows to be addressable; without its pages.

    `None` when the table does not exist. `known_leaves`: leaves by location that are not read again.

    Raises:
        Corrupt: an object is missing, or not what was written.
        Unavailable: `store-unavailable`.

    """
    if version is None:
        head = await find_head(store, table)
        if head is None:
            return None
        version = head.version
    root = await read_root(store, table, version)
    return await load_state(store, root, known_leaves=known_leaves)


async def load_state(store: ObjectStore, root: Root, *, known_leaves: Mapping[str, Leaf] | None = None) -> TableState:
    """What `root`, read already, stands for; arguments and `Raises` as `load_table`."""
    definition = await read_definition(store, root.header)
    rows = [row.entry for row in root.rows if row.entry.content_type in _LEAF_TYPES]
    live = [entry for entry in rows if entry.version_info.status is not Status.DELETED]
    return TableState.of(root, definition, await read_leaves(store, root.header.table, live, known_leaves))


async def plan_scan(
    store: ObjectStore,
    root: Root,
    definition: TableDefinition,
    pruning: PruningFilter,
    *,
    known_leaves: Mapping[str, Leaf] | None = None,
) -> ScanPlan:
    """The plan of a scan of `root`, reading only the leaves that it needs.

    Raises:
        Corrupt: an object is missing, or not what was written.
        Invalid: `equality-delete-unread`.
        Unavailable: `store-unavailable`.

    """
    dead = manifest_vectors(root, await read_stored_manifest_vectors(store, root))
    planner = ScanPlanner(root, definition, pruning, dead)
    leaves = dict(known_leaves or {})
    while missing := await asyncio.to_thread(planner.missing, leaves):
        leaves |= await read_leaves(store, root.header.table, missing)
    return await asyncio.to_thread(planner.plan, leaves)


async def read_stored_manifest_vectors(store: ObjectStore, root: Root) -> dict[tuple[str, int], BitMap]:
    """(location, offset) → the manifest vectors that rest in Puffin files; ours are inline. Raises as `plan_scan`."""
    found: dict[tuple[str, int], BitMap] = {}
    for row in root.rows:
        entry, vector = row.entry, row.entry.deletion_vector
        if entry.content_type is not ContentType.MANIFEST_DV or entry.version_info.status is Status.DELETED:
            continue
        if vector is not None and vector.inline_content is None and vector.offset is not None:
            found[entry.location, vector.offset] = await read_manifest_vector(store, root.header.table, entry)
    return found
