"""A coordinator in a process of its own, as `rootline coordinator` runs it, that also notes each PUT.

Owns: the process, its environment, what is noted. Does not own: the service, what is done with the notes.
Invariants: it is ended by its own process id; its stderr is shown when it does not start.

`python -m benchmarks.coordinator_process WAREHOUSE LOG NOTES` is the process itself. `ROOTLINE_BENCH_PROFILE` names a
file that gets its cProfile statistics when it ends.
"""

from __future__ import annotations

import asyncio
import cProfile
import logging
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog

from benchmarks.store_trace import Put, TracingStore, read_notes
from examples.spark_demo.service import stop_process
from rootline.adapters.open import open_coordinator_log, open_store
from rootline.adapters.settings import KafkaSettings
from rootline.coordinator.app import CoordinatorService, settle_memory
from rootline.coordinator.settings import CoordinatorSettings
from tests.services.s3_service import S3Service

_READY = "ready"
_START_S = 60.0
_STOP_S = 60.0
_PAGE_KB = resource.getpagesize() // 1024
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def environment_of(store: S3Service | None, kafka: KafkaSettings | None) -> dict[str, str]:
    """The variables that tell a process of ours where store and log are."""
    found: dict[str, str] = {}
    if store is not None:
        found |= store.environment()
    if kafka is not None:
        names = (
            "bootstrap_servers",
            "intents_topic",
            "verdicts_topic",
            "dead_letters_topic",
            "frontiers_topic",
            "parked_topic",
            "group_id",
        )
        found |= {f"ROOTLINE_KAFKA__{name.upper()}": str(getattr(kafka, name)) for name in names}
    return found


@dataclass(frozen=True, slots=True)
class ProcessCost:
    """The cost of a process: CPU seconds so far, memory now in MB."""

    cpu_s: float
    rss_mb: float


def cost_of(pid: int) -> ProcessCost:
    """The cost of process `pid`, as the kernel counts it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    return ProcessCost(cpu_s, int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_KB / 1024)


def cpu_of_tree(pid: int) -> float:
    """CPU seconds so far of process `pid` and of all that it started, also of those that have ended."""
    tree: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:  # it has ended meanwhile, and its parent counts it
            continue
        tree.setdefault(int(fields[1]), []).append(int(entry.name))
        ticks[int(entry.name)] = sum(map(int, fields[11:15]))
    found, todo = 0, [pid]
    while todo:
        process = todo.pop()
        found += ticks.get(process, 0)
        todo.extend(tree.get(process, ()))
    return found / _TICKS_PER_S


@dataclass(frozen=True, slots=True)
class CoordinatorProcess:
    """A running coordinator."""

    process: subprocess.Popen[str]
    notes: Path
    start_s: float
    """Seconds from its start until it was ready."""

    def puts(self) -> list[Put]:
        """Every PUT so far."""
        return read_notes(self.notes)

    def cost(self) -> ProcessCost:
        """CPU and memory."""
        return cost_of(self.process.pid)


@contextmanager
def running_coordinator(
    folder: Path, warehouse: str, log: str, environment: Mapping[str, str]
) -> Iterator[CoordinatorProcess]:
    """Start one, wait until it is ready, stop it cleanly."""
    folder.mkdir(parents=True, exist_ok=True)
    notes, errors = folder / "puts.jsonl", folder / "coordinator.err"
    command = [sys.executable, "-m", "benchmarks.coordinator_process", warehouse, log, str(notes)]
    began_s = time.monotonic()
    with errors.open("w") as output:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=output, text=True, env={**os.environ, **environment}
        )
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != _READY:
            raise RuntimeError(f"the coordinator did not start: {errors.read_text()[-3000:]}")
        yield CoordinatorProcess(process, notes, time.monotonic() - began_s)
    finally:
        stop_process(process, _STOP_S)


async def _serve(warehouse: str, log: str, notes: Path) -> None:
    with notes.open("w", buffering=1) as lines:
        store = TracingStore(open_store(warehouse), lines)
        service = CoordinatorService(store=store, log=open_coordinator_log(log), settings=CoordinatorSettings())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, service.request_stop)
        settle_memory()
        running = asyncio.ensure_future(service.run())
        deadline_s = time.monotonic() + _START_S
        while not service.readiness().ready and not running.done() and time.monotonic() < deadline_s:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        if service.readiness().ready:
            print(_READY, flush=True)
        else:
            print(service.readiness().reason, file=sys.stderr)
            service.request_stop()
        try:
            await running
        finally:
            await store.close()


def main(arguments: Sequence[str]) -> None:
    """Run the process itself."""
    warehouse, log, notes = arguments
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    profile = os.environ.get("ROOTLINE_BENCH_PROFILE")
    if profile is None:
        asyncio.run(_serve(warehouse, log, Path(notes)))
        return
    profiler = cProfile.Profile(time.process_time)  # CPU time, so waiting costs nothing
    try:
        profiler.runcall(asyncio.run, _serve(warehouse, log, Path(notes)))
    finally:
        profiler.dump_stats(profile)


if __name__ == "__main__":
    main(sys.argv[1:])
