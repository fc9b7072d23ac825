"""Writers that publish, wait for their verdict, and publish again, or publish at a pace: the load of goals 3 to 5.

Owns: the writers, what each of their intents went through, the figures that follow. Does not own: log, store,
coordinator, what is measured against.
Invariants: records are made before the clock starts; what a writer waits for is the verdict on its own record; the
first `WARM_UP_S` seconds of a phase do not count, because writers that all start at once are not a steady state.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.own_coordinator import require_commit
from benchmarks.sample_table import append_record, create_record, definition
from rootline.adapters.open import WriterLog
from rootline.schemas.bytes.root.statistics_codec import StatisticsCodec
from rootline.schemas.identifiers import TableName
from rootline.schemas.verdict import Verdict, VerdictKind

WARM_UP_S: Final = 0.5
FILLED: Final = 1_000
_PER_FILLING: Final = 400
_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Passage:
    """One intent: when it was to be published, when it was durable, when it had its verdict; monotonic seconds."""

    began_s: float
    durable_s: float
    decided_s: float
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Load:
    """The records that each writer publishes, one after another, on one table."""

    table: TableName
    definition: bytes
    filling: Sequence[bytes]
    records: Sequence[Sequence[bytes]]


def make_load(number: int, writers: int, each: int) -> Load:
    """Table `number`: `FILLED` files to begin with, then `each` intents of one file for every writer."""
    table = TableName(f"bench.phase{number}")
    described = definition(number + 1)
    codec = StatisticsCodec(described.tracked_fields)
    filling = [
        append_record(range(first, min(first + _PER_FILLING, FILLED)), codec, table)
        for first in range(0, FILLED, _PER_FILLING)
    ]
    records = [
        [
            append_record(range(first, first + 1), codec, table, f"writer-{writer}")
            for first in range(FILLED + writer * each, FILLED + (writer + 1) * each)
        ]
        for writer in range(writers)
    ]
    return Load(table, create_record(described, table), filling, records)


async def prepare(log: WriterLog, load: Load) -> None:
    """Create the table and fill it."""
    for record in (load.definition, *load.filling):
        passage = await _pass(log, load.table, record)
        require_commit(passage.verdict)


async def run_phase(
    log: WriterLog, load: Load, seconds: float, in_flight: int = 1, every_s: float | None = None
) -> list[Passage]:
    """Run all writers for `seconds`; in the order of verdicts.

    Each has `in_flight` intents at once, or publishes one `every_s` seconds whatever became of the last.
    """
    passages: list[Passage] = []
    end_s = time.monotonic() + seconds

    async def write(records: Iterable[bytes]) -> None:
        for record in records:
            if time.monotonic() >= end_s:
                return
            passages.append(await _pass(log, load.table, record))
        raise RuntimeError("a writer ran out of records: make more for a phase")

    async def publish(record: bytes, after_s: float) -> None:
        await asyncio.sleep(after_s)
        passages.append(await _pass(log, load.table, record))

    async with asyncio.TaskGroup() as tasks:
        for number, records in enumerate(load.records):
            if every_s is not None:
                first_s = every_s * number / len(load.records)
                for turn, record in zip(range(int(seconds / every_s)), records, strict=False):
                    tasks.create_task(publish(record, first_s + turn * every_s))
                continue
            shared = iter(records)
            for _ in range(in_flight):
                tasks.create_task(write(shared))
    return sorted(passages, key=lambda passage: passage.decided_s)


async def _pass(log: WriterLog, table: TableName, record: bytes) -> Passage:
    began_s = time.monotonic()
    position = await log.publish(table.encode(), record)
    durable_s = time.monotonic()
    verdict = await log.wait_verdict(position, timeout_s=_TIMEOUT_S)
    if verdict is None:
        raise RuntimeError(f"{table}: no verdict within {_TIMEOUT_S} s")
    return Passage(began_s, durable_s, time.monotonic(), verdict)


def steady(passages: Sequence[Passage]) -> list[Passage]:
    """The intents that began after the warm-up."""
    begin_s = min(passage.began_s for passage in passages) + WARM_UP_S
    return [passage for passage in passages if passage.began_s >= begin_s]


def failures(passages: Iterable[Passage]) -> int:
    """How many were not committed."""
    return sum(passage.verdict.kind is not VerdictKind.COMMITTED for passage in passages)


@dataclass(frozen=True, slots=True)
class Rates:
    """Figures per second of steady work."""

    intents: float
    commits: float


def rates(passages: Sequence[Passage], end_s: float) -> Rates:
    """Rates from the first commit after the warm-up to the last one before `end_s`, while all writers wrote."""
    begin_s = min(passage.began_s for passage in passages) + WARM_UP_S
    told: dict[int, float] = {}
    served: dict[int, int] = {}
    for passage in passages:
        version = passage.verdict.version or 0
        told[version] = max(told.get(version, 0.0), passage.decided_s)
        served[version] = served.get(version, 0) + 1
    counted = sorted(version for version, at_s in told.items() if begin_s <= at_s <= end_s)
    elapsed_s = told[counted[-1]] - told[counted[0]]
    later = counted[1:]
    return Rates(sum(served[version] for version in later) / elapsed_s, len(later) / elapsed_s)
