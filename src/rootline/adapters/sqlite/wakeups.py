"""Waits for records and verdicts of the embedded log, woken by the process that writes them.

Owns: a named pipe for each process that waits, in a folder of this user among the temporary files, waking them, the
waiters, and the poller that runs while there are any. Does not own: reading rows (`log_file`).
Invariants: A write of this process wakes its waiters immediately. A write of another process is noticed when that
process wakes them. A new record wakes the processes that read records, so a writer that waits for its verdict is not
woken by each append of the others. Some writers wake nobody (an older version, another user). `PRAGMA data_version`
shows their writes. If this process has no pipe, that takes at most 5 ms. If it has one, it takes at most 5 ms within a
minute after such a write, and at most 0.2 s later. A waiter registers before it reads, so that it misses nothing. An
error of the poller reaches every waiter. Pipes only save time: without a pipe, a waiter learns of a write from the
poller. Waking never waits and never fails. A pipe is renamed to its final name only once its owner listens. A pipe
without a listener is removed by the next process that writes. Only pipes in a folder that no other user can write to
are opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

from rootline.adapters.sqlite.log_file import LogReader
from rootline.schemas.errors import RootlineError, Unavailable
from rootline.schemas.identifiers import LogId, LogRecord
from rootline.schemas.verdict import Verdict

_SUFFIX: Final = ".bell"
_VERDICTS_SUFFIX: Final = f".verdicts{_SUFFIX}"
"""The end of the name of a pipe whose process reads no records. Older versions write to it after any write."""
_READ_BYTES: Final = 4_096


def wakeups_folder(log: LogId) -> Path:
    """The folder of a log's pipes, for this machine and user. It is not in the lake, which may be copied."""
    return Path(tempfile.gettempdir()) / f"rootline-{os.getuid()}" / log.rpartition("/")[2]


class Wakeups:
    """The pipes of one log, in `folder`. `hear` is for one event loop, `ring` for any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._id = f"{os.getpid()}-{uuid.uuid4().hex}"
        self._own = self._id + _VERDICTS_SUFFIX
        self._pipe: int | None = None
        self._tried = False

    def hear(self, rung: Callable[[], None], *, records: bool) -> None:
        """Call `rung` on the running loop whenever another process writes verdicts, and with `records` also records.

        Only the first call for verdicts and the first one for records have an effect.
        """
        if records and self._own.endswith(_VERDICTS_SUFFIX):
            before, self._own = self._own, self._id + _SUFFIX
            with contextlib.suppress(OSError):  # it was not created yet, or somebody has removed it
                (self._folder / before).rename(self._folder / self._own)
        if self._tried:
            return
        self._tried = True
        unnamed = self._folder / f".{self._own}"
        try:
            for folder in (self._folder.parent, self._folder):
                folder.mkdir(mode=0o700, exist_ok=True)
            if not _is_private(self._folder.parent):
                return
            os.mkfifo(unnamed, 0o600)
            # opened for writing too, or the pipe would stay readable (at its end) after its last writer closes it
            self._pipe = os.open(unnamed, os.O_RDWR | os.O_NONBLOCK)
            asyncio.get_running_loop().add_reader(self._pipe, self._heard, self._pipe, rung)
            unnamed.rename(self._folder / self._own)
        except (OSError, NotImplementedError):  # no pipes on this system, or no permission: the poller notices writes
            self.close()

    @property
    def are_heard(self) -> bool:
        """Whether this process has a pipe that others can write to."""
        return self._pipe is not None

    def ring(self, *, only_records: bool) -> None:
        """Wake every other process that waits. `only_records`: those that read records, because nothing else is new."""
        if not _is_private(self._folder.parent):
            return
        try:
            pipes = list(self._folder.iterdir())
        except OSError:
            return
        for pipe in pipes:
            is_named = pipe.name.endswith(_SUFFIX) and not pipe.name.startswith(".") and pipe.name != self._own
            if is_named and not (only_records and pipe.name.endswith(_VERDICTS_SUFFIX)):
                _ring(pipe)

    def close(self) -> None:
        """Remove the pipe. Call this on the event loop on which `hear` was called."""
        if self._pipe is None:
            return
        asyncio.get_running_loop().remove_reader(self._pipe)
        os.close(self._pipe)
        self._pipe = None
        for path in (self._folder / self._own, self._folder / f".{self._own}"):
            with contextlib.suppress(OSError):
                path.unlink()
        with contextlib.suppress(OSError):  # other processes still wait, or have removed it already
            self._folder.rmdir()

    def _heard(self, pipe: int, rung: Callable[[], None]) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(pipe, _READ_BYTES)
        rung()


def _is_private(folder: Path) -> bool:
    """Whether no other user can create files in `folder`."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _ring(path: Path) -> None:
    try:
        if not stat.S_ISFIFO(path.lstat().st_mode):
            return
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ENXIO:  # its process has ended
            with contextlib.suppress(OSError):
                path.unlink()
        return
    with contextlib.suppress(OSError):  # a full pipe wakes its process anyway
        os.write(pipe, b"\0")
    os.close(pipe)


_PAUSE_MIN_S: Final = 0.001
_PAUSE_MAX_S: Final = 0.005
_QUIET_AFTER_S: Final = 1.0
_QUIET_AFTER_UNHEARD_S: Final = 60.0
_QUIET_PAUSE_S: Final = 0.2
"""The longest pause of a poller whose process has a pipe: polling 200 times a second takes 3 % of a core."""
_Answer = TypeVar("_Answer")


class LogWatch:
    """The waiters of one log, on one event loop."""

    def __init__(self, reader: LogReader, wakeups: Wakeups) -> None:
        self._reader = reader
        self._wakeups = wakeups
        self._readers: set[asyncio.Future[None]] = set()
        self._verdicts: dict[int, set[asyncio.Future[Verdict]]] = {}
        self._poller: asyncio.Task[None] | None = None
        self._seen_version = 0
        self._quiet_after_s = _QUIET_AFTER_S
        self._is_explained = False

    async def records(self, from_offset: int, *, limit: int, wait_s: float) -> list[LogRecord]:
        """Read records from `from_offset` on. Waits up to `wait_s` seconds for the first one."""
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
        """The verdict on the record at `offset`, or `None` if none arrives within `timeout_s` seconds."""
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
        """Wake the waiters for records, after this process has appended some."""
        self._is_explained = True
        self._wake_readers()

    def _wake_readers(self) -> None:
        for waiter in self._readers:
            if not waiter.done():
                waiter.set_result(None)

    def decided(self, verdicts: Sequence[Verdict]) -> None:
        """Wake the waiters for these verdicts, after this process has stored them."""
        self._is_explained = True
        self._wake_deciding(verdicts)

    def _wake_deciding(self, verdicts: Sequence[Verdict]) -> None:
        for verdict in verdicts:
            for waiter in self._verdicts.get(verdict.offset, ()):
                if not waiter.done():
                    waiter.set_result(verdict)

    async def close(self, reason: str) -> None:
        """Stop the poller. The remaining waiters get `Unavailable` with `reason`."""
        self._fail(Unavailable("log-unavailable", reason))
        self._wakeups.close()
        if self._poller is not None:
            self._poller.cancel()
            await asyncio.gather(self._poller, return_exceptions=True)

    @contextlib.contextmanager
    def _waiter_in(self, waiters: set[asyncio.Future[_Answer]]) -> Iterator[asyncio.Future[_Answer]]:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[_Answer] = loop.create_future()
        waiters.add(waiter)
        try:
            self._wakeups.hear(self._rung, records=waiters is self._readers)
            if self._poller is None or self._poller.done():
                self._seen_version = self._reader.data_version()
                self._poller = loop.create_task(self._poll())
            yield waiter
        finally:
            waiters.discard(waiter)
            if not waiter.cancel() and not waiter.cancelled():
                waiter.exception()  # retrieved, even if the waiter timed out at the same moment

    async def _poll(self) -> None:
        first_s = _PAUSE_MAX_S if self._wakeups.are_heard else _PAUSE_MIN_S
        pause_s, quiet_s, is_unexplained = first_s, 0.0, False
        while self._readers or self._verdicts:
            await asyncio.sleep(pause_s)
            if is_unexplained and not self._is_explained:  # and no process woke this one in the meantime
                self._quiet_after_s = _QUIET_AFTER_UNHEARD_S
            try:
                has_news = self._look()
            except RootlineError as error:
                self._fail(error)
                return
            is_unexplained, self._is_explained = has_news and not self._is_explained, False
            quiet_s = 0.0 if has_news else quiet_s + pause_s
            is_quiet = self._wakeups.are_heard and quiet_s > self._quiet_after_s
            longest_s = _QUIET_PAUSE_S if is_quiet else _PAUSE_MAX_S
            pause_s = first_s if has_news else min(pause_s * 1.2, longest_s)

    def _rung(self) -> None:
        self._is_explained, self._quiet_after_s = True, _QUIET_AFTER_S
        if not self._readers and not self._verdicts:
            return
        try:
            self._look()
        except RootlineError as error:
            self._fail(error)

    def _look(self) -> bool:
        """Wake the waiters whose record or verdict another process has written. Returns whether one may have waited."""
        version = self._reader.data_version()
        if version == self._seen_version:
            return False
        self._seen_version = version
        self._wake_readers()
        verdicts = self._reader.verdicts(tuple(self._verdicts))
        self._wake_deciding(verdicts)
        return bool(self._readers or verdicts)

    def _fail(self, error: RootlineError) -> None:
        waiting: list[asyncio.Future[None] | asyncio.Future[Verdict]] = [*self._readers]
        for waiters in self._verdicts.values():
            waiting.extend(waiters)
        for waiter in waiting:
            if not waiter.done():
                waiter.set_exception(type(error)(error.code, error.message))
