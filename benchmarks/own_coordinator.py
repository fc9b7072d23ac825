"""A coordinator in the benchmark's own process, and what its verdicts must be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rootline.adapters.embedded_feed import EmbeddedFeed
from rootline.adapters.memory import MemoryIntentLog
from rootline.coordinator.app import CoordinatorService
from rootline.coordinator.settings import CoordinatorSettings
from rootline.ports.object_store import ObjectStore
from rootline.schemas.verdict import Verdict, VerdictKind


@asynccontextmanager
async def coordinating(store: ObjectStore) -> AsyncIterator[MemoryIntentLog]:
    """The log of a coordinator that runs until the block ends; `store` stays open."""
    log = MemoryIntentLog()
    service = CoordinatorService(store=store, log=EmbeddedFeed(log), settings=CoordinatorSettings(probe_rounds=0))
    running = asyncio.ensure_future(service.run())
    try:
        yield log
    finally:
        service.request_stop()
        await running


def require_commit(verdict: Verdict | None) -> None:
    """Raise `RuntimeError` unless a benchmark's own intent was committed; `None`: no verdict came in time."""
    if verdict is None or verdict.kind is not VerdictKind.COMMITTED:
        raise RuntimeError(f"the benchmark's own intent was not committed: {verdict}")
