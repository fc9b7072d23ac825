"""A coordinator over memory: a log, a store, and verdicts for what is published."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pyarrow as pa

from rootline.adapters.embedded_feed import EmbeddedFeed
from rootline.adapters.memory import MemoryIntentLog, MemoryObjectStore
from rootline.client.create_drop import build_definition
from rootline.coordinator.app import CoordinatorService
from rootline.coordinator.settings import CoordinatorSettings
from rootline.ports.environment import Environment
from rootline.ports.head_hints import NO_HINTS, HeadHints
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import DataFile, Intent, IntentKind
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.verdict import Verdict, VerdictKind

TABLE = TableName("a.b")
TIMEOUT_S = 20.0


@dataclass(slots=True)
class Running:
    """The service and both its sides."""

    service: CoordinatorService
    store: ObjectStore
    log: MemoryIntentLog

    async def decide(self, *values: bytes, key: bytes = TABLE.encode()) -> list[Verdict]:
        """Publish records at once, so that they share a batch; their verdicts in order."""
        positions = await self.log.publish_many([(key, value) for value in values])
        return await asyncio.gather(*(self._verdict(position) for position in positions))

    async def commit(self, *intents: Intent) -> list[Verdict]:
        """`decide` for intents."""
        return await self.decide(*(encode_intent(intent) for intent in intents), key=intents[0].table.encode())

    async def create(self, table: TableName = TABLE, **options: Any) -> None:
        """Create a table of an `id` and a `k`, partitioned by nothing unless `options` say so."""
        verdicts = await self.commit(create_intent(table, **options))
        assert verdicts[0].kind is VerdictKind.COMMITTED, verdicts[0]

    async def _verdict(self, position: Any) -> Verdict:
        verdict = await self.log.wait_verdict(position, timeout_s=TIMEOUT_S)
        assert verdict is not None, f"no verdict on {position} within {TIMEOUT_S} s"
        return verdict


@contextlib.asynccontextmanager
async def running(
    store: ObjectStore | None = None,
    log: MemoryIntentLog | None = None,
    environment: Environment | None = None,
    hints: HeadHints = NO_HINTS,
    **settings: Any,
) -> AsyncIterator[Running]:
    """Start, hand over, stop cleanly."""
    store, log = store or MemoryObjectStore(), log or MemoryIntentLog()
    chosen = CoordinatorSettings(**{"probe_rounds": 0, "poll_wait_s": 0.5, **settings})
    service = CoordinatorService(
        store=store, log=EmbeddedFeed(log), settings=chosen, environment=environment, hints=hints
    )
    task = asyncio.ensure_future(service.run())
    try:
        yield Running(service, store, log)
    finally:
        service.request_stop()
        await task


def create_intent(table: TableName, partition_by: Sequence[str] = ()) -> Intent:
    definition = replace(_definition(tuple(partition_by)), table_uuid=uuid.uuid5(uuid.NAMESPACE_DNS, table))
    text = definition.to_json().decode()
    return Intent(intent_id=f"create-{table}", table=table, kind=IntentKind.CREATE, definition=text)


@cache
def _definition(partition_by: tuple[str, ...]) -> TableDefinition:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("k", pa.int32())])
    return build_definition(schema, table_uuid=uuid.UUID(int=0), partition_by=partition_by)


def append_intent(name: str, table: str = TABLE, location: str | None = None, **changes: Any) -> Intent:
    """An append of one file of ten rows, `data/<name>.parquet` unless `location` says otherwise."""
    added = DataFile(location=location or f"data/{name}.parquet", record_count=10, file_size_in_bytes=100)
    return Intent(intent_id=name, table=table, kind=IntentKind.APPEND, add_data_files=(added,), **changes)
