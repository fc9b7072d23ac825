"""Goal 19: how fast simulated worlds are, and whether a step of a long one costs what a step of a short one costs.

Owns: the measurement, in CPU time of this process, judgement included. Does not own: the worlds
(`tests.simulation`).
Invariants: the seeds are fixed; short and long worlds alternate, so that a drift of the machine hits both.
"""

from __future__ import annotations

import os
import time
from typing import Final

from benchmarks.measure import Result, Spread, load_average
from tests.simulation.simulation import simulate

STEPS: Final = 400
LONG_STEPS: Final = 1_600
SAMPLES: Final = int(os.environ.get("ROOTLINE_BENCH_WORLDS", "3"))
_ROOTS_A_MINUTE: Final = 10_000


def measure() -> list[Result]:
    """Run short and long worlds in turn."""
    simulate(0, 10)
    seconds: dict[int, list[float]] = {STEPS: [], LONG_STEPS: []}
    roots = 0
    for seed in range(1, SAMPLES + 1):
        for steps, taken in seconds.items():
            began = time.process_time()
            outcome = simulate(seed, steps)
            taken.append((time.process_time() - began) / steps)
            roots += outcome.versions if steps == STEPS else 0
    short, long = Spread.of(seconds[STEPS]), Spread.of(seconds[LONG_STEPS])
    rate = roots / sum(seconds[STEPS]) / STEPS * 60
    return [
        Result(
            "19",
            f"a step of a simulated world of {LONG_STEPS:,} steps",
            long,
            short,
            f"a step of one of {STEPS} steps",
            long.median / short.median,
            "≤ 1.3",
            load_average(),
            f"{rate:,.0f} roots per CPU minute at {STEPS} steps",
        ),
        Result(
            "19",
            f"CPU for {_ROOTS_A_MINUTE:,} simulated roots of worlds of {STEPS} steps, minutes",
            None,
            None,
            "one minute",
            _ROOTS_A_MINUTE / rate,
            "≤ 1",
            load_average(),
        ),
    ]
