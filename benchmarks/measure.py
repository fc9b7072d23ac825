"""Measuring times side by side, and comparing them.

Owns: interleaved sampling, order statistics, ratios. Does not own: what is measured.
Invariants: a subject and its yardstick alternate sample by sample, so that a drift of the machine hits both.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """Seconds."""

    minimum: float
    median: float
    p99: float
    samples: int

    @staticmethod
    def of(seconds: list[float]) -> Spread:
        ordered = sorted(seconds)
        return Spread(
            ordered[0],
            ordered[len(ordered) // 2],
            ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))],
            len(ordered),
        )


@dataclass(frozen=True, slots=True)
class Result:
    """One goal's measurement. `ratio` is subject ÷ yardstick by median, unless `unit` says otherwise."""

    goal: str
    what: str
    subject: Spread | None
    yardstick: Spread | None
    yardstick_name: str
    ratio: float
    target: str
    load: float
    notes: str = ""

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def load_average() -> float:
    """The machine's load when a result was taken."""
    return round(os.getloadavg()[0], 2)


Timed = Callable[[int], Awaitable[float | None]]
"""Carries out sample number n; returns its seconds, or `None` to have the whole call timed."""


async def interleaved(subject: Timed, yardstick: Timed, samples: int, warm_up: int) -> tuple[Spread, Spread]:
    """Take `samples` of each in turn, after `warm_up` samples that do not count."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(samples + warm_up):
        for which, work in enumerate((subject, yardstick)):
            began = time.perf_counter()
            own = await work(number)
            taken = time.perf_counter() - began if own is None else own
            if number >= warm_up:
                seconds[which].append(taken)
    return Spread.of(seconds[0]), Spread.of(seconds[1])


def result(goal: str, what: str, subject: Spread, yardstick: Spread, name: str, target: str, notes: str = "") -> Result:
    """A `Result` with the ratio of the medians."""
    return Result(
        goal, what, subject, yardstick, name, subject.median / yardstick.median, target, load_average(), notes
    )
