"""Reads the newest roots of the tables in memory back from the store, a few now and then.

A coordinator that has a head in memory does not read it again, so without this only readers would notice that the
stored bytes were damaged. It changes nothing: a table with a damaged head goes on committing, from what is in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from rootline.coordinator.runtime.table.table_loop import TableLoop
from rootline.coordinator.runtime.table.table_states import unreadable_head
from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import Corrupt, Unavailable
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.object_keys import root_key
from rootline.storage.metadata.root_reader import find_head, proven_root

CHECK_EVERY_S: Final = 60.0
CHECKED_AT_ONCE: Final = 10


@dataclass(slots=True)
class HeadCheck:
    """The check of stored heads in one process. `tables`: those in memory. `timeout_s`: of a request."""

    store: ObjectStore
    tables: Callable[[], Mapping[TableName, TableLoop]]
    timeout_s: float
    _damage: dict[TableName, tuple[Version, str]] = field(default_factory=dict)
    _checked: dict[TableName, None] = field(default_factory=dict)
    """In the order in which they were checked."""

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            await self.check()

    async def check(self) -> None:
        """Read the heads that were not read for longest."""
        tables = self.tables()
        self._checked = {table: None for table in self._checked if table in tables}
        self._damage = {table: damage for table, damage in self._damage.items() if table in tables}
        due = [table for table in tables if table not in self._checked] + list(self._checked)
        for table in due[:CHECKED_AT_ONCE]:
            loop = self.tables().get(table)
            head = None if loop is None else loop.machine.head
            self._checked.pop(table, None)
            self._checked[table] = None
            if head is not None:
                await self._check(table, head.header.version)

    def damage_of(self, table: TableName, version: int) -> str:
        """The damage of this version of `table` in the store, or empty if no damage is known."""
        found = self._damage.get(table)
        return unreadable_head(*found) if found is not None and found[0] == version else ""

    async def _check(self, table: TableName, version: Version) -> None:
        try:
            async with asyncio.timeout(self.timeout_s):
                why = await self._wrong_with(table, version)
        except (Unavailable, TimeoutError):
            return  # later
        if why and self._damage.get(table) != (version, why):
            structlog.get_logger().error("head damaged", action="check", table=table, version=version, reason=why)
        self._damage.pop(table, None)
        if why:
            self._damage[table] = (version, why)

    async def _wrong_with(self, table: TableName, version: Version) -> str:
        key = root_key(table, version)
        found = await self.store.get(key)
        if found is None:
            newest = await find_head(self.store, table)
            is_superseded = newest is not None and newest.version > version
            return "" if is_superseded else f"object-missing: {key}: this root does not exist"
        try:
            await asyncio.to_thread(proven_root, found.body, table, version)
        except Corrupt as error:
            return f"{error.code}: {error.message}"
        return ""
