"""The intent log in lists, for tests, simulations and `memory://`.

Owns: the records and verdicts, which end with the process. Does not own: framing of records.
Invariants: passes the contract of every embedded log; offsets count up from 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Sequence

from rootline.adapters.tracing import publishing
from rootline.ports.intent_log import NewRecord, check_identity
from rootline.schemas.bytes.record_headers import content_headers, trace_headers
from rootline.schemas.identifiers import LogId, LogPosition, LogRecord, oldest_file_header
from rootline.schemas.verdict import DeadLetter, Verdict, newest_versions


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class MemoryIntentLog:
    """One log in memory, for the coroutines of one event loop. `clock_ms`: append times, milliseconds."""

    def __init__(self, *, identity: uuid.UUID | None = None, clock_ms: Callable[[], int] = _wall_clock_ms) -> None:
        self._identity = LogId(f"embedded/{identity or uuid.uuid4()}")
        self._clock_ms = clock_ms
        self._records: list[LogRecord] = []
        self._verdicts: dict[int, Verdict] = {}
        self._dead_letters: dict[int, DeadLetter] = {}
        self._first_undecided = 0
        self._heads: dict[str, int] = {}
        self._changed = asyncio.Event()

    async def publish(self, key: bytes, value: bytes, *, oldest_file_ms: int | None = None) -> LogPosition:
        """Append one record."""
        return (await self.publish_many([(key, value)], oldest_file_ms=oldest_file_ms))[0]

    async def publish_many(
        self, records: Sequence[NewRecord], *, oldest_file_ms: int | None = None
    ) -> list[LogPosition]:
        """Append records in order."""
        positions = []
        with publishing(records[0][0] if records else b"", len(records)) as trace:
            claim = (*oldest_file_header(oldest_file_ms), *trace_headers(trace))
        for key, value, *said in records:
            position = LogPosition(self._identity, 0, len(self._records))
            headers = (*content_headers(*said), *claim)
            self._records.append(LogRecord(position, bytes(key), bytes(value), self._clock_ms(), headers))
            positions.append(position)
        self._wake()
        return positions

    async def identity(self) -> LogId:
        """`embedded/<uuid>`."""
        return self._identity

    async def first_undecided(self) -> int:
        """The lowest offset without a verdict; the next offset when every record has one."""
        while self._first_undecided in self._verdicts:
            self._first_undecided += 1
        return self._first_undecided

    async def beginning(self) -> int:
        """The first offset: nothing is ever deleted."""
        return 0

    async def confirmed_version(self, table: str) -> int | None:
        """The highest version of `table` that a verdict ever named."""
        return self._heads.get(table)

    async def end_offset(self) -> int:
        """The offset that the next record will get."""
        return len(self._records)

    async def read(self, from_offset: int, *, limit: int, wait_s: float) -> list[LogRecord]:
        """Up to `limit` records at or after `from_offset`, waiting up to `wait_s` seconds for the first one."""
        start = max(from_offset, 0)
        await self._wait_for(lambda: len(self._records) > start, wait_s)
        return self._records[start : start + limit]

    async def publish_verdicts(self, verdicts: Sequence[Verdict], dead_letters: Sequence[DeadLetter]) -> None:
        """Keep the first verdict and the first dead letter of each offset."""
        for log in {item.log for item in verdicts} | {item.log for item in dead_letters}:
            check_identity(self._identity, log)
        for verdict in verdicts:
            self._verdicts.setdefault(verdict.offset, verdict)
        for table, version in newest_versions(verdicts).items():
            self._heads[table] = max(version, self._heads.get(table, 0))
        for letter in dead_letters:
            self._dead_letters.setdefault(letter.offset, letter)
        self._wake()

    async def wait_verdict(self, position: LogPosition, *, timeout_s: float) -> Verdict | None:
        """The verdict on the record at `position`; `None` when none came in `timeout_s` seconds."""
        check_identity(self._identity, position.log)
        await self._wait_for(lambda: position.offset in self._verdicts, timeout_s)
        return self._verdicts.get(position.offset)

    async def dead_letters(self, *, limit: int = 1_000) -> list[DeadLetter]:
        """The newest `limit` rejected records, in offset order."""
        return [self._dead_letters[offset] for offset in sorted(self._dead_letters)[-limit:]]

    async def close(self) -> None:
        """Keep everything: a test may go on looking."""

    async def _wait_for(self, holds: Callable[[], bool], wait_s: float) -> None:
        if holds() or wait_s <= 0:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while not holds():
                    await self._changed.wait()

    def _wake(self) -> None:
        # present waiters wake; later ones wait for a fresh event
        self._changed.set()
        self._changed = asyncio.Event()
