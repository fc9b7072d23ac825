"""Phases of load by many writers, each followed by bare PUTs; and the results of goals 3, 4 and 5.

Owns: one phase, the figures of many, the results. Does not own: the writers (`closed_loop`), where log and coordinator
are (`kafka_load`, `in_process_load`).
Invariants: the bare PUTs after a phase are of its newest root's size, through the same proxy; each phase has a table of
its own, all filled the same, so none is older than another; nothing is left out but the warm-up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from benchmarks.closed_loop import Passage, Rates, failures, make_load, prepare, rates, run_phase, steady
from benchmarks.coordinator_process import ProcessCost
from benchmarks.far_services import ADDED_MS, BarePut
from benchmarks.measure import Result, Spread, load_average
from benchmarks.store_trace import Put, roots_of
from rootline.adapters.open import WriterLog

PHASE_S: Final = 2.5
_BARE_A_PHASE: Final = 10
_INTENTS_A_SECOND_MAX: Final = 24
_BARE_NAME: Final = "bare conditional PUT"


class Coordinator(Protocol):
    """A coordinator that notes its PUTs."""

    def puts(self) -> Sequence[Put]:
        """Every PUT so far."""
        ...

    def cost(self) -> ProcessCost:
        """The cost of its process."""
        ...


@dataclass(slots=True)
class Phases:
    """The outcome of all phases with so many writers; `way`: log and store, in words.

    Each writer has `in_flight` intents, or publishes one `every_s` seconds.
    """

    writers: int
    way: str
    in_flight: int = 1
    every_s: float | None = None
    passages: list[Passage] = field(default_factory=list)
    visible_s: list[float] = field(default_factory=list)
    rates: list[Rates] = field(default_factory=list)
    puts: list[Put] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)
    bare_s: list[float] = field(default_factory=list)
    failures: int = 0
    cpu_s: float = 0.0
    elapsed_s: float = 0.0

    async def add(self, number: int, log: WriterLog, coordinator: Coordinator, put: BarePut) -> None:
        """Run phase `number`, which names its table: load, then bare PUTs."""
        each = self.in_flight * round(PHASE_S * _INTENTS_A_SECOND_MAX)
        load = await asyncio.to_thread(make_load, number, self.writers, each)
        await prepare(log, load)
        before, began_s = coordinator.cost(), time.monotonic()
        passages = await run_phase(log, load, PHASE_S, self.in_flight, self.every_s)
        self.cpu_s += coordinator.cost().cpu_s - before.cpu_s
        self.elapsed_s += time.monotonic() - began_s
        self.failures += failures(passages)
        self.rates.append(rates(passages, began_s + PHASE_S))
        counted = steady(passages)
        self.passages += counted
        roots = roots_of(load.table, coordinator.puts())
        versions = sorted({item.verdict.version or 0 for item in counted})
        self.visible_s += [roots[item.verdict.version or 0].ended_s - item.began_s for item in counted]
        self.puts += [roots[version] for version in versions]
        pairs = [(roots[version], roots[version + 1]) for version in versions if version + 1 in roots]
        self.gaps_s += [after.began_s - before.ended_s for before, after in pairs]
        self.bare_s += [await put(roots[versions[-1]].size) for _ in range(_BARE_A_PHASE)]


def latency_results(phases: Phases, goal: str, targets: tuple[str, str]) -> list[Result]:
    """Publish → verdict at the median and at p99, publish → root visible, and failures."""
    bare, load = Spread.of(phases.bare_s), load_average()
    told = Spread.of([item.decided_s - item.began_s for item in phases.passages])
    visible = Spread.of(phases.visible_s)
    who = _writers(phases)
    return [
        Result(
            goal,
            f"publish → verdict, p50, {who}, {phases.way}",
            told,
            bare,
            _BARE_NAME,
            told.median / bare.median,
            targets[0],
            load,
            _where_time_goes(phases),
        ),
        Result(
            goal,
            f"publish → verdict, p99 ÷ the bare PUT's p50, {who}",
            told,
            bare,
            _BARE_NAME,
            told.p99 / bare.median,
            targets[1],
            load,
        ),
        Result(
            goal,
            f"publish → root visible, p50, {who}",
            visible,
            bare,
            _BARE_NAME,
            visible.median / bare.median,
            targets[0],
            load,
        ),
        failed_result(phases, goal),
    ]


def failed_result(phases: Phases, goal: str) -> Result:
    """How many intents were not committed; there must be none, because there are no conflicts."""
    notes = f"of {len(phases.passages)} intents"
    what = f"intents that failed, {_writers(phases)}, {phases.way}"
    return Result(goal, what, None, None, "none", phases.failures, "0", load_average(), notes)


def commits_result(phases: Phases) -> Result:
    """Goal 4."""
    bare = Spread.of(phases.bare_s)
    commits = _median([item.commits for item in phases.rates])
    return Result(
        "4",
        f"commits per second, {_writers(phases)}, {phases.way}",
        None,
        bare,
        "1 ÷ bare PUT p50",
        commits * bare.median,
        "≥ 0.9",
        load_average(),
        f"{commits:.1f}/s; phases {_phases([item.commits * bare.median for item in phases.rates])}",
    )


def intents_result(phases: Phases) -> Result:
    """Goal 5."""
    bare = Spread.of(phases.bare_s)
    most = phases.writers / bare.median
    intents = _median([item.intents for item in phases.rates])
    return Result(
        "5",
        f"intents per second, {_writers(phases)}, {phases.way}",
        None,
        bare,
        "writers ÷ bare PUT p50",
        intents / most,
        "≥ 0.8",
        load_average(),
        f"{intents:.0f}/s of {most:.0f}; phases {_phases([item.intents / most for item in phases.rates])}; "
        + _where_time_goes(phases),
    )


def way(log: str) -> str:
    """Log and store, in words."""
    return f"{log}, S3 +{ADDED_MS} ms"


def _where_time_goes(phases: Phases) -> str:
    """Medians of a commit's parts, ms."""
    put_s = _median([put.ended_s - put.began_s for put in phases.puts])
    durable_s = _median([item.durable_s - item.began_s for item in phases.passages])
    size = _median([put.size for put in phases.puts])
    batch = len(phases.passages) / len(phases.puts)
    return (
        f"medians: durable on the log {durable_s * 1000:.1f} ms, PUT {put_s * 1000:.1f} ms, between PUTs "
        f"{_median(phases.gaps_s) * 1000:.1f} ms, {batch:.1f} intents a root of {size / 1024:.0f} KiB; "
        f"coordinator {phases.cpu_s / phases.elapsed_s:.2f} cores"
    )


def _writers(phases: Phases) -> str:
    if phases.every_s is not None:
        return f"{phases.writers} writers with an intent each {phases.every_s} s"
    several = f" with {phases.in_flight} intents in flight each" if phases.in_flight > 1 else ""
    return f"{phases.writers} writer{'s' if phases.writers > 1 else ''}{several}"


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def _phases(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)
