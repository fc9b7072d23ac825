"""All views of a table agree, in every state: an embedded log, whose coordinator is in this process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from rootline.adapters.open import open_embedded_feed, open_lock
from rootline.adapters.sqlite.intent_log import SqliteIntentLog
from rootline.coordinator.app import CoordinatorService
from rootline.coordinator.settings import CoordinatorSettings
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.intent import Intent
from tests.cli.conftest import Run
from tests.coordinator.hooked_ports import HookedStore
from tests.support.table_views import PATIENCE_S, Walk


@dataclass
class EmbeddedLog:
    """As `WalkedLog`."""

    folder: Path
    log: SqliteIntentLog
    parks: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        return ("--warehouse", str(self.folder))

    @contextlib.asynccontextmanager
    async def coordinated(self, store: HookedStore) -> AsyncIterator[CoordinatorService]:
        lock = open_lock(str(self.folder))
        assert lock is not None
        assert lock.try_acquire()
        feed = open_embedded_feed(self.log, None, str(self.folder))
        settings = CoordinatorSettings(probe_rounds=0, poll_wait_s=0.05, parking_after_s=1.0)
        service = CoordinatorService(store=store, log=feed, settings=settings)
        task = asyncio.ensure_future(service.run())
        try:
            yield service
        finally:
            service.request_stop()
            await task
            lock.release()

    async def publish(self, intent: Intent) -> Callable[[], Awaitable[str]]:
        position = await self.log.publish(intent.table.encode(), encode_intent(intent))

        async def verdict() -> str:
            found = await self.log.wait_verdict(position, timeout_s=PATIENCE_S)
            return "" if found is None else found.kind.value

        return verdict


async def test_every_view_says_the_same_of_a_table_on_an_embedded_log(tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "lake"
    log = SqliteIntentLog(folder / ".rootline")
    walk = Walk(EmbeddedLog(folder, log), run)
    await walk.through_all_states()
    await log.close()
    assert {"idle", "pending", "delayed", "paused", "damaged", "quarantined"} == set(walk.seen)
