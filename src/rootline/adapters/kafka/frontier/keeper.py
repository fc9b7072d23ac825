"""When the frontier of each partition is written to its topic: soon after the group has remembered it, not every time.

Owns: what is noted and not written yet, and the task that writes it. Does not own: the records (`frontier/records`),
which offsets may be remembered (`progress`).
Invariants: nothing is written that the group has not remembered before; what was noted last is written, without another
call, within ten seconds or at the next success; a failure delays nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog

from rootline.adapters.kafka.frontier.marks import Mark
from rootline.adapters.kafka.frontier.records import NO_MARKS, frontier_publisher, write_frontiers
from rootline.adapters.kafka.publisher import Outgoing
from rootline.adapters.kafka.settings import KafkaSettings
from rootline.schemas.errors import RootlineError
from rootline.schemas.identifiers import LogId

_PAUSE_S: Final = 10.0
"""The shortest time between two writes; a crash in between leaves a lower bound."""


class FrontierKeeper:
    """For one event loop."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._publisher = frontier_publisher(settings)
        self._noted: dict[tuple[LogId, int], int] = {}
        self._marks: dict[LogId, dict[int, Mark]] = {}
        self._writing: asyncio.Task[None] | None = None
        self._publishing: set[asyncio.Task[Any]] = set()
        self._closing = asyncio.Event()

    def note(self, log: LogId, offsets: Mapping[int, int], marks: Mapping[int, Mark] = NO_MARKS) -> None:
        """The group has remembered these: write them soon. `marks`: the record that was read last of each."""
        self._marks.setdefault(log, {}).update(marks)
        for partition, offset in offsets.items():
            self._noted[log, partition] = max(offset, self._noted.get((log, partition), 0))
        if self._noted and self._writing is None and not self._closing.is_set():
            self._writing = asyncio.get_running_loop().create_task(self._write(), name="rootline frontiers")

    async def flush(self) -> None:
        """Write what was noted, as far as one attempt does."""
        if not self._noted:
            return
        noted, self._noted = self._noted, {}
        by_log: dict[LogId, dict[int, int]] = {}
        for (log, partition), offset in noted.items():
            by_log.setdefault(log, {})[partition] = offset
        try:
            for log, offsets in by_log.items():
                marks = self._marks.get(log, NO_MARKS)
                await write_frontiers(self._settings, self._publisher, log, offsets, marks)
        except RootlineError as error:
            for place, offset in noted.items():  # for the next attempt, unless a later one was noted meanwhile
                self._noted[place] = max(offset, self._noted.get(place, 0))
            logger = structlog.get_logger("rootline.kafka")
            logger.info("frontiers not written", action="retry", reason=str(error))

    async def publish(self, records: Sequence[Outgoing]) -> None:
        """Other records of the topic; durable when it returns. Raises as `KafkaPublisher.publish`."""
        publishing = asyncio.get_running_loop().create_task(self._publisher.publish(records))
        self._publishing.add(publishing)
        publishing.add_done_callback(self._published)
        await asyncio.shield(publishing)  # a rebalance must not cut off a connection that is being made

    def forget(self) -> None:
        """The partitions go to others, who write their own."""
        self._noted.clear()
        self._marks.clear()

    async def close(self) -> None:
        """Write no more; close the connection. A write that is under way ends first, or after its deadline."""
        self._noted.clear()
        self._closing.set()
        writing = self._writing
        if writing is not None:
            await asyncio.wait([writing], timeout=self._settings.request_timeout_s)
            writing.cancel()
            await asyncio.wait([writing])
        if self._publishing:
            await asyncio.wait(self._publishing, timeout=self._settings.request_timeout_s)
        await self._publisher.close()

    def _published(self, task: asyncio.Task[Any]) -> None:
        self._publishing.discard(task)
        if not task.cancelled():
            task.exception()  # looked at, or asyncio would complain

    async def _write(self) -> None:
        """Until nothing is left to write; the next note starts it again."""
        while self._noted:
            await self.flush()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE_S):
                    await self._closing.wait()
                    break
        self._writing = None
