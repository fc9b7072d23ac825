"""Samples of several ways in turn, by the clock and in CPU time.

Owns: what a sample costs all processes together, and the result that comes of two ways. Does not own: the ways.
Invariants: CPU time is that of Spark, of its Python workers and of the process with coordinator and catalog; every way
has as many samples as the others.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from benchmarks.coordinator_process import cost_of
from benchmarks.measure import Result, Spread, load_average
from benchmarks.spark_session import cpu_seconds

SAMPLES: Final = int(os.environ.get("ROOTLINE_BENCH_SPARK_SAMPLES", "4"))


@dataclass(slots=True)
class Times:
    """Seconds of each sample of one way."""

    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def take(self, work: Callable[[], object]) -> None:
        """One sample."""
        began, began_cpu = time.perf_counter(), cpu_of_all()
        work()
        self.seconds.append(time.perf_counter() - began)
        self.cpu.append(cpu_of_all() - began_cpu)

    def add(self, seconds: list[float], cpu: float) -> None:
        """Samples that were taken otherwise; `cpu`: of all of them together."""
        self.seconds += seconds
        self.cpu.append(cpu)

    def beside(self, yardstick: Times, goal: str, what: str, name: str, target: str, *notes: str) -> Result:
        """This way ÷ the yardstick."""
        ours, theirs = Spread.of(self.seconds), Spread.of(yardstick.seconds)
        spent, allowed = sum(self.cpu), sum(yardstick.cpu)
        shown = [f"by minimum {ours.minimum / theirs.minimum:.2f} ×"]
        shown += [f"CPU {spent / allowed:.2f} ×"] if allowed else []
        note = "; ".join([*shown, *filter(None, notes)])
        return Result(goal, what, ours, theirs, name, ours.median / theirs.median, target, load_average(), note)


@dataclass(frozen=True, slots=True)
class Way:
    """What is timed, and what has to be done before and after it; each is told the number of the sample."""

    work: Callable[[int], object]
    before: Callable[[int], object] = int
    after: Callable[[int], object] = int


def in_turn(ways: Mapping[str, Way], samples: int = SAMPLES) -> dict[str, Times]:
    """`samples` of each way, one after the other, after one that does not count."""
    found = {name: Times() for name in ways}
    for number in range(samples + 1):
        for name, way in ways.items():
            way.before(number)
            times = found[name] if number else Times()
            times.take(partial(way.work, number))
            way.after(number)
    return found


def cpu_of_all() -> float:
    """CPU seconds so far."""
    return cpu_seconds() + cost_of(os.getppid()).cpu_s
