"""Time to the first verdict after a coordinator was killed: the same one started again, or another member taking over.

Owns: the measurement. Does not own: the process (`command_process`), the services.
Invariants: the coordinator with the table's partition is killed, as by a power cut; the clock runs from then until the
verdict on an intent that is published at that moment; every trial has topics and a group of its own, so that none
waits for a dead member of another.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import uuid
from contextlib import ExitStack
from typing import Final
from urllib.error import HTTPError
from urllib.request import urlopen

from benchmarks.command_process import CommandProcess, running_command
from benchmarks.coordinator_process import environment_of
from benchmarks.far_services import Far, far_services
from benchmarks.measure import Result, Spread, load_average
from benchmarks.own_coordinator import require_commit
from benchmarks.sample_table import TABLE, append_record, create_record, definition
from rootline.adapters.kafka.writer_log import KafkaWriterLog
from rootline.adapters.settings import KafkaSettings
from rootline.schemas.bytes.root.statistics_codec import StatisticsCodec

TRIALS: Final = int(os.environ.get("ROOTLINE_BENCH_TAKEOVERS", "2"))
_IMPORTS: Final = "import rootline.coordinator.app"
_TIMEOUT_S: Final = 120.0


def measure() -> list[Result]:
    """Measure with services of its own."""
    starts_s: list[float] = []
    taken_s: dict[str, list[float]] = {}
    session_s = KafkaSettings().session_timeout_s
    with far_services() as far:
        for _ in range(TRIALS):
            for what in ("static", "plain", "standby"):
                starts_s.append(_bare_start())
                taken_s.setdefault(what, []).append(asyncio.run(_trial(far, what)))
    start, session = Spread.of(starts_s), Spread(session_s, session_s, session_s, 1)
    return [
        _result("killed and started again, static membership", taken_s["static"], start, "bare process start"),
        _result("killed and started again, no static membership", taken_s["plain"], session, "session timeout"),
        _result("killed, another member takes over", taken_s["standby"], session, "session timeout"),
    ]


def _result(what: str, seconds: list[float], yardstick: Spread, name: str) -> Result:
    found = Spread.of(seconds)
    runs = ", ".join(f"{value:.2f}" for value in seconds)
    notes = f"seconds: {runs}; yardstick {yardstick.median:.2f}"
    return Result(
        "–",
        f"{what}: until the first verdict",
        found,
        yardstick,
        name,
        found.median / yardstick.median,
        "–",
        load_average(),
        notes,
    )


def _bare_start() -> float:
    began_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", _IMPORTS], check=True)
    return time.perf_counter() - began_s


async def _trial(far: Far, what: str) -> float:
    settings = far.kafka.with_topics()
    environment = environment_of(far.near, settings)
    if what == "static":
        environment["ROOTLINE_KAFKA__GROUP_INSTANCE_ID"] = "coordinator-1"
    warehouse = f"s3://{far.near.bucket}/takeover-{uuid.uuid4().hex[:8]}"
    writer = _Writer(KafkaWriterLog(settings))
    with ExitStack() as running:

        def start() -> CommandProcess:
            log = far.folder / f"takeover-{uuid.uuid4().hex[:6]}.err"
            return running.enter_context(running_command(log, warehouse, settings.url, environment))

        try:
            members = [start() for _ in range(2 if what == "standby" else 1)]
            for member in members:
                await asyncio.to_thread(member.wait_ready)
            await writer.write()
            (owner,) = [member for member in members if _serves(member)]
            await asyncio.to_thread(owner.kill)
            began_s = time.perf_counter()
            verdict = asyncio.ensure_future(writer.write())
            if what != "standby":
                await asyncio.to_thread(start)
            await verdict
            return time.perf_counter() - began_s
        finally:
            await writer.log.close()


class _Writer:
    """One table's only writer; its first intent creates the table."""

    def __init__(self, log: KafkaWriterLog) -> None:
        self.log = log
        self._definition = definition()
        self._codec = StatisticsCodec(self._definition.tracked_fields)
        self._files = 0

    async def write(self) -> None:
        """Publish an intent, and wait for its verdict."""
        if self._files == 0:
            await self._commit(create_record(self._definition))
        await self._commit(append_record(range(self._files, self._files + 1), self._codec))
        self._files += 1

    async def _commit(self, record: bytes) -> None:
        position = await self.log.publish(TABLE.encode(), record)
        verdict = await self.log.wait_verdict(position, timeout_s=_TIMEOUT_S)
        require_commit(verdict)


def _serves(member: CommandProcess) -> bool:
    """Whether this member has the table."""
    try:
        with urlopen(f"{member.url}/readyz", timeout=30) as answer:
            body = json.load(answer)
    except HTTPError as error:
        body = json.load(error)
    return TABLE in body["tables"]
