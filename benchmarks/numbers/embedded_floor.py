"""What a commit through another process must cost over the embedded log: its floor, part by part, and what it costs.

Owns: the waking of one process by another, and the table. Does not own: the commit, the bare PUT and the durable
write (`two_processes`).
Invariants: both ways of waking are of the same log on the same disk; times of two processes are read from one clock.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks import two_processes
from benchmarks.measure import Result
from rootline.adapters.sqlite.intent_log import SqliteIntentLog

_RECORDS: Final = 200
_PAUSE_S: Final = 0.02
_READER: Final = """
import asyncio, sys, time
from pathlib import Path
from rootline.adapters.sqlite.intent_log import SqliteIntentLog

async def main() -> None:
    log, offset = SqliteIntentLog(Path(sys.argv[1])), 0
    print("ready", flush=True)
    for _ in range(int(sys.argv[2])):
        (record,) = await log.read(offset, limit=1, wait_s=60.0)
        print(time.monotonic_ns(), flush=True)
        offset = record.position.offset + 1
    await log.close()

asyncio.run(main())
"""
_READING: Final = (
    "The floor is the PUT and what is durable around it: the intent, before the coordinator may read it, and the "
    "verdict, whose commit is its acknowledgement. Two wake-ups come on top: the coordinator hears of the intent, the "
    "writer of the verdict. A process that has written rings; one that hears nothing looks every 1 to 5 ms."
)


def section() -> str:
    """The chapter's text."""
    with tempfile.TemporaryDirectory(prefix="rootline-bench-", dir=".") as folder:
        rung, unrung = _wakings(Path(folder) / "rung", True), _wakings(Path(folder) / "unrung", False)
    rows = [
        "| what | milliseconds |",
        "|---|---:|",
        f"| another process has read a record, after it is durable: it was rung for | {_ms(rung)} |",
        f"| the same, it looks by itself | {_ms(unrung)} |",
    ]
    for result in two_processes.measure():
        rows += _rows_of(result)
    text = "Medians of one run, on a store beside us and on one 60 ms away."
    return "\n".join([text, "", *rows, "", _READING])


def _rows_of(result: Result) -> list[str]:
    assert result.subject is not None
    assert result.yardstick is not None
    where = result.what.rpartition(", ")[2]
    return [
        f"| {where}: bare conditional PUT | {result.yardstick.median * 1000:.1f} |",
        f"| {where}: the commit; {result.notes} | {result.subject.median * 1000:.1f} ({result.ratio:.2f} ×) |",
    ]


def _ms(seconds: list[float]) -> str:
    return f"{median(seconds) * 1000:.2f}"


def _wakings(folder: Path, with_bells: bool) -> list[float]:
    """Seconds from a durable record to its being read, each after a pause."""
    folder.mkdir()
    command = [sys.executable, "-c", _READER, str(folder), str(_RECORDS)]
    elsewhere = {} if with_bells else {"TMPDIR": str(folder.absolute())}  # where no one rings
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **elsewhere}) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        appended = asyncio.run(_append(folder))
        read = [int(line) for line in reader.stdout]
    return [(at - then) / 1e9 for then, at in zip(appended, read, strict=True)]


async def _append(folder: Path) -> list[int]:
    log = SqliteIntentLog(folder)
    times = []
    for _ in range(_RECORDS):
        await asyncio.sleep(_PAUSE_S)
        await log.publish(b"bench.a", bytes(2_000))
        times.append(time.monotonic_ns())
    await log.close()
    return times
