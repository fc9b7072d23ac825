"""Coordinators in this process, on a real broker and one store; writers; and the judgement of what they did.

Owns: what most stories need. Does not own: coordinators that must be killed (`rootline_process`).
Invariants: a story's topics and tables are its own; every wait has a deadline; judging waits until nothing is left to
decide.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from rootline.adapters.kafka.coordinator_log import KafkaCoordinatorLog
from rootline.adapters.kafka.topics import topic_identity
from rootline.adapters.kafka.writer_log import KafkaWriterLog
from rootline.adapters.memory import MemoryObjectStore
from rootline.adapters.settings import KafkaSettings
from rootline.coordinator.app import CoordinatorService
from rootline.coordinator.settings import CoordinatorSettings
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.content_entry import ContentType
from rootline.schemas.identifiers import LogPosition, TableName
from rootline.schemas.intent import Intent
from rootline.schemas.object_keys import roots_prefix
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.storage.check.chain import check_table
from rootline.storage.check.findings import DataFiles
from rootline.storage.warehouse import FindLake
from tests.coordinator.running_service import TABLE, create_intent
from tests.kafka.judge import Judged, Told, judge_table, judge_topics
from tests.kafka.topic_watch import Watch
from tests.support.loaded_tables import load_table

PATIENCE_S = 240.0


async def elapsed(seconds: float) -> None:
    """Real services take real time; only for looking again."""
    await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=seconds)


async def until(holds: Callable[[], bool | Awaitable[bool]], what: str, patience_s: float = PATIENCE_S) -> None:
    """Look again and again until it holds, the less often the longer it takes: a look may ask a broker for a lot."""
    clock = asyncio.get_running_loop().time
    begun_s = clock()
    while True:
        found = holds()
        if found is True or (not isinstance(found, bool) and await found):
            return
        waited_s = clock() - begun_s
        assert waited_s < patience_s, f"not within {patience_s:.0f} s: {what}"
        await elapsed(min(max(0.02, waited_s / 10), 0.3))


@dataclass
class SharedTable:
    """One log, one store, and a writer of its own."""

    settings: KafkaSettings
    store: ObjectStore = field(default_factory=MemoryObjectStore)
    told: dict[tuple[int, int], Verdict] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.writer = KafkaWriterLog(self.settings)
        self.watch = Watch(self.settings)

    async def publish(self, *intents: Intent) -> list[LogPosition]:
        """Put intents on the log, without waiting for their verdicts."""
        return await self.writer.publish_many([(intent.table.encode(), encode_intent(intent)) for intent in intents])

    async def verdicts(self, positions: Sequence[LogPosition], *, patience_s: float = PATIENCE_S) -> list[Verdict]:
        """What became of them."""
        found = await asyncio.gather(*(self.writer.wait_verdict(at, timeout_s=patience_s) for at in positions))
        for at, verdict in zip(positions, found, strict=True):
            assert verdict is not None, f"no verdict on {at} within {patience_s} s"
            self.told[at.partition, at.offset] = verdict
        return [verdict for verdict in found if verdict is not None]

    async def commit(self, *intents: Intent) -> list[Verdict]:
        """Publish, and wait until all are decided."""
        return await self.verdicts(await self.publish(*intents))

    async def create(self, table: TableName = TABLE) -> None:
        """A table of an `id` and a `k`."""
        [verdict] = await self.commit(create_intent(table))
        assert verdict.kind is VerdictKind.COMMITTED, verdict

    async def live_files(self, table: TableName = TABLE) -> list[str]:
        """Where its data files are; one that is live twice is named twice."""
        state = await load_table(self.store, table)
        assert state is not None
        return sorted(
            live.entry.location for live in state.live.entries() if live.entry.content_type is ContentType.DATA
        )

    async def versions(self, table: TableName = TABLE) -> int:
        """How many roots it has."""
        return len((await self.store.list(roots_prefix(table))).keys)

    async def sample(self) -> Watch:
        """What is on the topics now; nothing undecided may have been passed."""
        await asyncio.to_thread(self.watch.sample)
        return self.watch

    async def judge(self, *tables: TableName, patience_s: float = PATIENCE_S) -> Judged:
        """Wait until the group has read everything; then all must be decided once, and the tables follow from that."""

        async def drained() -> bool:
            return (await self.sample()).behind == 0

        await until(drained, f"the group has passed every record; {self.watch.behind} are left", patience_s)
        log = (await asyncio.to_thread(topic_identity, self.settings, self.settings.intents_topic)).log
        judged = judge_topics(self.watch, log, Told(verdicts=self.told))
        for table in tables or (TABLE,):
            await judge_table(self.watch, self.store, table)
            checking = check_table(self.store, table, data_files=DataFiles.IGNORED)  # none were written
            assert [finding async for finding in checking] == []
        return judged

    async def close(self) -> None:
        await self.writer.close()
        await asyncio.to_thread(self.watch.close)


@asynccontextmanager
async def sharing(settings: KafkaSettings, store: ObjectStore | None = None) -> AsyncIterator[SharedTable]:
    """A log and a store for a block."""
    shared = SharedTable(settings, store or MemoryObjectStore())
    try:
        yield shared
    finally:
        await shared.close()


def coordinator_of(
    settings: KafkaSettings, store: ObjectStore, find_lake: FindLake | None = None, **options: object
) -> CoordinatorService:
    """One that looks often and does not try the store first; not running yet."""
    chosen = {"probe_rounds": 0, "poll_wait_s": 0.05, "offsets_commit_interval_s": 0.05, **options}
    return CoordinatorService(
        store=store,
        log=KafkaCoordinatorLog(settings),
        settings=CoordinatorSettings.model_validate(chosen),
        find_lake=find_lake,
    )


@asynccontextmanager
async def coordinating(
    settings: KafkaSettings, store: ObjectStore, find_lake: FindLake | None = None, **options: object
) -> AsyncIterator[CoordinatorService]:
    """A coordinator for a block; it stops cleanly, and an error that ended it before is raised."""
    service = coordinator_of(settings, store, find_lake, **options)
    task = asyncio.ensure_future(service.run())
    try:
        yield service
    finally:
        service.request_stop()
        await asyncio.wait({task})
    task.result()


async def ready(*services: CoordinatorService) -> None:
    """Each has read what is its own to the end."""
    for service in services:
        await until(lambda service=service: service.readiness().ready, "ready")  # type: ignore[misc]
