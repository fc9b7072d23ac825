"""A worker beside the real coordinator: writers and flushes on one log."""

from __future__ import annotations

import asyncio

from rootline.adapters.embedded_feed import EmbeddedFeed
from rootline.adapters.memory import MemoryIntentLog, MemoryObjectStore
from rootline.coordinator.app import CoordinatorService
from rootline.coordinator.settings import CoordinatorSettings
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.content_entry import ContentType
from rootline.schemas.intent import Intent, IntentKind
from rootline.schemas.verdict import VerdictKind
from rootline.storage.check.chain import check_table
from rootline.storage.check.findings import DataFiles
from rootline.testing.seeded_environment import SeededEnvironment
from rootline.testing.virtual_loop import run_virtually
from rootline.workers.app import WorkerService
from rootline.workers.jobs.job import JobOutcome
from rootline.workers.settings import WorkerSettings
from tests.maintenance.table_builder import TableBuilder, data_file, location_of
from tests.support.loaded_tables import load_table


def test_a_table_that_is_written_all_the_time_stays_shallow_and_whole() -> None:
    async def story() -> None:
        store, log = MemoryObjectStore(), MemoryIntentLog()
        coordinator = CoordinatorService(
            store=store, log=EmbeddedFeed(log), settings=CoordinatorSettings(), environment=SeededEnvironment(1)
        )
        worker = WorkerService(
            store=store,
            log=log,
            settings=WorkerSettings(poll_interval_s=0.5, discovery_interval_s=1.0),
            environment=SeededEnvironment(2),
        )
        services = [asyncio.create_task(coordinator.run()), asyncio.create_task(worker.run())]
        table = TableBuilder(store, **{"rootline.flush.data-files": "10"})

        async def commit(intent: Intent) -> None:
            position = await log.publish(table.table.encode(), encode_intent(intent))
            verdict = await log.wait_verdict(position, timeout_s=600)
            assert verdict is not None
            assert verdict.kind is VerdictKind.COMMITTED, verdict

        await commit(table.intent(IntentKind.CREATE, definition=table.definition.to_json().decode()))
        for number in range(60):
            await commit(table.intent(IntentKind.APPEND, add_data_files=(data_file(number),)))
            await asyncio.sleep(0.3)  # virtual
        await asyncio.sleep(60)
        worker.request_stop()
        coordinator.request_stop()
        await asyncio.gather(*services)
        state = await load_table(store, table.table)
        assert state is not None
        live = {item.entry.location for item in state.live.entries()}
        assert live == {location_of(number) for number in range(60)}
        in_root = [row for row in state.root.rows if row.entry.content_type is ContentType.DATA]
        assert len(in_root) < 10
        assert worker.counters.outcomes["flush", JobOutcome.COMMITTED] >= 4
        assert (worker.counters.failures, worker.counters.outcomes["flush", JobOutcome.REJECTED]) == (0, 0)
        assert [f async for f in check_table(store, table.table, data_files=DataFiles.IGNORED)] == []

    run_virtually(story())
