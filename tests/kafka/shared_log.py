"""A lake in a folder whose log is on Kafka, and the coordinator that decides what is published there.

Owns: naming the topics to `rootline.connect`, and a coordinator on a thread of its own. Does not own: the broker.
Invariants: topics of its own, so tests never meet; the coordinator has ended when its block ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from rootline.adapters.kafka.coordinator_log import KafkaCoordinatorLog, KafkaVerdictSink
from rootline.adapters.local_object_store import LocalObjectStore
from rootline.adapters.settings import KafkaSettings
from rootline.client.lake import Lake
from rootline.client.loop_thread import LoopThread
from rootline.connect import connect
from rootline.coordinator.app import CoordinatorService
from rootline.coordinator.protocol.machine_state import Phase
from rootline.coordinator.settings import CoordinatorSettings
from rootline.schemas.identifiers import TableName
from rootline.schemas.verdict import DeadLetter, Verdict

NAMES = (
    "intents_topic",
    "verdicts_topic",
    "dead_letters_topic",
    "frontiers_topic",
    "parked_topic",
    "group_id",
    "delivery_timeout_s",
    "request_timeout_s",
)


def in_environment(settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> KafkaSettings:
    """Tell this process where the topics are, as an operator does."""
    for name in NAMES:
        monkeypatch.setenv(f"ROOTLINE_KAFKA__{name.upper()}", str(getattr(settings, name)))
    return settings


@dataclass(frozen=True)
class SharedLog:
    """`words`: what names it on the command line."""

    folder: Path
    settings: KafkaSettings

    @property
    def words(self) -> tuple[str, ...]:
        return ("--warehouse", str(self.folder), "--log", self.settings.url)

    def open(self) -> Lake:
        return connect(self.folder, log=self.settings.url)

    def decide(self, verdicts: Sequence[Verdict], letters: Sequence[DeadLetter] = ()) -> None:
        """Publish verdicts as a coordinator does."""
        asyncio.run(_decided(self.settings, verdicts, letters))

    @contextlib.contextmanager
    def coordinated(self) -> Iterator[Callable[[], Mapping[TableName, Phase]]]:
        """A coordinator commits what is published until the block ends; yields what says the phase of its tables."""
        ready = threading.Event()
        services: list[CoordinatorService] = []

        async def serve() -> None:
            store = LocalObjectStore(self.folder)
            chosen = CoordinatorSettings(probe_rounds=0, poll_wait_s=0.05)
            service = CoordinatorService(store=store, log=KafkaCoordinatorLog(self.settings), settings=chosen)
            services.append(service)
            ready.set()
            try:
                await service.run()
            finally:
                await store.close()

        async def tables() -> Mapping[TableName, Phase]:
            return {table: phase for table, (phase, _) in services[0].tables().items()}

        loop = LoopThread("coordinator of a test")
        serving = loop.submit(serve())
        try:
            assert ready.wait(120)
            yield lambda: loop.submit(tables()).result(120)
        finally:
            services[0].request_stop()
            serving.result(120)
            loop.close()


async def _decided(settings: KafkaSettings, verdicts: Sequence[Verdict], letters: Sequence[DeadLetter]) -> None:
    sink = KafkaVerdictSink(settings)
    try:
        await sink.publish_verdicts(verdicts, letters)
    finally:
        await sink.close()
