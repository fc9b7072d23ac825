"""Goals 3, 4 and 5: many writers, one table, Kafka in the path, a store that is 60 ms away.

Owns: who runs where. Does not own: the measurement (`load_phases`), the services (`far_services`).
Invariants: phases with different numbers of writers alternate.

The writers share one process, the coordinator has its own with default settings, and so have store, proxy and broker;
all five share a machine, and the delay is the store's alone.
"""

from __future__ import annotations

import asyncio
from typing import Final

from benchmarks.coordinator_process import CoordinatorProcess, environment_of, running_coordinator
from benchmarks.far_services import Far, bare_put, far_services
from benchmarks.load_phases import (
    Phases,
    commits_result,
    failed_result,
    intents_result,
    latency_results,
    way,
)
from benchmarks.measure import Result
from rootline.adapters.kafka.writer_log import KafkaWriterLog
from rootline.adapters.settings import KafkaSettings
from rootline.coordinator.app import settle_memory

_PHASES: Final = 5


def measure() -> list[Result]:
    """Measure with services of its own."""
    with far_services() as far:
        settings = far.kafka.with_topics()
        environment = environment_of(far.store, settings)
        with running_coordinator(far.folder / "load", far.warehouse(), settings.url, environment) as coordinator:
            many, some, one, ahead, paced = asyncio.run(_measure(far, settings, coordinator))
    return [
        *latency_results(many, "3", ("≤ 1.2", "≤ 1.5")),
        intents_result(some),
        failed_result(some, "5"),
        *map(commits_result, (many, some, one, ahead, paced)),
    ]


async def _measure(far: Far, settings: KafkaSettings, coordinator: CoordinatorProcess) -> list[Phases]:
    settle_memory()  # the writers' process is not measured
    log = KafkaWriterLog(settings)
    found = [
        *(Phases(writers, way("Kafka")) for writers in (64, 32, 1)),
        Phases(16, way("Kafka"), in_flight=4),
        Phases(64, way("Kafka"), every_s=0.4),
    ]
    try:
        async with bare_put(far.store) as put:
            for number in range(_PHASES * len(found)):
                await found[number % len(found)].add(number, log, coordinator, put)
    finally:
        await log.close()
    return found
