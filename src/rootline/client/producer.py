"""Publishing intents: the producer, its asyncio twin, their receipts, and the way to the log.

Owns: the public surface of publishing, framing, the producer's size limit, the order of intents, resending after an
unknown outcome, waiting for verdicts. Does not own: the numbers of a writer (`session`), the meaning of a verdict for
the caller.
Invariants: a receipt's intent keeps its stamp, so publishing the receipt again commits it once. Resending sends the
identical record. Of one table, intents are on the log in the order of their stamps, whatever threads and coroutines
publish them. A caller gets the result of its own intent only, and an intent that its caller withdrew in time is never
sent. A forked child has its own queue. Every wait has a deadline.

Theory. Concurrent publishes reorder wherever one of them waits: for a thread to encode, for a connection, for a full
buffer. So a table's intents wait in a line. The intents that gather in it during one batch's round trip are the next
batch: a thousand publishes at once take a few round trips, not a thousand.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final

from rootline.client import checks
from rootline.client.session import Operation, Session, SessionHolder, WriterStamp
from rootline.ports.intent_log import NewRecord
from rootline.ports.retry_policy import RetryPolicy
from rootline.schemas.bytes.intent_codec import encode_intent, encode_intent_json
from rootline.schemas.bytes.record_headers import CONTENT_HEADER, content_of_intent, stated
from rootline.schemas.errors import Invalid, OutcomeUnknown, RootlineError
from rootline.schemas.identifiers import LogPosition, TableName, table_name
from rootline.schemas.intent import Intent
from rootline.schemas.intent_rules import DEFAULT_LIMITS, VIEW_KINDS
from rootline.schemas.verdict import Verdict, is_about, lost_place

__all__ = ["AsyncProducer", "AsyncReceipt", "Producer", "Receipt"]

_SENDS_MAX: Final = 4
_RESEND: Final = RetryPolicy(delay_s_min=0.1, delay_s_max=0.4)


Content = str | bytes | None
"""What a writer says of an intent's content: `None`, that it is what the intent does; `""`, nothing; any other words;
or, as bytes, what the record said that is published again.
"""


def record_of(intent: Intent, content: Content = "") -> NewRecord:
    """Key and value of the intent's record, Avro, or JSON when a bound is given as a JSON value; what is said of it.

    Raises:
        Invalid: `intent-too-large` or `table-name-invalid`, before anything is sent.

    """
    key = table_name(intent.table).encode()
    value = encode_intent_json(intent) if _has_json_values(intent) else encode_intent(intent)
    said = content if isinstance(content, bytes) else stated(content_of_intent(intent) if content is None else content)
    beside = 0 if said is None else len(CONTENT_HEADER) + len(said)
    if len(key) + len(value) + beside > DEFAULT_LIMITS.max_bytes:
        raise Invalid(
            "intent-too-large",
            f"{intent.table}: intent {intent.intent_id} takes {len(value):,} bytes, the limit is "
            f"{DEFAULT_LIMITS.max_bytes:,}; " + _way_to_fit(intent),
        )
    return (key, value) if said is None else (key, value, said)


def _way_to_fit(intent: Intent) -> str:
    if intent.kind in VIEW_KINDS:
        return "shorten its SQL"
    if len(intent.definition or "") > DEFAULT_LIMITS.max_bytes // 2:
        return "give the table fewer columns, shorter comments and properties, or add them in several changes"
    return "add fewer files at once"


async def publish_intent(session: Session, intent: Intent) -> LogPosition:
    """Append `intent` to the log; durable when this returns.

    Raises:
        OutcomeUnknown: the log did not answer several times; the same stamped intent may be published again.

    """
    record = await asyncio.to_thread(record_of, intent)
    oldest_ms, may_resend = session.uploads.oldest_of([intent]), intent.writer_id is not None
    return (await publish_records(session, [record], may_resend=may_resend, oldest_file_ms=oldest_ms))[0]


async def publish_records(
    session: Session, records: Sequence[NewRecord], *, may_resend: bool, oldest_file_ms: int | None = None
) -> list[LogPosition]:
    """Append records in order; durable when this returns.

    Args:
        session: whose log.
        records: of intents, as `record_of` makes them.
        may_resend: whether the ledger would know a record that is on the log twice.
        oldest_file_ms: when the oldest file that they bring was uploaded, if that is known.

    Raises:
        Invalid, Unavailable: nothing was appended.
        OutcomeUnknown: the log did not answer, several times if it may be asked again; publishing all again is safe.

    """
    for send in range(_SENDS_MAX):
        try:
            return await session.log.publish_many(records, oldest_file_ms=oldest_file_ms)
        except OutcomeUnknown:
            if send == _SENDS_MAX - 1 or not may_resend:
                raise
            await asyncio.sleep(_RESEND.after_failure(send + 1, session.environment.jitter()))
    raise AssertionError("unreachable: the last send returns or raises")


async def await_verdict(session: Session, intent: Intent, position: LogPosition, *, timeout_s: float) -> Verdict:
    """The verdict on `intent`, whose record is at `position`.

    Raises:
        OutcomeUnknown: `verdict-timeout`, none came within `timeout_s` seconds; `publish-unknown`, the log has another
            record in the intent's place by now.

    """
    verdict = await session.log.wait_verdict(position, timeout_s=max(0.0, timeout_s))
    if verdict is None:
        trouble = await session.trouble(TableName(intent.table))
        raise OutcomeUnknown(
            "verdict-timeout",
            f"{intent.table}: no verdict on intent {intent.intent_id} (offset {position.offset}) within "
            f"{max(0.0, timeout_s):.3g} s" + (f"; {trouble}" if trouble else ""),
        )
    if not is_about(verdict, intent.intent_id):
        raise OutcomeUnknown("publish-unknown", f"{intent.table}: {lost_place(intent.intent_id, verdict)}")
    return verdict


def _has_json_values(intent: Intent) -> bool:
    return any(
        item.lower_value is not None or item.upper_value is not None
        for file in (*intent.add_data_files, *intent.add_equality_deletes)
        for item in file.statistics
    )


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


DEFAULT_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Receipt:
    """An intent that is durable on the log.

    `intent`: as it was published, with its writer and sequence. `position`: log, partition and offset of its record.
    """

    intent: Intent
    position: LogPosition
    _holder: SessionHolder
    _content: Content = ""

    def verdict(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> Verdict:
        """Wait up to `timeout_s` seconds for what became of the intent: committed, a duplicate, or rejected.

        A rejection is a verdict like the others, not an exception.

        Raises:
            OutcomeUnknown: `verdict-timeout`; publishing this receipt again is safe.
            Unavailable: `log-unavailable`.

        """
        return self._holder.run(_awaiting(self.intent, self.position, checks.seconds(timeout_s)))


@dataclass(frozen=True, slots=True)
class AsyncReceipt:
    """`Receipt` for coroutines."""

    intent: Intent
    position: LogPosition
    _holder: SessionHolder
    _content: Content = ""

    async def verdict(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> Verdict:
        """As `Receipt.verdict`."""
        return await self._holder.run_async(_awaiting(self.intent, self.position, checks.seconds(timeout_s)))


class _Publishing:
    """What both producers share: a holder, a stamp, and being closed."""

    def __init__(self, holder: SessionHolder, writer_id: str | None) -> None:
        self._holder = holder
        self._stamp = WriterStamp(writer_id)
        self._queue = PublishQueue()
        self._closed = False

    def stamp(self, intent: Intent, *, writer_sequence: int | None = None) -> Intent:
        """The intent as `publish` would send it; publishing the result, any number of times, commits it once."""
        return self._stamp.stamp(_an_intent(intent), _numbered(writer_sequence))

    def _queued(
        self, what: Intent | Receipt | AsyncReceipt, writer_sequence: int | None, content: str | None
    ) -> Queued:
        if self._closed:
            raise Invalid("lake-closed", f"this producer of {self._holder.name} is closed; open another one")
        if isinstance(what, Receipt | AsyncReceipt):
            return self._queue.add(lambda: what.intent, what._content)
        intent, number = _an_intent(what), _numbered(writer_sequence)
        told = None if content is None else checks.text(content, "content")
        said = "" if told is None and not self._stamp.is_supplied else told
        return self._queue.add(lambda: self._stamp.stamp(intent, number), said)

    def _delivering(self, queued: Queued) -> Operation[LogPosition]:
        def operation(session: Session) -> Coroutine[Any, Any, LogPosition]:
            return self._queue.deliver(session, queued)

        return operation


class Producer(_Publishing):
    """Publishes intents; made by `lake.producer`. Thread-safe.

    Without a `writer_id` it writes under a fresh one and numbers its intents itself, from 0 for each table.
    """

    def publish(
        self, what: Intent | Receipt, *, writer_sequence: int | None = None, content: str | None = None
    ) -> Receipt:
        """Append an intent, or a receipt's intent once more, to the log; durable when this returns.

        Args:
            what: the intent, or the receipt of an earlier call.
            writer_sequence: the intent's number, 0 or more, among those of the supplied `writer_id` for this table.
            content: words for what the intent holds that a replay repeats, for instance its input's offsets: the same
                number with other content is rejected (`sequence-reused`). Without it, under a supplied `writer_id`,
                the content is what the intent does, its files' names included; `""` says nothing of it.

        Returns:
            A receipt; ask it for the verdict.

        Raises:
            Invalid: `setting-invalid`, the pair of writer and sequence is incomplete; `intent-too-large`;
                `table-name-invalid`; `lake-closed`.
            Unavailable: `log-unavailable`, nothing was appended.
            OutcomeUnknown: `publish-unknown`, the log did not answer; to be safe, publish what `stamp(intent)` gave
                before the call, again.

        """
        queued = self._queued(what, writer_sequence, content)
        try:
            position = self._holder.run(self._delivering(queued))
            return Receipt(queued.intent, position, self._holder, queued.content)
        except BaseException:
            queued.give_up()
            raise

    def close(self) -> None:
        """Publish nothing more. Receipts stay usable while the lake is open."""
        self._closed = True

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncProducer(_Publishing):
    """`Producer` for coroutines, on whatever loop they run."""

    async def publish(
        self, what: Intent | AsyncReceipt, *, writer_sequence: int | None = None, content: str | None = None
    ) -> AsyncReceipt:
        """As `Producer.publish`."""
        queued = self._queued(what, writer_sequence, content)
        try:
            position = await self._holder.run_async(self._delivering(queued))
            return AsyncReceipt(queued.intent, position, self._holder, queued.content)
        except BaseException:
            queued.give_up()
            raise

    async def close(self) -> None:
        """As `Producer.close`."""
        self._closed = True

    async def __aenter__(self) -> AsyncProducer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _an_intent(what: object) -> Intent:
    return checks.one_of(what, Intent, "what is published", "an Intent, or a receipt")


def _numbered(writer_sequence: object) -> int | None:
    return checks.whole_or_none(writer_sequence, "writer_sequence")


def _awaiting(intent: Intent, position: LogPosition, timeout_s: float) -> Operation[Verdict]:
    def operation(session: Session) -> Coroutine[Any, Any, Verdict]:
        return await_verdict(session, intent, position, timeout_s=timeout_s)

    return operation
