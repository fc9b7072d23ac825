"""A log that the first record or wait opens, so that readers need none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from rootline.adapters.open import WriterLog
from rootline.ports.intent_log import KnowsItsLake, NewRecord
from rootline.schemas.identifiers import LogPosition
from rootline.schemas.verdict import Verdict
from rootline.storage.warehouse import FindLake


class LogOnDemand:
    """The log that `open_log` opens. When that fails, the next use tries again.

    `find_lake`: identifies this lake, where the log could be another's. It is called before the first record.
    """

    def __init__(self, open_log: Callable[[], WriterLog], find_lake: FindLake | None = None) -> None:
        self._open_log = open_log
        self._find_lake = find_lake
        self._introducing = asyncio.Lock()
        self._log: WriterLog | None = None

    async def publish(self, key: bytes, value: bytes, *, oldest_file_ms: int | None = None) -> LogPosition:
        """As the log's own."""
        return await (await self._introduced()).publish(key, value, oldest_file_ms=oldest_file_ms)

    async def publish_many(
        self, records: Sequence[NewRecord], *, oldest_file_ms: int | None = None
    ) -> list[LogPosition]:
        """As the log's own."""
        return await (await self._introduced()).publish_many(records, oldest_file_ms=oldest_file_ms)

    async def wait_verdict(self, position: LogPosition, *, timeout_s: float) -> Verdict | None:
        """As the log's own."""
        return await self.opened().wait_verdict(position, timeout_s=timeout_s)

    async def close(self) -> None:
        """Close the log if it was opened."""
        if self._log is not None:
            await self._log.close()

    async def _introduced(self) -> WriterLog:
        """The log, which knows for which lake it is used. Raises `Invalid` (`lake-mismatch`)."""
        log = self.opened()
        if self._find_lake is not None:
            async with self._introducing:
                lake = None if self._find_lake is None else await self._find_lake()
                if lake is not None and isinstance(log, KnowsItsLake):
                    await log.introduce(lake)
                self._find_lake = None
        return log

    def opened(self) -> WriterLog:
        """The log, open. Raises what opening it raises."""
        if self._log is None:
            self._log = self._open_log()
        return self._log
