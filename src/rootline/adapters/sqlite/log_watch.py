"""Waiting for records and verdicts of the embedded log, from any process.

Owns: the waiters, and the poller that runs while there are any. Does not own: reading rows (`log_file`), how another
process says that it has written (`log_bells`).
Invariants: a write of this process wakes its waiters at once; a write of another process is noticed when that one
rings. One that does not ring (an older version, another user) is noticed through `PRAGMA data_version`: within 5 ms if
this process has no bell. If it has one: within 5 ms for a minute after such a write, else within 0.2 s. A waiter begins
to watch before it reads, so that it misses nothing. An error of the poller reaches every waiter.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from rootline.adapters.sqlite.log_bells import Wakeups
from rootline.adapters.sqlite.log_file import LogReader
from rootline.schemas.errors import RootlineError, Unavailable
from rootline.schemas.identifiers import LogRecord
from rootline.schemas.verdict import Verdict

_PAUSE_MIN_S: Final = 0.001
_PAUSE_MAX_S: Final = 0.005
_QUIET_AFTER_S: Final = 1.0
_QUIET_AFTER_UNHEARD_S: Final = 60.0
_QUIET_PAUSE_S: Final = 0.2
"""Of a poller that has a bell: looking 200 times a second takes 3 % of a core."""
_Answer = TypeVar("_Answer")


class LogWatch:
    """The waiters of one log, on one event loop."""

    def __init__(self, reader: LogReader, bells: Wakeups) -> None:
        self._reader = reader
        self._bells = bells
        self._readers: set[asyncio.Future[None]] = set()
        self._verdicts: dict[int, set[asyncio.Future[Verdict]]] = {}
        self._poller: asyncio.Task[None] | None = None
        self._seen_version = 0
        self._quiet_after_s = _QUIET_AFTER_S
        self._is_explained = False

    async def records(self, from_offset: int, *, limit: int, wait_s: float) -> list[LogRecord]:
        """The records from `from_offset` on, waiting up to `wait_s` seconds for the first one."""
        found = self._reader.records(from_offset, limit)
        if found or wait_s <= 0:
            return found
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while not found:
                    with self._waiter_in(self._readers) as changed:
                        found = self._reader.records(from_offset, limit)
                        if not found:
                            await changed
        return found

    async def verdict(self, offset: int, *, timeout_s: float) -> Verdict | None:
        """The verdict on the record at `offset`; `None` when none came in `timeout_s` seconds."""
        waiters = self._verdicts.setdefault(offset, set())
        try:
            with self._waiter_in(waiters) as decided:
                found = self._reader.verdict(offset)
                if found is not None or timeout_s <= 0:
                    return found
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(timeout_s):
                        return await decided
                return None
        finally:
            if not waiters and self._verdicts.get(offset) is waiters:
                del self._verdicts[offset]

    def appended(self) -> None:
        """This process has appended records: wake their waiters."""
        self._is_explained = True
        self._wake_readers()

    def _wake_readers(self) -> None:
        for waiter in self._readers:
            if not waiter.done():
                waiter.set_result(None)

    def decided(self, verdicts: Sequence[Verdict]) -> None:
        """This process has stored these verdicts for their offsets: wake their waiters."""
        self._is_explained = True
        self._wake_deciding(verdicts)

    def _wake_deciding(self, verdicts: Sequence[Verdict]) -> None:
        for verdict in verdicts:
            for waiter in self._verdicts.get(verdict.offset, ()):
                if not waiter.done():
                    waiter.set_result(verdict)

    async def close(self, reason: str) -> None:
        """Stop; remaining waiters get `Unavailable` with `reason`."""
        self._fail(Unavailable("log-unavailable", reason))
        self._bells.close()
        if self._poller is not None:
            self._poller.cancel()
            await asyncio.gather(self._poller, return_exceptions=True)

    @contextlib.contextmanager
    def _waiter_in(self, waiters: set[asyncio.Future[_Answer]]) -> Iterator[asyncio.Future[_Answer]]:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[_Answer] = loop.create_future()
        waiters.add(waiter)
        try:
            if self._poller is None or self._poller.done():
                self._seen_version = self._reader.data_version()
                self._bells.hear(self._rung)
                self._poller = loop.create_task(self._poll())
            yield waiter
        finally:
            waiters.discard(waiter)
            if not waiter.cancel() and not waiter.cancelled():
                waiter.exception()  # looked at, even if the waiter timed out at the same moment

    async def _poll(self) -> None:
        pause_s, quiet_s, is_unexplained = _PAUSE_MIN_S, 0.0, False
        while self._readers or self._verdicts:
            await asyncio.sleep(pause_s)
            if is_unexplained and not self._is_explained:  # nor did anyone ring in the meantime
                self._quiet_after_s = _QUIET_AFTER_UNHEARD_S
            try:
                has_news = self._look()
            except RootlineError as error:
                self._fail(error)
                return
            is_unexplained, self._is_explained = has_news and not self._is_explained, False
            quiet_s = 0.0 if has_news else quiet_s + pause_s
            is_quiet = self._bells.are_heard and quiet_s > self._quiet_after_s
            longest_s = _QUIET_PAUSE_S if is_quiet else _PAUSE_MAX_S
            pause_s = _PAUSE_MIN_S if has_news else min(pause_s * 1.2, longest_s)

    def _rung(self) -> None:
        self._is_explained, self._quiet_after_s = True, _QUIET_AFTER_S
        if not self._readers and not self._verdicts:
            return
        try:
            self._look()
        except RootlineError as error:
            self._fail(error)

    def _look(self) -> bool:
        """Wake whom another process has written for; whether one has written at all."""
        version = self._reader.data_version()
        if version == self._seen_version:
            return False
        self._seen_version = version
        self._wake_readers()
        self._wake_deciding(self._reader.verdicts(tuple(self._verdicts)))
        return True

    def _fail(self, error: RootlineError) -> None:
        waiting: list[asyncio.Future[None] | asyncio.Future[Verdict]] = [*self._readers]
        for waiters in self._verdicts.values():
            waiting.extend(waiters)
        for waiter in waiting:
            if not waiter.done():
                waiter.set_exception(type(error)(error.code, error.message))
