"""What the console shows of the whole lake, read on a loop and a store of its own beside the coordinator.

Owns: when store and log are asked, the thread, its life. Does not own: asking them (`lake_status`), what is shown.
Invariants: nothing is asked while no one looks, and at most once in `LOOK_EVERY_S`; a commit never waits for it; a
store that does not answer holds up a few readers, never the list of tables.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from concurrent.futures import Future
from typing import Final

import structlog

from rootline.cli.head_board import HeadCache
from rootline.cli.lake_status import look_at_tables
from rootline.client.session.loop_thread import LoopThread
from rootline.connect import open_warehouse
from rootline.coordinator.http.lake_view import LakeTables
from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import RootlineError
from rootline.schemas.identifiers import TableName
from rootline.schemas.root_header import NameState
from rootline.storage.metadata.head_finder import at_head
from rootline.storage.metadata.root_reader import read_root
from rootline.storage.metadata.table_loader import read_stored_manifest_vectors
from rootline.tree.scan.scan_plan import manifest_vectors
from rootline.tree.view.outline import TreeOutline, outline_of_root

LOOK_EVERY_S: Final = 5.0
_ROOTS_MAX: Final = 5
"""Decoded beside commits, in the same process."""
_TREES_AT_ONCE: Final = 2
_TIMEOUT_S: Final = 30.0


class LakeLook:
    """`rootline.coordinator.http.lake_view.LakeView`, for one lake."""

    def __init__(self, warehouse: str, log: str | None, thread: LoopThread, store: ObjectStore) -> None:
        self._warehouse = warehouse
        self._log = log
        self._thread = thread
        self._store = store
        self._board = HeadCache(store, roots_max=_ROOTS_MAX)
        self._known = LakeTables()
        self._asked_s = -LOOK_EVERY_S
        self._looking: Future[LakeTables] | None = None
        self._trees = asyncio.Semaphore(_TREES_AT_ONCE)

    def tables(self) -> LakeTables:
        """As the interface says."""
        looking = self._looking
        if looking is not None and looking.done():
            self._looking = None
            if not looking.cancelled():
                self._known = looking.result()
        if self._looking is None and time.monotonic() - self._asked_s >= LOOK_EVERY_S:
            self._asked_s = time.monotonic()
            self._looking = self._thread.submit(self._look())
        return self._known

    async def outline(self, table: TableName) -> TreeOutline | None:
        """As the interface says."""
        async with asyncio.timeout(_TIMEOUT_S), self._trees:
            return await asyncio.wrap_future(self._thread.submit(self._outline(table)))

    async def _look(self) -> LakeTables:
        try:
            tables, troubles = await look_at_tables(self._board, self._warehouse, self._log)
        except Exception as error:  # what only shows how things are must not end what works
            structlog.get_logger().exception("lake not looked at", action="look")
            tables, troubles = list(self._known.tables), [f"{type(error).__name__}: {error}"]
        return LakeTables(tuple(tables), tuple(troubles), int(time.time() * 1000))

    async def _outline(self, table: TableName) -> TreeOutline | None:
        root = await at_head(self._store, table, lambda head: read_root(self._store, table, head.version))
        if root is None or root.header.name_is is not NameState.TABLE:
            return None
        stored = await read_stored_manifest_vectors(self._store, root)
        return outline_of_root(root, manifest_vectors(root, stored))


@contextlib.asynccontextmanager
async def open_lake_poller(warehouse: str, log: str | None) -> AsyncIterator[LakeLook]:
    """Look at a lake until the block ends. Raises `RootlineError`: its store cannot be opened."""
    thread = LoopThread("rootline console")

    async def opened() -> ObjectStore:
        return open_warehouse(warehouse)

    try:
        store = await asyncio.wrap_future(thread.submit(opened()))
        try:
            yield LakeLook(warehouse, log, thread, store)
        finally:
            with contextlib.suppress(RootlineError):
                await asyncio.wrap_future(thread.submit(store.close()))
    finally:
        await asyncio.to_thread(thread.close)
