"""What a thousand tables cost one process while nothing happens to any of them.

Owns: the measurement. Does not own: the tables (`backlog` makes them), the process (`command_process`).
Invariants: the measured process has committed to every table, so it holds all of them; nothing is asked of the process
while its CPU is measured; one table and many are measured in turn, each in a fresh process.
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

TABLES: Final = int(os.environ.get("ROOTLINE_BENCH_IDLE_TABLES", "1000"))
_SETTLE_S: Final = 2.0
_IDLE_S: Final = 10.0
_LOOK_S: Final = 0.5
_LIMIT_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Idle:
    """CPU seconds per second, memory, and how long it took until every table had its first two roots."""

    cpu: float
    rss_mb: float
    filled_s: float


def measure() -> list[Result]:
    """Measure with services of its own."""
    with far_services() as far:
        one, many = _idle(far, 1), _idle(far, TABLES)
    load = load_average()
    each_kb = (many.rss_mb - one.rss_mb) * 1024 / (TABLES - 1)
    cpu = f"{many.cpu * 1000:.1f} ms of CPU a second against {one.cpu * 1000:.1f}"
    memory = f"{many.rss_mb:.0f} MB against {one.rss_mb:.0f} MB, {each_kb:.0f} KiB a table"
    filled = f"; made and committed to in {many.filled_s:.1f} s"
    return [
        Result("–", f"{TABLES} idle tables, CPU", None, None, "one", many.cpu / max(one.cpu, 1e-4), "–", load, cpu),
        Result(
            "–",
            f"{TABLES} idle tables, memory",
            None,
            None,
            "one",
            many.rss_mb / one.rss_mb,
            "–",
            load,
            memory + filled,
        ),
    ]


def _idle(far: Far, tables: int) -> Idle:
    settings = far.kafka.with_topics()
    produce(settings, tables=tables, intents=tables)
    warehouse = f"s3://{far.near.bucket}/idle-{uuid.uuid4().hex[:8]}"
    began_s = time.monotonic()
    with running_command(
        far.folder / "idle.err", warehouse, settings.url, environment_of(far.near, settings)
    ) as process:
        while process.metric("rootline_verdicts_total") < 2 * tables:
            if time.monotonic() - began_s > _LIMIT_S:
                raise TimeoutError(f"{tables} tables are not there after {_LIMIT_S:.0f} s")
            time.sleep(_LOOK_S)
        filled_s = time.monotonic() - began_s
        time.sleep(_SETTLE_S)
        before, before_s = process.cost(), time.monotonic()
        time.sleep(_IDLE_S)
        after = process.cost()
        cpu = (after.cpu_s - before.cpu_s) / (time.monotonic() - before_s)
        return Idle(cpu, after.rss_mb, filled_s)
