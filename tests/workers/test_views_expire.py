"""Old roots of a view go as a table's do, and no other maintenance is planned for one."""

from __future__ import annotations

import asyncio
import json
import uuid

from rootline.adapters.embedded_feed import EmbeddedFeed
from rootline.adapters.memory import MemoryIntentLog, MemoryObjectRemover, MemoryObjectStore
from rootline.coordinator.app import CoordinatorService
from rootline.coordinator.settings import CoordinatorSettings
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import Intent, IntentKind
from rootline.schemas.object_keys import roots_prefix
from rootline.schemas.verdict import VerdictKind
from rootline.schemas.view_metadata import ViewMetadata
from rootline.storage.check.chain import check_table
from rootline.storage.check.findings import DataFiles
from rootline.storage.metadata.root_reader import view_root
from rootline.testing.seeded_environment import SeededEnvironment
from rootline.testing.virtual_loop import run_virtually
from rootline.workers.jobs.expiry_job import ExpiryJob
from rootline.workers.jobs.job import JobContext, JobOutcome
from rootline.workers.jobs.metadata_jobs import flush_job
from rootline.workers.settings import WorkerSettings

VIEW = TableName("demo.v")
VIEW_UUID = uuid.UUID(int=10)


def test_old_roots_of_a_view_go_and_its_own_history_stays() -> None:
    environment = SeededEnvironment(1)
    store, log = MemoryObjectStore(), MemoryIntentLog()

    def asked(number: int) -> Intent:
        body = {"version": {"representations": [{"type": "sql", "sql": f"SELECT {number}", "dialect": "spark"}]}}
        if number == 0:
            body |= {"view-uuid": str(VIEW_UUID), "location": "s3://lake/demo/v"}  # type: ignore[dict-item]
        kind = IntentKind.REPLACE_VIEW if number else IntentKind.CREATE_VIEW
        return Intent(intent_id=f"i{number}", table=VIEW, kind=kind, table_uuid=VIEW_UUID, definition=json.dumps(body))

    async def story() -> None:
        settings = CoordinatorSettings()
        coordinator = CoordinatorService(store=store, log=EmbeddedFeed(log), settings=settings, environment=environment)
        serving = asyncio.create_task(coordinator.run())
        for number in range(60):
            position = await log.publish(VIEW.encode(), encode_intent(asked(number)))
            verdict = await log.wait_verdict(position, timeout_s=600)
            assert verdict is not None
            assert verdict.kind is VerdictKind.COMMITTED, verdict
            await asyncio.sleep(30)
        before = len((await store.list(roots_prefix(VIEW))).keys)
        remover = MemoryObjectRemover(store)
        context = JobContext.of(store, log, environment, WorkerSettings(), now=True, remover=remover)
        assert (await flush_job(context).run(VIEW)).outcome is JobOutcome.NOTHING_DUE
        assert (await ExpiryJob(context).run(VIEW)).outcome is JobOutcome.COMMITTED
        assert len((await store.list(roots_prefix(VIEW))).keys) < before
        view = ViewMetadata.from_json((await view_root(store, VIEW)).header.name.view or b"")
        assert [version.version_id for version in view.versions] == list(range(51, 61))
        assert [item async for item in check_table(store, VIEW, data_files=DataFiles.IGNORED)] == []
        coordinator.request_stop()
        await serving

    run_virtually(story())
