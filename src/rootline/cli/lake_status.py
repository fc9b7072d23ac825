"""The states of all tables of a lake, from its store and its log, for `rootline status` and for the console.

Owns: the heads of many tables, joining the reports of store and log, polling both for the console. Does not own:
reading one head (`root_reader`) or the log (`rootline.adapters.log_state`), the word for a table's state
(`rootline.coordinator.runtime.table.table_states`), showing it.
Invariants: changes nothing and hosts nothing. What store or log does not report is left out, and that is reported. The
first refresh finds each head once, with one LIST each, a few at a time. A later one finds at most `REREAD_MAX` of
them: those that intents wait for, then the oldest. Each refresh reads at most `roots_max` roots in the same order,
because a refresh of ten thousand tables would read gigabytes. The console polls nothing while nobody watches, and at
most once in `POLL_EVERY_S`. A commit never waits for it, and a store that does not answer blocks a few readers, never
the list.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Final

from rootline.client.loop_thread import LoopThread
from rootline.connect import LogState, log_behind_root, look_at_log, open_warehouse
from rootline.coordinator.runtime.table.table_states import (
    LakeTables,
    LakeView,
    TableFacts,
    TableState,
    TableStatus,
    facts_of_written,
    state_of,
    unreadable_head,
)
from rootline.library_log import library_logger
from rootline.ports.intent_feed import ALL_TABLES, ParkedTable, Pause, pause_of
from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import Corrupt, RootlineError, Unavailable
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.parts.name import NameState
from rootline.storage.metadata.root_reader import HeadKey, at_head, find_head, names_of_folders, newest_root, read_root
from rootline.storage.metadata.scan_loader import read_root_vectors as read_stored_manifest_vectors
from rootline.storage.stored_objects import gather_bounded
from rootline.tree.scan.scan_plan import manifest_vectors
from rootline.tree.view import TreeOutline, outline_of_root

REREAD_MAX: Final = 50
NAMES_EVERY: Final = 10
ROOTS_MAX: Final = 50
POLL_EVERY_S: Final = 5.0
_AT_ONCE: Final = 8
_COMPARED_MAX: Final = 50
"""Tables with waiting records that a refresh compares with the log."""
_ROOTS_OF_POLL_MAX: Final = 5
"""Decoded beside commits, in the same process."""
_TREES_AT_ONCE: Final = 2
_TREE_TIMEOUT_S: Final = 30.0


class HeadCache:
    """The heads of the tables of one store, kept up to date with few requests.

    A folder without a root is not a table.
    """

    def __init__(self, store: ObjectStore, only: TableName | None = None, roots_max: int = ROOTS_MAX) -> None:
        self.store = store
        self._roots_max = roots_max
        self._only = only
        self._read: dict[TableName, Version | None] = {}
        """The heads, in the order in which they were read."""
        self._refreshes = 0
        self._proven: dict[TableName, None] = {}
        """The tables whose newest root was read back, in that order."""
        self.damaged: dict[TableName, str] = {}
        """The reason by table if its newest root was read and cannot be decoded."""

    async def refresh(self, urgent: Collection[TableName]) -> dict[TableName, Version]:
        """Find heads, and return the versions by name. Raises `Unavailable` (`store-unavailable`)."""
        names = [self._only] if self._only is not None else await self._names()
        fresh = [name for name in names if name not in self._read]
        known = sorted((name for name in self._read if name not in fresh), key=lambda name: name not in urgent)
        due = [*fresh, *known[: max(0, REREAD_MAX - len(fresh))]]
        for name, head in zip(due, await gather_bounded(due, self._head, _AT_ONCE), strict=True):
            self._read.pop(name, None)
            self._read[name] = head
        await self._prove([name for name in due if self._read[name] is not None], urgent)
        return {name: head for name, head in self._read.items() if head is not None}

    async def _prove(self, found: Collection[TableName], urgent: Collection[TableName]) -> None:
        order = {name: number for number, name in enumerate(self._proven)}
        due = sorted(found, key=lambda name: (name not in urgent, order.get(name, -1)))[: self._roots_max]
        for name, why in zip(due, await gather_bounded(due, self._fault_of, _AT_ONCE), strict=True):
            self._proven.pop(name, None)
            self._proven[name] = None
            self.damaged.pop(name, None)
            if why:
                self.damaged[name] = why

    async def _fault_of(self, name: TableName) -> str:
        versions = [self._read[name] or Version(0)]

        async def read(head: HeadKey) -> None:
            versions.append(head.version)
            found = await read_root(self.store, name, head.version)
            self._read[name] = found.header.version

        try:
            await at_head(self.store, name, read, HeadKey(versions[0], None))
        except Corrupt as error:
            return unreadable_head(versions[-1], f"{error.code}: {error.message}")
        except Unavailable:  # the bytes may be intact, and the next LIST finds out
            return ""
        return ""

    async def _names(self) -> list[TableName]:
        """The folders that may be tables. Every tenth refresh lists them, with one LIST for each namespace."""
        self._refreshes += 1
        if self._refreshes % NAMES_EVERY != 1:
            return list(self._read)
        return await names_of_folders(self.store)

    async def _head(self, name: TableName) -> Version | None:
        found = await find_head(self.store, name)
        return None if found is None else found.version


async def read_table_states(
    heads: HeadCache, warehouse: str, log: str | None, only: TableName | None = None
) -> tuple[list[TableStatus], list[str]]:
    """The statuses of every table, or `only` one, by name, and a message for each request that failed."""
    troubles: list[str] = []
    state: LogState | None = None
    found: Mapping[TableName, Version] = {}
    try:
        state = await look_at_log(warehouse, log)
    except RootlineError as error:
        troubles.append(f"the log: {error}")
    try:
        found = await heads.refresh(() if state is None else state.tables)
    except RootlineError as error:
        troubles.append(f"the store: {error}")
    names = {only} if only is not None else {*found, *(() if state is None else _named_by(state))}
    if state is None:
        return [TableStatus(name, TableState.UNKNOWN, found.get(name)) for name in sorted(names)], troubles
    pauses, parked = {pause.table: pause for pause in state.pauses}, _parked(state)
    behind = await _behind_root(heads, warehouse, log, [name for name in sorted(names) if _may_be_behind(state, name)])
    obstacles = {
        name: _Obstacles(
            pause_of(pauses, name), parked.get(name, []), heads.damaged.get(name, ""), behind.get(name, "")
        )
        for name in names
    }
    return [_status(name, found.get(name), state, obstacles[name]) for name in sorted(names)], troubles


def facts_of_log(pause: Pause | None, parked: Sequence[ParkedTable]) -> TableFacts:
    """The facts that a log states about a table that is paused or cannot continue."""
    found = facts_of_written(parked[0].why) if parked else TableFacts()
    return found if pause is None else replace(found, paused=pause.reason)


def _named_by(state: LogState) -> set[TableName]:
    return {name for name in state.tables if name and name != ALL_TABLES}


@dataclass(frozen=True, slots=True)
class _Obstacles:
    """The obstacles to deciding a table's intents, or to reading its rows."""

    pause: Pause | None
    parked: Sequence[ParkedTable]
    damaged: str
    behind: str


def _may_be_behind(state: LogState, name: TableName) -> bool:
    """Whether records of the table wait on an embedded log, which can be compared with its root."""
    return not state.of_partition and state.waiting_of(name).records > 0


async def _behind_root(
    heads: HeadCache, warehouse: str, log: str | None, names: Sequence[TableName]
) -> dict[TableName, str]:
    """Table → the reason why the log is not the one whose records its root has decided. Only such tables."""
    found: dict[TableName, str] = {}
    for name in names[:_COMPARED_MAX]:
        with contextlib.suppress(RootlineError):  # a store or a root that cannot be read is reported elsewhere
            root = await newest_root(heads.store, name)
            why = None if root is None else await asyncio.to_thread(log_behind_root, log, warehouse, root.header)
            if why is not None:
                found[name] = why
    return found


def _parked(state: LogState) -> dict[TableName, list[ParkedTable]]:
    found: dict[TableName, list[ParkedTable]] = {}
    for each in state.parked:
        found.setdefault(each.table, []).append(each)
    return found


def _status(name: TableName, head: Version | None, state: LogState, obstacles: _Obstacles) -> TableStatus:
    waiting, owner = state.waiting_of(name), state.owner_of(name)
    parked = sum(each.records for each in obstacles.parked)
    known = [waiting.oldest_ms, *(each.oldest_ms for each in obstacles.parked)]
    oldest_ms = min((found for found in known if found is not None), default=None)
    what, why = _state_of(obstacles, state, waiting.records, owner)
    return TableStatus(name, what, head, waiting.records + parked, oldest_ms, owner, why, parked)


def _state_of(obstacles: _Obstacles, state: LogState, waiting: int, owner: str | None) -> tuple[TableState, str]:
    nobody = "no coordinator has it: start one with `rootline up` or `rootline coordinator`"
    waits = "intents of its partition wait for verdicts" if state.of_partition else "intents wait"
    of_log = facts_of_log(obstacles.pause, obstacles.parked)
    return state_of(
        replace(
            of_log,
            quarantined=of_log.quarantined or (f"log-behind-root: {obstacles.behind}" if obstacles.behind else ""),
            damaged=obstacles.damaged,
            unowned=nobody if owner is None else "",
            waits=waits if waiting else "",
        )
    )


class LakePoller(LakeView):
    """The view of one lake, read on its own loop and store beside the coordinator."""

    def __init__(self, warehouse: str, log: str | None, thread: LoopThread, store: ObjectStore) -> None:
        self._warehouse = warehouse
        self._log = log
        self._thread = thread
        self._store = store
        self._heads = HeadCache(store, roots_max=_ROOTS_OF_POLL_MAX)
        self._known = LakeTables()
        self._polled_s = -POLL_EVERY_S
        self._polling: Future[LakeTables] | None = None
        self._trees = asyncio.Semaphore(_TREES_AT_ONCE)

    def tables(self) -> LakeTables:
        """The newest known tables. Starts the next poll when the last one is some seconds old."""
        polling = self._polling
        if polling is not None and polling.done():
            self._polling = None
            if not polling.cancelled():
                self._known = polling.result()
        if self._polling is None and time.monotonic() - self._polled_s >= POLL_EVERY_S:
            self._polled_s = time.monotonic()
            self._polling = self._thread.submit(self._poll())
        return self._known

    async def outline(self, table: TableName) -> TreeOutline | None:
        """The tree of a table's newest version. Raises the errors of the port."""
        async with asyncio.timeout(_TREE_TIMEOUT_S), self._trees:
            return await asyncio.wrap_future(self._thread.submit(self._outline(table)))

    async def _poll(self) -> LakeTables:
        try:
            tables, troubles = await read_table_states(self._heads, self._warehouse, self._log)
        except Exception as error:  # a fault of the console must not end the coordinator
            library_logger().exception("lake not polled", action="look")
            tables, troubles = list(self._known.tables), [f"{type(error).__name__}: {error}"]
        return LakeTables(tuple(tables), tuple(troubles), int(time.time() * 1000))

    async def _outline(self, table: TableName) -> TreeOutline | None:
        root = await at_head(self._store, table, lambda head: read_root(self._store, table, head.version))
        if root is None or root.header.name.state is not NameState.TABLE:
            return None
        stored = await read_stored_manifest_vectors(self._store, root)
        return outline_of_root(root, manifest_vectors(root, stored))


@contextlib.asynccontextmanager
async def open_lake_poller(warehouse: str, log: str | None) -> AsyncIterator[LakePoller]:
    """Poll a lake until the block ends. Raises `RootlineError`: its store cannot be opened."""
    thread = LoopThread("rootline console")

    async def opened() -> ObjectStore:
        return open_warehouse(warehouse)

    try:
        store = await asyncio.wrap_future(thread.submit(opened()))
        try:
            yield LakePoller(warehouse, log, thread, store)
        finally:
            with contextlib.suppress(RootlineError):
                await asyncio.wrap_future(thread.submit(store.close()))
    finally:
        await asyncio.to_thread(thread.close)
