"""Goals 3, 4 and 5: many writers, one table, Kafka in the path, a store that is 60 ms away.

Owns: the measurement. Does not own: the load (`closed_loop`), the coordinator (`coordinator_process`), the services.
Invariants: phases of load and bare PUTs of the newest root's size alternate; each phase has a table of its own, filled
alike, so that no phase is longer in the tooth than another; nothing is left out but the warm-up.

The writers share one process, the coordinator has its own, and so have store, proxy and broker; all share a machine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from benchmarks.closed_loop import Passage, Rates, failures, make_load, prepare, rates, run_phase, steady
from benchmarks.coordinator_process import CoordinatorProcess, environment_of, running_coordinator
from benchmarks.far_services import ADDED_MS, BarePut, Far, bare_put, far_services
from benchmarks.measure import Result, Spread, load_average
from benchmarks.store_trace import Put, roots_of
from rootline.adapters.kafka_settings import KafkaSettings
from rootline.adapters.kafka_writer_log import KafkaWriterLog
from rootline.adapters.open import WriterLog

WRITERS: Final = (64, 32)
_PHASES: Final = 5
_PHASE_S: Final = 2.5
_BARE_A_PHASE: Final = 10
_INTENTS_EACH_MAX: Final = 60


@dataclass(slots=True)
class Phases:
    """What all phases with so many writers came to."""

    writers: int
    passages: list[Passage] = field(default_factory=list)
    visible_s: list[float] = field(default_factory=list)
    rates: list[Rates] = field(default_factory=list)
    puts: list[Put] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)
    failures: int = 0
    cpu_s: float = 0.0
    elapsed_s: float = 0.0


def measure() -> list[Result]:
    """With services of its own."""
    with far_services() as far:
        settings = far.kafka.with_topics()
        environment = environment_of(far.store, settings)
        with running_coordinator(far.folder / "load", far.warehouse(), settings.url, environment) as coordinator:
            return asyncio.run(_measure(far, settings, coordinator))


async def _measure(far: Far, settings: KafkaSettings, coordinator: CoordinatorProcess) -> list[Result]:
    log = KafkaWriterLog(settings)
    found = {writers: Phases(writers) for writers in WRITERS}
    bare_s: list[float] = []
    try:
        async with bare_put(far.store) as put:
            for number in range(_PHASES):
                for place, writers in enumerate(WRITERS):
                    phase = number * len(WRITERS) + place
                    bare_s += await _phase(found[writers], phase, log, coordinator, put)
    finally:
        await log.close()
    yardstick = Spread.of(bare_s)
    return [item for phases in found.values() for item in _results(phases, yardstick)]


async def _phase(
    phases: Phases, number: int, log: WriterLog, coordinator: CoordinatorProcess, put: BarePut
) -> list[float]:
    """One phase of load, then bare PUTs of its last root's size."""
    load = await asyncio.to_thread(make_load, number, phases.writers, _INTENTS_EACH_MAX)
    await prepare(log, load)
    before, began_s = coordinator.cost(), time.monotonic()
    passages = await run_phase(log, load, _PHASE_S)
    phases.cpu_s += coordinator.cost().cpu_s - before.cpu_s
    phases.elapsed_s += time.monotonic() - began_s
    roots = roots_of(load.table, coordinator.puts())
    phases.failures += failures(passages)
    phases.rates.append(rates(passages, began_s + _PHASE_S))
    counted = steady(passages)
    phases.passages += counted
    phases.visible_s += [roots[item.verdict.version or 0].ended_s - item.began_s for item in counted]
    own = [roots[version] for version in sorted({item.verdict.version or 0 for item in counted})]
    phases.puts += own
    phases.gaps_s += [
        roots[version + 1].began_s - roots[version].ended_s
        for version in sorted({item.verdict.version or 0 for item in counted})
        if version + 1 in roots
    ]
    return [await put(own[-1].size) for _ in range(_BARE_A_PHASE)]


def _results(phases: Phases, bare: Spread) -> list[Result]:
    told = Spread.of([item.decided_s - item.began_s for item in phases.passages])
    visible = Spread.of(phases.visible_s)
    where = f"{phases.writers} writers, Kafka, S3 +{ADDED_MS} ms"
    name, load = "bare conditional PUT", load_average()
    intents = _median([item.intents for item in phases.rates])
    commits = _median([item.commits for item in phases.rates])
    notes = _where_time_goes(phases)
    is_64 = phases.writers == max(WRITERS)
    return [
        Result(
            "3" if is_64 else "–",
            f"publish → verdict, p50, {where}",
            told,
            bare,
            name,
            told.median / bare.median,
            "≤ 1.8" if is_64 else "–",
            load,
            notes,
        ),
        Result(
            "3" if is_64 else "–",
            f"the same, p99 ÷ the bare PUT's p50, {phases.writers} writers",
            told,
            bare,
            name,
            told.p99 / bare.median,
            "≤ 2.5" if is_64 else "–",
            load,
        ),
        Result(
            "3" if is_64 else "–",
            f"publish → root visible, p50, {phases.writers} writers",
            visible,
            bare,
            name,
            visible.median / bare.median,
            "≤ 1.8" if is_64 else "–",
            load,
        ),
        Result(
            "3" if is_64 else "5",
            f"intents that failed, {phases.writers} writers",
            None,
            None,
            "none",
            phases.failures,
            "0",
            load,
            f"of {len(phases.passages)}",
        ),
        Result(
            "4",
            f"commits a second, {where}",
            None,
            bare,
            "1 ÷ bare PUT p50",
            commits * bare.median,
            "≥ 0.9",
            load,
            f"{commits:.1f}/s; runs {_runs([item.commits * bare.median for item in phases.rates])}",
        ),
        Result(
            "5" if not is_64 else "–",
            f"intents a second, {where}",
            None,
            bare,
            "writers ÷ bare PUT p50",
            intents * bare.median / phases.writers,
            "≥ 0.8" if not is_64 else "–",
            load,
            f"{intents:.0f}/s; runs {_runs([item.intents * bare.median / phases.writers for item in phases.rates])}",
        ),
    ]


def _where_time_goes(phases: Phases) -> str:
    """Medians of a commit's parts, ms."""
    put_s = _median([put.ended_s - put.began_s for put in phases.puts])
    gap_s = _median(phases.gaps_s)
    durable_s = _median([item.durable_s - item.began_s for item in phases.passages])
    size = _median([put.size for put in phases.puts])
    batch = len(phases.passages) / max(1, len(phases.puts))
    return (
        f"medians: to be durable {durable_s * 1000:.1f} ms, PUT {put_s * 1000:.1f} ms, between PUTs "
        f"{gap_s * 1000:.1f} ms, {batch:.1f} intents a root of {size / 1024:.0f} KiB; "
        f"coordinator {phases.cpu_s / phases.elapsed_s:.2f} cores"
    )


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def _runs(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)
