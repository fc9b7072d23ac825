"""What a reader keeps of the metadata it has read, because none of it ever changes.

Owns: what is kept, and for how long. Does not own: reading and proving (the readers), which version is the head: the
store is asked every time (`head_finder`).
Invariants: bounded by bytes, the least recently used goes first; only what was proven is kept, under a name that is
never used again; losing it all changes latency only.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.identifiers import ObjectKey, TableName

CACHE_BYTES_MAX: Final = 256 * 1024 * 1024
_DECODED_FACTOR: Final = 2
"""A leaf in memory, with the columns that planning keeps of it, against its stored bytes."""
_ROW_BYTES: Final = 1_000
"""A row of a root in memory, besides its bytes: about."""


class ReadCache:
    """Leaves, the newest root of each table, and the bytes of roots, definitions, vectors and pages; of all tables."""

    def __init__(self, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self._kept: OrderedDict[str, tuple[Leaf | Root | bytes, int]] = OrderedDict()
        self._bytes = 0

    @property
    def size_in_bytes(self) -> int:
        """What is kept now."""
        return self._bytes

    def leaf(self, table: TableName, location: str) -> Leaf | None:
        """The leaf at `location`, if it is kept."""
        found = self._get(_leaf_name(table, location))
        return found if isinstance(found, Leaf) else None

    def keep_leaf(self, table: TableName, leaf: Leaf) -> None:
        """Keep a leaf that was proven."""
        self._keep(_leaf_name(table, leaf.location), leaf, leaf.size_in_bytes * _DECODED_FACTOR)

    def root(self, table: TableName) -> Root | None:
        """The newest root of `table` that was kept."""
        found = self._get(f"root {table}")
        return found if isinstance(found, Root) else None

    def keep_root(self, root: Root) -> None:
        """Keep a root that was proven in place of an older one of its table."""
        known, name = self.root(root.header.table), f"root {root.header.table}"
        if known is not None and known.header.version >= root.header.version:
            return
        self._forget(name)
        tails = sum(len(row.tail) for row in root.rows)
        self._keep(name, root, root.row_count * _ROW_BYTES + tails * _DECODED_FACTOR)

    def body(self, key: ObjectKey) -> bytes | None:
        """The bytes of the object `key`, if they are kept."""
        found = self._get(key)
        return found if isinstance(found, bytes) else None

    def keep_body(self, key: ObjectKey, body: bytes) -> None:
        """Keep an object's bytes."""
        self._keep(key, body, len(body))

    def _get(self, name: str) -> Leaf | Root | bytes | None:
        kept = self._kept.get(name)
        if kept is None:
            return None
        self._kept.move_to_end(name)
        return kept[0]

    def _forget(self, name: str) -> None:
        _, freed = self._kept.pop(name, (b"", 0))
        self._bytes -= freed

    def _keep(self, name: str, value: Leaf | Root | bytes, size_in_bytes: int) -> None:
        if name in self._kept or size_in_bytes > self.bytes_max:
            return
        self._kept[name] = (value, size_in_bytes)
        self._bytes += size_in_bytes
        while self._bytes > self.bytes_max:
            _, (_, freed) = self._kept.popitem(last=False)
            self._bytes -= freed


def _leaf_name(table: TableName, location: str) -> str:
    return f"leaf {table} {location}"  # of one table: an older format's manifest is read by that table's definition
