"""A lake with one clock for store, log and processes, which tests turn on; a coordinator, and sweeps of one table."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rootline.adapters.embedded_feed import EmbeddedFeed
from rootline.adapters.memory import MemoryIntentLog, MemoryObjectStore
from rootline.catalog.retained_exports import check_exports
from rootline.coordinator.app import CoordinatorService
from rootline.coordinator.settings import CoordinatorSettings
from rootline.ports.intent_log import LogKeeps
from rootline.ports.object_remover import DatedObject
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.bytes.root.retained_page import RETAINED_PAGES, KeptVersion, RetainedVersions
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.identifiers import ObjectKey, Version
from rootline.schemas.intent import DataFile, Intent, IntentKind, RemovedFile
from rootline.schemas.object_keys import key_of, root_key, table_prefix
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.storage.check.chain import check_table
from rootline.storage.check.findings import DataFiles
from rootline.storage.metadata.root_reader import find_head, read_root
from rootline.testing.seeded_environment import SeededEnvironment
from rootline.testing.virtual_loop import run_virtually
from rootline.workers.jobs.job import Job, JobContext, JobReport
from rootline.workers.jobs.metadata_jobs import flush_job, leaf_compaction_job
from rootline.workers.jobs.sweep_job import SweepJob
from rootline.workers.settings import WorkerSettings
from tests.maintenance.table_builder import TableBuilder, data_file

DAY_MS = 24 * 3600 * 1000


async def keeps() -> LogKeeps:
    return LogKeeps(7 * 24 * 3600)


ORPHAN_AGE_MS = 8 * DAY_MS
Story = Callable[["SweepWorld"], Awaitable[None]]


class MemoryRemover:
    """Deletes from a store in memory; `removed`: what, in order."""

    def __init__(self, store: MemoryObjectStore) -> None:
        self._store = store
        self.removed: list[str] = []

    async def inventory(self, prefix: str) -> AsyncIterator[Sequence[DatedObject]]:
        listed = self._store.dated(prefix)
        for start in range(0, len(listed), 7):
            yield listed[start : start + 7]

    async def remove(self, keys: Sequence[ObjectKey]) -> None:
        for key in keys:
            self.removed.append(key)
            self._store.discard(key)

    async def close(self) -> None:
        """Keep everything."""


def file_named(name: str) -> DataFile:
    """A data file under a name as Rootline's writers give them."""
    location = f"data/{uuid.uuid5(uuid.NAMESPACE_URL, name)}.parquet"
    return data_file(1).model_copy(update={"location": location})


@dataclass
class SweepWorld:
    """`table` is on from the start; what it says is done through the log."""

    environment: SeededEnvironment = field(default_factory=lambda: SeededEnvironment("sweep"))
    properties: dict[str, str] = field(default_factory=lambda: {"rootline.sweep": "true"})

    def __post_init__(self) -> None:
        self.store = MemoryObjectStore(self.environment.now_ms)
        self.log = MemoryIntentLog(clock_ms=self.environment.now_ms)
        self.builder = TableBuilder(self.store, **self.properties)
        self.table = self.builder.table
        self.remover = MemoryRemover(self.store)
        self.context = JobContext.of(
            self.store,
            self.log,
            self.environment,
            WorkerSettings(),
            now=True,
            remover=self.remover,
            keeps=keeps,
        )

    async def later(self, days: float) -> None:
        """Turn the clock on, with a root a day, of a rejection: the log's time goes on by a day at most for each."""
        while days > 0:
            self.environment.skew_ms += int(min(days, 0.9) * DAY_MS)
            days -= 0.9
            nothing = RemovedFile(location="data/nothing.parquet")
            verdict = await self.decide(self.builder.intent(IntentKind.REMOVE, remove_files=(nothing,)))
            assert verdict.kind is VerdictKind.REJECTED

    async def pause(self, seconds: float) -> None:
        """Let time pass, on the virtual loop, without a root."""
        await asyncio.sleep(seconds)

    async def decide(self, intent: Intent) -> Verdict:
        position = await self.log.publish(self.table.encode(), encode_intent(intent))
        verdict = await self.log.wait_verdict(position, timeout_s=600)
        assert verdict is not None
        return verdict

    async def committed(self, intent: Intent) -> int:
        verdict = await self.decide(intent)
        assert verdict.kind is VerdictKind.COMMITTED, verdict
        assert verdict.version is not None
        return verdict.version

    async def create(self) -> None:
        definition = self.builder.definition.to_json().decode()
        await self.committed(self.builder.intent(IntentKind.CREATE, definition=definition))

    async def upload(self, name: str) -> DataFile:
        file = file_named(name)
        await self.store.put_if_absent(key_of(self.table, file.location), name.encode())
        return file

    def append_of(self, *files: DataFile) -> Intent:
        return self.builder.intent(IntentKind.APPEND, add_data_files=files)

    async def append(self, *names: str) -> int:
        return await self.committed(self.append_of(*[await self.upload(name) for name in names]))

    async def remove(self, name: str) -> int:
        return await self.remove_location(file_named(name).location)

    async def remove_location(self, location: str) -> int:
        removed = RemovedFile(location=location)
        return await self.committed(self.builder.intent(IntentKind.REMOVE, remove_files=(removed,)))

    async def tag(self, name: str, version: int) -> None:
        await self.committed(self.builder.intent(IntentKind.TAG, ref={"tag": name, "version": version}))

    async def alter(self, **properties: str) -> None:
        changes = {"changes": [{"action": "set-properties", "updates": properties}]}
        await self.committed(self.builder.intent(IntentKind.ALTER, definition=json.dumps(changes)))

    async def restore(self, version: int) -> None:
        await self.committed(self.builder.intent(IntentKind.RESTORE, ref={"version": version}))

    async def flush(self) -> JobReport:
        return await flush_job(self.context).run(self.table)

    async def compact(self) -> JobReport:
        return await leaf_compaction_job(self.context).run(self.table)

    async def expire(self, oldest: int, *keep: int) -> None:
        """Give up the versions below `oldest` but for those of `keep`; their roots stay until `forget_roots`."""
        head = await self.head()
        cargo: dict[str, Any] = {"made_from_version": head.header.version, "ref": {"version": oldest}}
        if keep:
            roots = [await read_root(self.store, self.table, Version(version)) for version in keep]
            versions = [
                KeptVersion(root.header.version, root.header.snapshot.timestamp_ms, root.size_in_bytes)
                for root in roots
            ]
            page, body = RETAINED_PAGES.encode(head.header.table_uuid, RetainedVersions(tuple(versions)))
            await self.store.put_if_absent(key_of(self.table, page.reference.location), body)
            cargo["page"] = {
                "location": page.reference.location,
                "digest": page.reference.digest,
                "file_size_in_bytes": len(body),
            }
        await self.committed(self.builder.intent(IntentKind.EXPIRE, **cargo))

    def forget_roots(self, oldest: int, *keep: int) -> None:
        for version in set(range(oldest)) - set(keep):
            self.store.discard(root_key(self.table, Version(version)))

    def job(self, **changes: Any) -> Job:
        return SweepJob(replace(self.context, **changes))

    async def sweep(self, **changes: Any) -> JobReport:
        return await self.job(**changes).run(self.table)

    async def head(self) -> Root:
        found = await find_head(self.store, self.table)
        assert found is not None
        return await read_root(self.store, self.table, found.version)

    async def has(self, name: str) -> bool:
        return await self.store.get(key_of(self.table, file_named(name).location)) is not None

    async def keys(self) -> set[str]:
        prefix = table_prefix(self.table)
        return {key.removeprefix(prefix) for key in (await self.store.list(prefix)).keys}

    async def assert_sound(self) -> None:
        found = [item async for item in check_table(self.store, self.table, data_files=DataFiles.IGNORED)]
        found += [item async for item in check_exports(self.store, self.table)]
        assert found == []


def tell(story: Story, **properties: str) -> SweepWorld:
    """Run a story beside a coordinator, on a table with these properties; the world as it leaves it."""
    world = SweepWorld()
    world.properties.update(properties)
    world.__post_init__()

    async def told() -> None:
        service = CoordinatorService(
            store=world.store,
            log=EmbeddedFeed(world.log),
            settings=CoordinatorSettings(poll_wait_s=60.0),  # a story takes days; what is appended wakes it at once
            environment=world.environment,
        )
        running = asyncio.create_task(service.run())
        await world.create()
        await story(world)
        await world.assert_sound()
        service.request_stop()
        await running

    run_virtually(told())
    return world
