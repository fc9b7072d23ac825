"""Loading the part of a version that a scan needs.

Owns: reading the missing leaves of a plan side by side. Does not own: the choice of leaves and files
(`rootline.tree.scan.scan_plan`), verifying bytes (`object_reader`).
Invariants: a plan reads no leaf that its filter prunes, and no page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from pyroaring import BitMap

from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import ContentEntry, ContentType, Status
from rootline.schemas.identifiers import TableName
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.object_reader import read_leaves, read_stored_manifest_vectors
from rootline.storage.metadata.read_cache import ReadCache
from rootline.tree.filter.pruning import PruningFilter
from rootline.tree.scan.scan_plan import DeletesFor, ScanPlan, ScanPlanner, manifest_vectors


async def plan_scan(
    store: ObjectStore,
    root: Root,
    definition: TableDefinition,
    pruning: PruningFilter,
    *,
    cache: ReadCache | None = None,
    deletes_for: DeletesFor = DeletesFor.MATCHING_ROWS,
) -> ScanPlan:
    """The plan of a scan of `root`. The needed leaves that are not in `cache` are read concurrently.

    Raises:
        Corrupt: an object is missing or damaged.
        Invalid: `equality-delete-unread`.
        Unavailable: `store-unavailable`.
    """
    table = root.header.table
    planner = ScanPlanner(root, definition, pruning, deletes_for)
    kept = {} if cache is None else _kept_leaves(cache, table, planner.missing({}))
    reading = asyncio.ensure_future(read_root_vectors(store, root))
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


async def read_root_vectors(store: ObjectStore, root: Root) -> dict[tuple[str, int], BitMap]:
    """(location, offset) → live manifest vector, for those in Puffin files. Rootline itself writes them into the root.

    Raises the errors of `plan_scan`.
    """
    rows = (row.entry for row in root.rows if row.entry.content_type is ContentType.MANIFEST_DV)
    live = [entry for entry in rows if entry.version_info.status is not Status.DELETED]
    return await read_stored_manifest_vectors(store, root.header.table, live)
