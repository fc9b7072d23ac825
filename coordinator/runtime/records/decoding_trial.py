"""Records that were being read when a coordinator was killed: decoded by a child process first.

Owns: the child process, its limits and its end; which records end it. Does not own: which records are suspects (the
feed), what becomes of them (`assignment`).
Invariants: nothing that a record does to the child reaches this process; the child's end is blamed on the one record
that it had in hand; a child that does not start rejects nothing.

Theory. A record that kills the process that decodes it would kill the next owner too, and the one after that. So after
an unclean end the records that may have been in hand are given to a child, one by one: it answers each with a byte.
Where the answers end, the record is rejected by its coordinates, and a new child takes the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from rootline.coordinator.runtime.records.decoding_child import READY, frame
from rootline.schemas.identifiers import LogPosition, LogRecord, by_name
from rootline.schemas.intent_rules import IntentLimits

_START_PATIENCE_S: Final = 60.0
_COMMAND: Final = (sys.executable, "-m", "rootline.coordinator.runtime.records.decoding_child")


@dataclass(slots=True)
class DecodingTrial:
    """`record_timeout_s`: how long one record may take, on a busy machine too.

    `memory_bytes`: what it may take beyond the child's own.
    """

    limits: IntentLimits
    record_timeout_s: float = 10.0
    memory_bytes: int = 1 << 30
    command: Sequence[str] = field(default_factory=lambda: _COMMAND)
    _child: Process | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def poison_among(self, records: Sequence[LogRecord]) -> dict[LogPosition, str]:
        """The records that end a process which decodes them, and how each did."""
        async with self._turn:
            return await self._poison_among(records)

    async def close(self) -> None:
        """End the child, if there is one."""
        async with self._turn:
            await self._end()

    async def _poison_among(self, records: Sequence[LogRecord]) -> dict[LogPosition, str]:
        found: dict[LogPosition, str] = {}
        waiting = list(records)
        while waiting:
            child = await self._ready()
            if child is None:
                structlog.get_logger().error("no trial of suspect records", action="trial", reason="no child started")
                break
            passed, how = await self._try(child, waiting)
            if how:
                await self._end()
                found[waiting[passed].position] = how
                passed += 1
            del waiting[:passed]
        return found

    async def _end(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()

    async def _ready(self) -> Process | None:
        """The child that there is, or a new one; `None` when none starts."""
        if self._child is not None:
            return self._child
        child = self._child = await asyncio.create_subprocess_exec(*self.command, stdin=PIPE, stdout=PIPE)
        assert child.stdin is not None
        child.stdin.write(frame(pickle.dumps((self.limits, self.memory_bytes))))
        if await _answer(child, _START_PATIENCE_S) == READY:
            return child
        await self._end()
        return None

    async def _try(self, child: Process, records: Sequence[LogRecord]) -> tuple[int, str]:
        """How many records the child decoded, and how it ended if it did."""
        feeding = asyncio.ensure_future(_feed(child, records))
        try:
            for passed in range(len(records)):
                answer = await _answer(child, self.record_timeout_s)
                if answer is None:
                    return passed, f"took longer than {self.record_timeout_s:g} s to decode"
                if not answer:
                    return passed, _how(await child.wait())
            return len(records), ""
        finally:
            feeding.cancel()
            await asyncio.wait({feeding})
            if not feeding.cancelled():
                feeding.exception()  # a pipe that broke with the child


async def _feed(child: Process, records: Sequence[LogRecord]) -> None:
    assert child.stdin is not None
    for record in records:
        child.stdin.write(frame(pickle.dumps((record.value, by_name(record.headers)))))
        await child.stdin.drain()


async def _answer(child: Process, patience_s: float) -> bytes | None:
    """One byte; none at the end; `None` when none came in time."""
    assert child.stdout is not None
    try:
        async with asyncio.timeout(patience_s):
            return await child.stdout.read(1)
    except TimeoutError:
        return None


def _how(status: int) -> str:
    return f"ended the process that decoded it ({f'signal {-status}' if status < 0 else f'exit code {status}'})"
