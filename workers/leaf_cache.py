"""Leaves kept in memory: they never change, and plans need the same ones again and again.

Owns: what is kept, and for how long. Does not own: reading and proving a leaf
(`rootline.storage.metadata.object_reader`).
Invariants: bounded by the leaves' stored bytes; losing all of it costs time only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.leaf_codec import Leaf
from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.identifiers import TableName
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.object_reader import read_leaf


class LeafCache:
    """The leaves used last, up to `bytes_max` stored bytes of all tables together."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._kept: OrderedDict[tuple[TableName, str], tuple[Leaf, int]] = OrderedDict()
        self._bytes = 0

    async def leaves(
        self,
        store: ObjectStore,
        table: TableName,
        entries: Iterable[ContentEntry],
        definition: TableDefinition | None = None,
    ) -> dict[str, Leaf]:
        """Location → leaf of every root row in `entries`; absent ones are read, as `read_leaf` reads them."""
        return {entry.location: await self._leaf(store, table, entry, definition) for entry in entries}

    async def _leaf(
        self, store: ObjectStore, table: TableName, entry: ContentEntry, definition: TableDefinition | None
    ) -> Leaf:
        key = (table, entry.location)
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
            return kept[0]
        leaf = await read_leaf(store, table, entry, definition=definition)
        self._keep(key, leaf, entry.file_size_in_bytes or 0)
        return leaf

    def _keep(self, key: tuple[TableName, str], leaf: Leaf, size_in_bytes: int) -> None:
        if key in self._kept or size_in_bytes > self._bytes_max:
            return
        self._kept[key] = (leaf, size_in_bytes)
        self._bytes += size_in_bytes
        while self._bytes > self._bytes_max:
            _, (_, freed) = self._kept.popitem(last=False)
            self._bytes -= freed
