"""Readers of one table: the newest version, old ones, and slow scans that versions expire under.

Owns: which versions are scanned, and what may come instead of rows. Does not own: what rows are right (`row_history`).
Invariants: a scan that has begun ends right, whatever expires meanwhile, as long as it takes less than half of the
retention of scans; a version may be unknown only if the head does not address it any more.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from rootline.client.lake import Lake
from rootline.client.session import Session
from rootline.schemas.errors import Invalid
from rootline.storage.metadata.page_reader import read_kept
from rootline.storage.metadata.root_reader import table_root
from rootline.tree.state.addressable import Addressable
from tests.kafka.chaos.crowd import elapsed
from tests.services.constant_ingest.gate import Gate
from tests.services.constant_ingest.row_history import RowHistory
from tests.services.constant_ingest.writers import TABLE, value_of


@dataclass
class Read:
    """What came of the scans."""

    newest: int = 0
    older: int = 0
    slow: int = 0
    outlived: int = 0
    """Slow scans whose version had expired when they ended."""
    unknown: int = 0
    """Versions that expired between the choice and the scan."""


@dataclass
class Readers:
    """`hold_s`: how long a slow scan pauses at most; `pause_s`: between two scans of a reader."""

    lake: Lake
    count: int
    hold_s: float
    pause_s: float
    gate: Gate
    history: RowHistory
    read: Read = field(default_factory=Read)
    enough: asyncio.Event = field(default_factory=asyncio.Event)
    hurries: bool = False
    """No slow scans now."""

    async def run(self) -> None:
        """Until `enough`."""
        async with asyncio.TaskGroup() as group:
            for number in range(self.count):
                group.create_task(self._run(random.Random(number), is_slow=number == 1))

    async def _run(self, rng: random.Random, *, is_slow: bool) -> None:
        while not self.enough.is_set():
            async with self.gate.passing():
                await self._scan(rng, rng.uniform(0.3, 1.0) * self.hold_s if is_slow and not self.hurries else 0.0)
            await elapsed(self.pause_s)

    async def _addressable(self) -> Addressable:
        async def ask(session: Session) -> Addressable:
            header = (await table_root(session.store, TABLE)).header
            return Addressable.of(header, await read_kept(session.store, header))

        return await self.lake.holder.run_async(ask)

    async def _scan(self, rng: random.Random, hold_s: float) -> None:
        versions = await self._addressable()
        newest = versions.newest
        choice = rng.random()
        if hold_s:
            version = versions.oldest  # the next to expire
        elif choice < 0.4:
            version = newest
        elif choice < 0.7 or not versions.older():
            version = rng.randint(versions.oldest, newest)
        else:
            version = rng.choice(versions.older())
        try:
            rows = await asyncio.to_thread(self._rows, version, hold_s)
        except Invalid as error:
            if error.code != "version-unknown" or (await self._addressable()).has(version):
                raise
            self.read.unknown += 1
            return
        assert np.array_equal(rows["v"], value_of(rows["id"])), f"version {version}: a row has another row's value"
        self.history.saw(version, rows["id"])
        if hold_s:
            self.read.slow += 1
            self.read.outlived += not (await self._addressable()).has(version)
        elif version == newest:
            self.read.newest += 1
        else:
            self.read.older += 1

    def _rows(self, version: int, hold_s: float) -> dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]]:
        scan = self.lake.table(TABLE).scan(columns=["id", "v"], version=version)
        batches: Iterator[pa.RecordBatch] = scan.to_batches()
        found = []
        until_s, waiting = time.monotonic() + hold_s, threading.Event()
        for batch in batches:
            found.append(batch)
            while time.monotonic() < until_s and not self.enough.is_set():
                waiting.wait(0.05)
        table = pa.Table.from_batches(found, pa.schema([("id", pa.int64()), ("v", pa.int64())]))
        return {name: table.column(name).to_numpy() for name in ("id", "v")}
