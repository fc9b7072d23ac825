"""The waiters for verdicts, and verdicts that were not waited for yet.

Owns: futures of waiters, memory for late ones. Does not own: where verdicts come from (`verdict_source`).
Invariants: the first verdict on a position stays while it is remembered; memory is bounded; records that concern no
waiter here are kept as bytes and not decoded, because every writer reads the verdicts of all writers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass

from rootline.adapters.kafka.record_headers import VerdictRange
from rootline.schemas.bytes.verdict_codec import decode_verdicts
from rootline.schemas.identifiers import LogPosition
from rootline.schemas.verdict import Verdict

_Place = tuple[str, int]


@dataclass(slots=True)
class _Remembered:
    """A record, and its verdicts once a waiter has asked for one."""

    first: int
    last: int
    value: bytes
    verdicts: dict[int, Verdict] | None = None

    def verdict(self, place: _Place, offset: int) -> Verdict | None:
        if not self.first <= offset <= self.last:
            return None
        if self.verdicts is None:
            decoded = (item for item in decode_verdicts(self.value) if (item.log, item.partition) == place)
            self.verdicts = {item.offset: item for item in decoded}
        return self.verdicts.get(offset)


class VerdictWaiters:
    """For one event loop. `bytes_max` bounds the records kept for late waiters."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._waiting: dict[_Place, dict[int, set[asyncio.Future[Verdict]]]] = {}
        self._kept: dict[_Place, deque[_Remembered]] = {}
        self._order: deque[_Place] = deque()
        self._reached: dict[_Place, int] = {}

    @property
    def kept_bytes(self) -> int:
        """The bytes that are kept for late waiters."""
        return self._bytes

    async def wait(self, position: LogPosition, timeout_s: float) -> Verdict | None:
        """The verdict on `position`, now or within `timeout_s` seconds."""
        place, offset = (position.log, position.partition), position.offset
        found = self._late(place, offset)
        if found is not None or timeout_s <= 0:
            return found
        future: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(place, {})
        waiting.setdefault(offset, set()).add(future)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    return await future
            return None
        finally:
            futures = waiting.get(offset)
            if futures is not None:
                futures.discard(future)
                if not futures:
                    del waiting[offset]

    def arrived(self, value: bytes, covers: VerdictRange | None) -> None:
        """A record came. Raises `Invalid` when it must be decoded and cannot be."""
        if covers is not None:
            self._remember((covers.log, covers.partition), _Remembered(covers.first, covers.last, value))
            return
        for verdict in decode_verdicts(value):  # written by another program, without our headers
            held = _Remembered(verdict.offset, verdict.offset, b"", {verdict.offset: verdict})
            self._remember((verdict.log, verdict.partition), held)

    def fail(self, error: Exception) -> None:
        """Give `error` to every waiter."""
        for waiting in self._waiting.values():
            for futures in waiting.values():
                for future in futures:
                    if not future.done():
                        future.set_exception(error)

    def _remember(self, place: _Place, record: _Remembered) -> None:
        self._tell(place, record)
        self._kept.setdefault(place, deque()).append(record)
        self._order.append(place)
        self._bytes += _size(record)
        self._reached[place] = max(record.last, self._reached.get(place, -1))
        while self._bytes > self._bytes_max and self._order:
            oldest = self._order.popleft()
            kept = self._kept[oldest]
            self._bytes -= _size(kept.popleft())
            if not kept:
                del self._kept[oldest]

    def _tell(self, place: _Place, record: _Remembered) -> None:
        waiting = self._waiting.get(place)
        if not waiting:
            return
        for offset in [offset for offset in waiting if record.first <= offset <= record.last]:
            verdict = record.verdict(place, offset)
            if verdict is not None:
                for future in waiting[offset]:
                    if not future.done():
                        future.set_result(verdict)

    def _late(self, place: _Place, offset: int) -> Verdict | None:
        if offset > self._reached.get(place, -1):  # the usual case: nothing so new was decided yet
            return None
        for record in self._kept.get(place, ()):
            verdict = record.verdict(place, offset)
            if verdict is not None:
                return verdict
        return None


def _size(record: _Remembered) -> int:
    return len(record.value) + 256  # with what Python adds
