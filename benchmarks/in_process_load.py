"""Goals 4 and 5 without a broker: writers, log and coordinator in one process, the store 60 ms away.

Owns: who runs where. Does not own: the measurement (`load_phases`), the services (`far_services`).
Invariants: those of `kafka_load`; this is the part of it that does not wait for Kafka.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Final

from benchmarks.coordinator_process import ProcessCost, cost_of
from benchmarks.far_services import bare_put, far_store
from benchmarks.load_phases import Phases, commits_result, failed_result, intents_result, way
from benchmarks.measure import Result
from benchmarks.own_coordinator import coordinating
from benchmarks.store_trace import Put, TracingStore
from rootline.coordinator.app import settle_memory
from tests.services.s3_service import S3Service

_PHASES: Final = 3


@dataclass(frozen=True, slots=True)
class _Here:
    """The coordinator of this process."""

    store: TracingStore

    def puts(self) -> list[Put]:
        return self.store.puts

    def cost(self) -> ProcessCost:
        return cost_of(os.getpid())


def measure() -> list[Result]:
    """Measure with services of its own."""
    with far_store() as service:
        some, one, ahead, paced = asyncio.run(_measure(service))
    return [intents_result(some), failed_result(some, "5"), *map(commits_result, (some, one, ahead, paced))]


async def _measure(service: S3Service) -> list[Phases]:
    settle_memory()  # like a coordinator's process
    here = _Here(TracingStore(service.store()))
    here_way = way("log in this process")
    found = [
        Phases(32, here_way),
        Phases(1, here_way),
        Phases(16, here_way, in_flight=4),
        Phases(64, here_way, every_s=0.4),
    ]
    try:
        async with coordinating(here.store) as log, bare_put(service) as put:
            for number in range(_PHASES * len(found)):
                await found[number % len(found)].add(number, log, here, put)
    finally:
        await here.store.close()
    return found
