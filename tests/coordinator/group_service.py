"""Coordinators that share one log as a group: started, stopped, killed, and asked about it.

Whoever uses it runs on `rootline.testing.virtual_loop`, where waiting takes no time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from rootline.coordinator.app import CoordinatorService
from rootline.coordinator.runtime.assignment.partition_assignment import PartitionAssignment
from rootline.coordinator.settings import CoordinatorSettings
from rootline.schemas.bytes.intent_codec import encode_intent
from rootline.schemas.content_entry import ContentType
from rootline.schemas.identifiers import LogPosition, TableName
from rootline.schemas.intent import Intent
from rootline.schemas.intent_rules import IntentLimits
from rootline.schemas.verdict import Verdict, VerdictKind
from rootline.testing.seeded_environment import SeededEnvironment
from tests.coordinator.hooked_ports import HookedStore
from tests.coordinator.running_service import create_intent
from tests.support.group_log import GroupLog
from tests.support.loaded_tables import load_table

PATIENCE_S = 3_600.0


@dataclass(slots=True)
class Group:
    """The coordinators of one log and store, by name."""

    log: GroupLog
    store: HookedStore
    settings: dict[str, Any]
    services: dict[str, CoordinatorService] = field(default_factory=dict)
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _started: int = 0

    def start(
        self, name: str, *, skew_ms: int = 0, limits: IntentLimits | None = None, **settings: Any
    ) -> CoordinatorService:
        """One more coordinator, or one again; `skew_ms`: how far its wall clock is ahead."""
        self._started += 1
        usual = {"probe_rounds": 0, "offsets_commit_interval_s": 0.02, "coordinator_id": name}
        chosen = {**usual, **self.settings, **settings}
        service = self.services[name] = CoordinatorService(
            store=self.store,
            log=self.log.member(name),
            settings=CoordinatorSettings(**chosen),
            environment=SeededEnvironment(f"{name}/{self._started}", skew_ms=skew_ms),
            limits=limits,
        )
        self._tasks[name] = asyncio.ensure_future(service.run())
        return service

    def why(self, name: str, table: TableName) -> str:
        """Why a coordinator says that a table's records wait."""
        return next((own.why for own in self.services[name].own_tables() if own.name == table), "")

    async def stop(self, name: str) -> None:
        """Cleanly; raises what the service failed with."""
        self.services.pop(name).request_stop()
        await self._tasks.pop(name)

    async def crash(self, name: str) -> None:
        """Between any two steps, and without leaving the group."""
        self.log.crash(name)
        self.services.pop(name)
        task = self._tasks.pop(name)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def stop_all(self) -> None:
        for name in list(self.services):
            await self.stop(name)

    def assignment(self, name: str) -> PartitionAssignment:
        """What that coordinator does with its partitions."""
        assignment = self.services[name]._consumer.assignment
        assert assignment is not None
        return assignment

    async def until(self, holds: Callable[[], bool], *, patience_s: float = PATIENCE_S) -> None:
        """Let (virtual) time pass until it `holds`."""
        async with asyncio.timeout(patience_s):
            while not holds():
                await asyncio.sleep(0.05)
                for task in self._tasks.values():
                    if task.done():
                        task.result()

    async def until_settled(self) -> None:
        """Every record is decided, and that is remembered; nothing is left to do."""
        await self.until(lambda: self.log.is_decided() and not self.lag())

    def lag(self) -> int:
        """Records that the group does not know to be decided."""
        ends = {partition: self.log.span(partition) for partition in range(self.log.partitions)}
        return sum(end - (self.log.remembered(partition) or begin) for partition, (begin, end) in ends.items())

    def publish(self, *intents: Intent, partition: int | None = None) -> list[LogPosition]:
        """Append at once."""
        return [
            self.log.append(intent.table.encode(), encode_intent(intent), partition=partition) for intent in intents
        ]

    async def decided(self, positions: Sequence[LogPosition]) -> list[Verdict]:
        """Their verdicts, when all are there."""
        found = await asyncio.gather(*(self.log.wait_verdict(place, timeout_s=PATIENCE_S) for place in positions))
        verdicts = [verdict for verdict in found if verdict is not None]
        missing = [place for place, verdict in zip(positions, found, strict=True) if verdict is None]
        assert not missing, f"{len(missing)} without a verdict after {PATIENCE_S} s: {missing[:3]} …"
        return verdicts

    async def commit(self, *intents: Intent) -> list[Verdict]:
        """Append and wait; all of them are accepted."""
        verdicts = await self.decided(self.publish(*intents))
        assert {verdict.kind for verdict in verdicts} == {VerdictKind.COMMITTED}, verdicts
        return verdicts

    async def create(self, *tables: TableName) -> None:
        await self.commit(*(create_intent(table) for table in tables))

    async def files(self, table: TableName) -> list[str]:
        """Locations of the live data files."""
        state = await load_table(self.store.inner, table)
        assert state is not None
        live = [item.entry for item in state.live.entries() if item.entry.content_type is ContentType.DATA]
        return sorted(entry.location for entry in live)

    def check_order(self, table: TableName) -> None:
        """What was committed of a partition was committed in its order."""
        for partition in range(self.log.partitions):
            found = [self.log.verdicts.get(record.position) for record in self.log.records(partition)]
            own = [item for item in found if item is not None and item.table == table and item.version is not None]
            numbers = [item.sequence_number or 0 for item in own if item.kind is VerdictKind.COMMITTED]
            assert all(before < after for before, after in pairwise(numbers)), f"{table}, partition {partition}"


@contextlib.asynccontextmanager
async def coordinating(
    *names: str, log: GroupLog | None = None, store: HookedStore | None = None, **settings: Any
) -> AsyncIterator[Group]:
    """These coordinators run; they stop cleanly at the end, and nothing that must never be was done."""
    group = Group(log or GroupLog(), store or HookedStore(), settings)
    for name in names:
        group.start(name)
    try:
        yield group
    finally:
        await group.stop_all()
    assert group.log.violations == []
