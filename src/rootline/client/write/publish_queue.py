"""The intents of one producer on their way to the log, in the order they were stamped.

Owns: that order, and how many travel together. Does not own: stamping (`writer_stamp`), framing and resending
(`intent_publisher`).
Invariants: of one table, intents are on the log in the order in which they were stamped, whatever threads and
coroutines publish them; a caller gets the result of its own intent only; what a caller gave up before it was taken is
never sent; a forked child has a queue of its own.

Theory. Concurrent publishes reorder wherever one of them waits: for a thread to encode, for a connection, for a full
buffer. So a table's intents wait in a line. What has gathered in it while the batch before was on its way goes to
the log as the next one: a thousand publishes at once take a few round trips, not a thousand.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from rootline.client.session.session import Session
from rootline.client.write.intent_publisher import Content, publish_records, record_of
from rootline.ports.intent_log import NewRecord
from rootline.schemas.errors import Invalid, OutcomeUnknown, RootlineError
from rootline.schemas.identifiers import LogPosition
from rootline.schemas.intent import Intent

_INTENTS_MAX: Final = 500
_BYTES_MAX: Final = 4_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Queued:
    """An intent, what is said of its content, and where its place on the log goes."""

    intent: Intent
    content: Content = ""
    position: Future[LogPosition] = field(default_factory=Future)

    def give_up(self) -> None:
        """No one waits for it any more: it is not sent unless it was taken already."""
        self.position.cancel()


@dataclass(slots=True, eq=False)
class _Line:
    waiting: deque[Queued] = field(default_factory=deque)
    task: asyncio.Task[None] | None = None


@dataclass(slots=True, eq=False)
class _Lines:
    """By table; `guard` is held for what must happen at once."""

    guard: threading.Lock = field(default_factory=threading.Lock)
    of_table: dict[str, _Line] = field(default_factory=dict)


class PublishQueue:
    """Lines, one for each table."""

    def __init__(self) -> None:
        self._of_process: dict[int, _Lines] = {}

    def add(self, stamped: Callable[[], Intent], content: Content = "") -> Queued:
        """Stamp an intent and put it at the end of its table's line; from any thread. Raises as `stamped` does."""
        lines = self._lines()
        with lines.guard:
            queued = Queued(stamped(), content)
            lines.of_table.setdefault(queued.intent.table, _Line()).waiting.append(queued)
            return queued

    async def deliver(self, session: Session, queued: Queued) -> LogPosition:
        """Where the record of `queued` is; durable when this returns. To be awaited on the session's loop.

        Raises:
            Invalid, Unavailable: it was not appended.
            OutcomeUnknown: the log did not answer several times; the same stamped intent may be published again.

        """
        table, lines = queued.intent.table, self._lines()
        with lines.guard:
            line = lines.of_table.setdefault(table, _Line())
        if line.task is None or line.task.done():
            line.task = asyncio.get_running_loop().create_task(self._serve(session, table, lines))
        return await asyncio.wrap_future(queued.position)

    def _lines(self) -> _Lines:
        # a forked child has its own: its parent's lock may never be released, and what waits there is its parent's
        return self._of_process.setdefault(os.getpid(), _Lines())

    async def _serve(self, session: Session, table: str, lines: _Lines) -> None:
        """Until nothing waits in the table's line."""
        line = lines.of_table[table]
        try:
            while line.waiting:
                taken, refused = await asyncio.to_thread(_take, line.waiting)
                for queued, error in refused:
                    queued.position.set_exception(error)
                await _send(session, taken)
        finally:
            line.task = None
            with lines.guard:
                if not line.waiting:
                    lines.of_table.pop(table, None)


def _take(waiting: deque[Queued]) -> tuple[list[tuple[Queued, NewRecord]], list[tuple[Queued, Exception]]]:
    """The next intents as records, and those that cannot be one."""
    taken: list[tuple[Queued, NewRecord]] = []
    refused: list[tuple[Queued, Exception]] = []
    size = 0
    while waiting and len(taken) < _INTENTS_MAX and size < _BYTES_MAX:
        queued = waiting.popleft()
        if not queued.position.set_running_or_notify_cancel():
            continue
        try:
            record = record_of(queued.intent, queued.content)
        except Exception as error:
            refused.append((queued, error))
        else:
            taken.append((queued, record))
            size += len(record[1])
    return taken, refused


async def _send(session: Session, taken: Sequence[tuple[Queued, NewRecord]]) -> None:
    if not taken:
        return
    may_resend = all(queued.intent.writer_id is not None for queued, _ in taken)
    oldest_ms = session.uploads.oldest_of(queued.intent for queued, _ in taken)
    records = [record for _, record in taken]
    try:
        positions = await publish_records(session, records, may_resend=may_resend, oldest_file_ms=oldest_ms)
    except Invalid as error:
        if len(taken) == 1:
            taken[0][0].position.set_exception(error)
            return
        for one in taken:  # one of them is over a limit, and nothing was appended: one at a time, in order
            await _send(session, [one])
    except Exception as error:
        for queued, _ in taken:
            queued.position.set_exception(_own_copy(error))
    except asyncio.CancelledError:
        for queued, _ in taken:
            queued.position.set_exception(
                OutcomeUnknown(
                    "publish-unknown",
                    f"{queued.intent.table}: the lake was closed during the call; publish the same intent again",
                )
            )
        raise
    else:
        for (queued, _), position in zip(taken, positions, strict=True):
            queued.position.set_result(position)


def _own_copy(error: Exception) -> Exception:
    """An error for one caller of several: a shared one would gather all their tracebacks."""
    return type(error)(error.code, error.message) if isinstance(error, RootlineError) else error
