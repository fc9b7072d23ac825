"""Leaves that records name, read and proven as soon as the records arrive.

Owns: which leaves are read ahead, and how many bytes of them. Does not own: reading and proving one (`object_fetcher`),
who asks for them (`effect_runner`), whether they are needed (`rootline.tree.commit.apply`).
Invariants: losing everything here changes latency only; what could not be read is asked for again by the batch that
needs it, which decides what that means; nothing outlives the records that named it.

Source: protocol page, section 3: what needs another object first is fetched on arrival, not when its batch closes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

import structlog

from rootline.coordinator.runtime.table.file_shelf import FooterPrefetch
from rootline.coordinator.runtime.table.object_fetcher import ReadLeaf, read_leaf
from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import RootlineError
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import AddedManifest
from rootline.schemas.intent_rules import is_plain
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.draft.batch import Record
from rootline.tree.rules.named_leaves import LEAVES_PREFIX

AHEAD_BYTES_MAX: Final = 128 * 1024 * 1024
"""Of leaves that are read ahead for one table, as their intents state them: two large commits and a small one."""


class LeafPrefetch:
    """The leaves of one table's waiting records."""

    def __init__(self, store: ObjectStore, table: TableName, bytes_max: int = AHEAD_BYTES_MAX) -> None:
        self._store, self._table, self._bytes_max = store, table, bytes_max
        self._reads: dict[str, asyncio.Task[ReadLeaf | None]] = {}
        self._sizes: dict[str, int] = {}
        self.files = FooterPrefetch(store, table)
        """Their data files, and those that records name themselves."""

    @property
    def buffered_bytes(self) -> int:
        """Of the leaves that have been read, or are being read, as their intents state them."""
        return sum(self._sizes.values())

    def expect(self, records: Iterable[Record], definition: TableDefinition | None, tasks: asyncio.TaskGroup) -> None:
        """Begin to read the leaves that `records` name; those that find no room are left for later.

        Of records that are refused whatever they name, nothing is read.
        """
        judged = [record for record in records if record.refusal is None]
        self.files.expect(judged, definition, tasks)
        for record in judged:
            for manifest in record.intent.add_manifests:
                self._expect(manifest, definition, tasks)

    def keep(self, records: Sequence[Record]) -> None:
        """Forget all leaves but those that `records` name."""
        self.files.keep(records)
        if not self._reads:
            return
        named = {manifest.location for record in records for manifest in record.intent.add_manifests}
        for location in self._reads.keys() - named:
            self._forget(location)

    async def find(self, location: str) -> ReadLeaf | None:
        """What came of reading the leaf ahead; `None` when nothing did. Waits while it is being read."""
        task = self._reads.get(location)
        if task is None:
            return None
        await asyncio.wait({task})  # a caller that stops waiting must not stop the reading
        found = None if task.cancelled() else task.result()
        if found is not None and found.leaf is None and found.trouble is None:
            found = None  # it may have been stored since
        if found is None and self._reads.get(location) is task:
            self._forget(location)
        return found

    def close(self) -> None:
        """Read no more."""
        self.keep(())

    def _expect(self, manifest: AddedManifest, definition: TableDefinition | None, tasks: asyncio.TaskGroup) -> None:
        location, size = manifest.location, manifest.file_size_in_bytes
        if location in self._reads or not (is_plain(location) and location.startswith(LEAVES_PREFIX)):
            return
        if self.buffered_bytes + size <= self._bytes_max:
            self._sizes[location] = size
            self._reads[location] = tasks.create_task(self._read(location, definition), name=f"reading {location}")

    async def _read(self, location: str, definition: TableDefinition | None) -> ReadLeaf | None:
        try:
            return await read_leaf(self._store, self._table, location, definition, self.files.reader)
        except RootlineError:
            return None
        except Exception:  # a bug of ours or of a store's must not end the table's task
            structlog.get_logger().exception("leaf not read ahead", action="retry", table=self._table)
            return None

    def _forget(self, location: str) -> None:
        self._sizes.pop(location, None)
        self._reads.pop(location).cancel()
