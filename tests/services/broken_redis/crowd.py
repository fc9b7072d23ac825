"""Writers that append rows to several tables, and remember what was acknowledged.

Owns: what is written and how long verdicts took. Does not own: what breaks meanwhile, the judgement (`ingest`).
Invariants: a row has an id of its own; a row counts as acknowledged when its writer was told `committed`, and a writer
that is told anything else, or nothing within `PATIENCE_S`, fails the run.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from rootline.client.lake import Lake
from rootline.client.new_files import write_and_store
from rootline.client.producer import AsyncProducer
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import Intent, IntentKind
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.verdict import VerdictKind

SCHEMA: Final = pa.schema([("id", pa.int64()), ("v", pa.string())])
PATIENCE_S: Final = 300.0
_ROWS: Final = 5
_TARGET_BYTES: Final = 1 << 26


@dataclass
class Crowd:
    """`phase`: what the waits of now are noted under."""

    lake: Lake
    definitions: dict[TableName, TableDefinition]
    writers: int
    think_s: float
    phase: str = ""
    acknowledged: dict[TableName, list[int]] = field(default_factory=lambda: defaultdict(list))
    waits_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    enough: asyncio.Event = field(default_factory=asyncio.Event)
    _ids: Iterator[int] = field(default_factory=itertools.count)

    async def run(self) -> None:
        """Until `enough`."""
        tables = list(self.definitions)
        async with asyncio.TaskGroup() as group, self.lake.async_producer() as producer:
            tasks = [
                group.create_task(self._write(producer, tables[number % len(tables)], random.Random(number)))
                for number in range(self.writers)
            ]
            await asyncio.wait(tasks)

    async def _write(self, producer: AsyncProducer, table: TableName, rng: random.Random) -> None:
        while not self.enough.is_set():
            await self._append(producer, table)
            try:
                await asyncio.wait_for(self.enough.wait(), rng.expovariate(1 / self.think_s))
            except TimeoutError:
                continue

    async def _append(self, producer: AsyncProducer, table: TableName) -> None:
        definition = self.definitions[table]
        ids = list(itertools.islice(self._ids, _ROWS))
        rows = pa.table([pa.array(ids), pa.array([uuid.uuid4().hex] * _ROWS)], schema=SCHEMA)
        files = await self.lake.holder.run_async(
            lambda session: write_and_store(session, table, definition, rows, _TARGET_BYTES)
        )
        intent = Intent(
            intent_id=uuid.uuid4().hex,
            table=table,
            table_uuid=definition.table_uuid,
            schema_id=definition.current_schema_id,
            kind=IntentKind.APPEND,
            add_data_files=tuple(files),
        )
        phase, began_s = self.phase, time.monotonic()
        receipt = await producer.publish(intent)
        verdict = await receipt.verdict(timeout_s=PATIENCE_S)
        assert verdict.kind is VerdictKind.COMMITTED, f"{phase}: {verdict}"
        self.waits_s[phase].append(time.monotonic() - began_s)
        self.acknowledged[table] += ids
