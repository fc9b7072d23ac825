"""Goal 12, backlog: what a coordinator with default settings holds while it works through a million intents.

Owns: the measurement, one table and many. Does not own: the intents (`backlog`), the process (`command_process`).
Invariants: memory is the resident set as the kernel accounts for it, sampled all the time; a long and a short
backlog of the same intents are worked through by fresh processes, in turn; tables stay equally small.
"""

from __future__ import annotations

import os
import time
import uuid
from dataclasses import dataclass
from typing import Final

from benchmarks.backlog import produce
from benchmarks.command_process import running_command
from benchmarks.coordinator_process import environment_of
from benchmarks.far_services import Far, far_services
from benchmarks.measure import Result, load_average

INTENTS: Final = int(os.environ.get("ROOTLINE_BENCH_BACKLOG", "100000"))
_SHORT: Final = 10_000
_TABLES: Final = (1, 100)
_SAMPLE_S: Final = 0.1
_LIMIT_S: Final = float(os.environ.get("ROOTLINE_BENCH_BACKLOG_SECONDS", "600"))


@dataclass(frozen=True, slots=True)
class Worked:
    """The cost of one backlog for one process, in MB and seconds. `at_rest_mb`: after the start, before any record."""

    decided: int
    seconds: float
    at_rest_mb: float
    max_mb: float
    end_mb: float
    queue_max_mb: float
    cpu_s: float

    @property
    def rate(self) -> float:
        """Intents decided per second."""
        return self.decided / self.seconds


def measure() -> list[Result]:
    """Measure with services of its own."""
    with far_services() as far:
        return [item for tables in _TABLES for item in _results(far, tables)]


def _results(far: Far, tables: int) -> list[Result]:
    short = work_through(far, tables=tables, intents=_SHORT)
    long = work_through(far, tables=tables, intents=INTENTS)
    where = f"{tables} table{'s' if tables > 1 else ''}"
    return [
        Result(
            "12",
            f"memory under a backlog of {INTENTS:,} intents, {where}",
            None,
            None,
            f"a backlog of {_SHORT:,}",
            long.max_mb / short.max_mb,
            "flat",
            load_average(),
            f"at most {long.max_mb:.0f} MB against {short.max_mb:.0f} MB, {long.at_rest_mb:.0f} MB at rest, "
            f"{long.end_mb:.0f} MB at the end, queues at most {long.queue_max_mb:.0f} MB; "
            f"{long.rate:.0f} intents/s ({long.decided:,} in {long.seconds:.0f} s, {long.cpu_s:.0f} s of CPU)",
        )
    ]


def work_through(far: Far, *, tables: int, intents: int) -> Worked:
    """Start a fresh process on a fresh topic with a backlog, and on the store without a delay."""
    settings = far.kafka.with_topics()
    produce(settings, tables=tables, intents=intents)
    warehouse = f"s3://{far.near.bucket}/backlog-{uuid.uuid4().hex[:8]}"
    environment = environment_of(far.near, settings)
    began_s = time.monotonic()
    with running_command(far.folder / "backlog.err", warehouse, settings.url, environment) as process:
        at_rest_mb = max_mb = process.cost().rss_mb
        queue_max_mb, decided, looked_s = 0.0, 0, 0.0
        while decided < intents + tables and time.monotonic() - began_s < _LIMIT_S:
            time.sleep(_SAMPLE_S)
            max_mb = max(max_mb, process.cost().rss_mb)
            if time.monotonic() - looked_s >= 1.0:
                looked_s = time.monotonic()
                decided = int(process.metric("rootline_verdicts_total"))
                queue_max_mb = max(queue_max_mb, process.metric("rootline_queue_bytes") / 1e6)
        seconds = time.monotonic() - began_s
        cost = process.cost()
        return Worked(decided, seconds, at_rest_mb, max_mb, cost.rss_mb, queue_max_mb, cost.cpu_s)
