"""A log that the first record or wait opens, so that readers need none."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rootline.adapters.open import WriterLog
from rootline.ports.intent_log import NewRecord
from rootline.schemas.log_position import LogPosition
from rootline.schemas.verdict import Verdict


class LogOnDemand:
    """The log that `open_log` opens; when that fails, the next use tries again."""

    def __init__(self, open_log: Callable[[], WriterLog]) -> None:
        self._open_log = open_log
        self._log: WriterLog | None = None

    async def publish(self, key: bytes, value: bytes, *, oldest_file_ms: int | None = None) -> LogPosition:
        """As the log's own."""
        return await self.opened().publish(key, value, oldest_file_ms=oldest_file_ms)

    async def publish_many(
        self, records: Sequence[NewRecord], *, oldest_file_ms: int | None = None
    ) -> list[LogPosition]:
        """As the log's own."""
        return await self.opened().publish_many(records, oldest_file_ms=oldest_file_ms)

    async def wait_verdict(self, position: LogPosition, *, timeout_s: float) -> Verdict | None:
        """As the log's own."""
        return await self.opened().wait_verdict(position, timeout_s=timeout_s)

    async def close(self) -> None:
        """Close the log if it was opened."""
        if self._log is not None:
            await self._log.close()

    def opened(self) -> WriterLog:
        """The log, open. Raises what opening it raises."""
        if self._log is None:
            self._log = self._open_log()
        return self._log
