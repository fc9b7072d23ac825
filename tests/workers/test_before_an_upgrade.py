"""A worker on a log that coordinators of the first release may still read: what they do not know is refused there."""

from __future__ import annotations

import asyncio

from rootline.adapters.embedded_feed import EmbeddedFeed
from rootline.adapters.memory.intent_log import MemoryIntentLog
from rootline.adapters.memory.object_remover import MemoryObjectRemover
from rootline.adapters.memory.object_store import MemoryObjectStore
from rootline.coordinator.app import CoordinatorService
from rootline.coordinator.settings import CoordinatorSettings
from rootline.schemas.bytes.log.intent_codec import encode_intent
from rootline.schemas.intent import Intent, IntentKind
from rootline.schemas.verdict import VerdictKind
from rootline.testing.seeded_environment import SeededEnvironment
from rootline.testing.virtual_loop import run_virtually
from rootline.workers.app import WorkerService
from rootline.workers.jobs.job import JobOutcome
from rootline.workers.settings import WorkerSettings
from tests.maintenance.table_builder import TableBuilder, data_file


def test_what_needs_the_upgrade_is_not_asked_for_again_and_again() -> None:
    async def story() -> None:
        store, log = MemoryObjectStore(), MemoryIntentLog()
        feed = EmbeddedFeed(log, upgraded_from=lambda: None)
        settings = CoordinatorSettings()
        coordinator = CoordinatorService(store=store, log=feed, settings=settings, environment=SeededEnvironment(1))
        worker = WorkerService(
            store=store,
            log=log,
            settings=WorkerSettings(poll_interval_s=0.5, discovery_interval_s=1.0),
            environment=SeededEnvironment(2),
            remover=MemoryObjectRemover(store),
        )
        services = [asyncio.create_task(coordinator.run()), asyncio.create_task(worker.run())]
        limits = {"rootline.expire.every-commits": "5", "rootline.expire.all-versions": "5"}
        table = TableBuilder(store, **{"rootline.expire": "true", "rootline.flush.data-files": "10", **limits})

        async def commit(intent: Intent) -> None:
            position = await log.publish(table.table.encode(), encode_intent(intent))
            verdict = await log.wait_verdict(position, timeout_s=600)
            assert verdict is not None
            assert verdict.kind is VerdictKind.COMMITTED, verdict

        await commit(table.intent(IntentKind.CREATE, definition=table.definition.to_json().decode()))
        for number in range(40):
            await commit(table.intent(IntentKind.APPEND, add_data_files=(data_file(number),)))
            await asyncio.sleep(1)  # virtual
        await asyncio.sleep(1_800)
        outcomes = worker.counters.outcomes
        assert outcomes["flush", JobOutcome.COMMITTED] >= 2, "what the first release knows goes on"
        assert outcomes["expiry", JobOutcome.REJECTED] == 1
        await asyncio.sleep(3_600)
        await commit(table.intent(IntentKind.APPEND, add_data_files=(data_file(40),)))
        await asyncio.sleep(60)
        assert outcomes["expiry", JobOutcome.REJECTED] == 2, "after an hour it is asked for again"
        worker.request_stop()
        coordinator.request_stop()
        await asyncio.gather(*services)

    run_virtually(story())
