"""Publishing intents: the producer, its asyncio twin, their receipts, and the queue to the log.

Owns: the public classes for publishing, encoding an intent as a record, the producer's size limit, the order of
intents, resending after an unknown outcome, waiting for verdicts. Does not own: the numbers of a writer (`session`),
the meaning of a verdict for the caller.
Invariants: a receipt's intent keeps its stamp (writer and sequence), so publishing the receipt again commits it once.
Resending sends the identical record. For each table, intents are on the log in the order of their stamps, whatever
threads and coroutines publish them. A caller gets the result of its own intent only. An intent that its caller
withdraws before it is in a batch is never sent. A forked child has its own queue. Every wait has a deadline.

Theory. Concurrent publishes reorder wherever one of them waits: for a thread to encode, for a connection, for a full
buffer. So the intents of a table wait in a line, which one task sends in order. The intents that gather during one
batch's round trip are the next batch: a thousand concurrent publishes need a few round trips, not a thousand.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

from rootline.client import checks
from rootline.client.checks import DEFAULT_TIMEOUT_S
from rootline.client.session import Session, SessionHolder, WriterStamp
from rootline.ports.intent_log import NewRecord
from rootline.ports.retry_policy import RetryPolicy
from rootline.schemas.bytes.intent_codec import encode_intent, encode_intent_json
from rootline.schemas.bytes.record_headers import CONTENT_HEADER, content_of_intent, stated
from rootline.schemas.errors import Invalid, OutcomeUnknown, RootlineError, Unavailable
from rootline.schemas.identifiers import LogPosition, TableName, table_name
from rootline.schemas.intent import Intent
from rootline.schemas.intent_rules import DEFAULT_LIMITS, VIEW_KINDS
from rootline.schemas.verdict import Verdict, is_about, lost_place

__all__ = ["AsyncProducer", "AsyncReceipt", "Producer", "Receipt"]

_SENDS_MAX: Final = 4
_LONG_S: Final = 1.0
_RESEND: Final = RetryPolicy(delay_s_min=0.1, delay_s_max=0.4)


Content = str | bytes | None
"""A writer's statement of an intent's content, whose digest is sent in a header.

`None`: the intent itself. `""`: no statement. Other text: the given words. Bytes: the digest of the record that is
published again.
"""


def record_of(intent: Intent, content: Content = "") -> NewRecord:
    """Key and value of the intent's record, and its content digest. The value is Avro, or JSON if a bound is a JSON
    value.

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


async def publish_intent(session: Session, intent: Intent, content: Content = "") -> LogPosition:
    """Append `intent` to the log. It is durable when this returns. `content`: see `Content`.

    Raises:
        OutcomeUnknown: the log did not confirm it after several attempts. The same stamped intent may be published
            again.
    """
    record = await asyncio.to_thread(record_of, intent, content)
    oldest_ms, may_resend = session.uploads.oldest_of([intent]), intent.writer_id is not None
    return (await publish_records(session, [record], may_resend=may_resend, oldest_file_ms=oldest_ms))[0]


async def publish_records(
    session: Session, records: Sequence[NewRecord], *, may_resend: bool, oldest_file_ms: int | None = None
) -> list[LogPosition]:
    """Append records in order. They are durable when this returns.

    Args:
        session: the lake.
        records: records of intents, from `record_of`.
        may_resend: whether a record may be resent, because the table's ledger would recognize the second copy.
        oldest_file_ms: the upload time of the oldest file that they add, if known.

    Raises:
        Invalid, Unavailable: nothing was appended.
        OutcomeUnknown: the log did not confirm them, after several attempts if `may_resend`. Publishing all of them
            again is safe.
    """
    unknown: OutcomeUnknown | None = None
    for send in range(_SENDS_MAX):
        try:
            return await session.log.publish_many(records, oldest_file_ms=oldest_file_ms)
        except OutcomeUnknown as error:
            if send == _SENDS_MAX - 1 or not may_resend:
                raise
            unknown = error
            await asyncio.sleep(_RESEND.after_failure(send + 1, session.environment.jitter()))
        except Unavailable as error:
            if unknown is None:
                raise
            raise unknown from error  # nothing was appended now, but maybe before
    raise AssertionError("unreachable: the last send returns or raises")


async def await_verdict(
    session: Session, intent: Intent, position: LogPosition, *, timeout_s: float, published_s: float = 0.0
) -> Verdict:
    """Wait for the verdict on `intent`, whose record is at `position`. `published_s`: the seconds that publishing took.

    Raises:
        OutcomeUnknown: `verdict-timeout`, there was none within `timeout_s` seconds; `publish-unknown`, the log now has
            another record in the intent's place.
    """
    verdict = await session.log.wait_verdict(position, timeout_s=max(0.0, timeout_s))
    if verdict is None:
        trouble = await session.trouble(TableName(intent.table))
        raise OutcomeUnknown(
            "verdict-timeout",
            f"{intent.table}: no verdict on intent {intent.intent_id} (offset {position.offset}) within "
            f"{max(0.0, timeout_s) + published_s:.3g} s"
            + (f", of which publishing took {published_s:.3g} s" if published_s >= _LONG_S else "")
            + (f"; {trouble}" if trouble else ""),
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
    """A queued intent, its writer's statement of its content (see `Content`), and the future of its position on the
    log.
    """

    intent: Intent
    content: Content = ""
    position: Future[LogPosition] = field(default_factory=Future)

    def withdraw(self) -> None:
        """Stop waiting for it. It is not sent unless it is already in a batch."""
        self.position.cancel()


@dataclass(slots=True, eq=False)
class _Line:
    waiting: deque[Queued] = field(default_factory=deque)
    task: asyncio.Task[None] | None = None


@dataclass(slots=True, eq=False)
class _Lines:
    """The waiting intents of each table. `guard` is locked while a line is found and changed in one step."""

    guard: threading.Lock = field(default_factory=threading.Lock)
    of_table: dict[str, _Line] = field(default_factory=dict)


class PublishQueue:
    """A queue with one line per table."""

    def __init__(self) -> None:
        self._of_process: dict[int, _Lines] = {}

    def add(self, stamped: Callable[[], Intent], content: Content = "") -> Queued:
        """Stamp an intent and append it to its table's queue, from any thread. Raises the errors of `stamped`."""
        lines = self._lines()
        with lines.guard:
            queued = Queued(stamped(), content)
            lines.of_table.setdefault(queued.intent.table, _Line()).waiting.append(queued)
            return queued

    async def deliver(self, session: Session, queued: Queued) -> LogPosition:
        """Send `queued` and return the position of its record, which is durable then. Await it on the session's loop.

        Raises:
            Invalid, Unavailable: it was not appended.
            OutcomeUnknown: the log did not confirm it after several attempts. The same stamped intent may be published
                again.
        """
        table, lines = queued.intent.table, self._lines()
        with lines.guard:
            line = lines.of_table.setdefault(table, _Line())
        if line.task is None or line.task.done():
            line.task = asyncio.get_running_loop().create_task(self._serve(session, table, lines))
        return await asyncio.wrap_future(queued.position)

    def _lines(self) -> _Lines:
        # a forked child has its own lines: a copied lock may never be released, and the parent sends its own
        return self._of_process.setdefault(os.getpid(), _Lines())

    async def _serve(self, session: Session, table: str, lines: _Lines) -> None:
        """Send batches until the table's queue is empty."""
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
    """Take the next intents from the line. The first list has the intents encoded as records, the second those that
    cannot be encoded, with the error.
    """
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
        for one in taken:  # one of them exceeds a limit, and nothing was appended: send them one at a time, in order
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
    """A copy of an error for each caller: a shared one would collect the tracebacks of all callers."""
    return type(error)(error.code, error.message) if isinstance(error, RootlineError) else error


@dataclass(frozen=True, slots=True)
class Receipt:
    """An intent that is durable on the log.

    `intent`: the published intent, with its writer and sequence. `position`: log, partition and offset of its record.
    """

    intent: Intent
    position: LogPosition
    _holder: SessionHolder
    _content: Content = ""

    def verdict(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> Verdict:
        """Wait up to `timeout_s` seconds for the intent's verdict: committed, a duplicate, or rejected.

        A rejection is returned as a verdict, not raised as an exception.

        Raises:
            OutcomeUnknown: `verdict-timeout`. Publishing this receipt again is safe.
            Unavailable: `log-unavailable`.
        """
        wait_s = checks.seconds(timeout_s)
        return self._holder.run(lambda session: await_verdict(session, self.intent, self.position, timeout_s=wait_s))


@dataclass(frozen=True, slots=True)
class AsyncReceipt:
    """The same as `Receipt`, for coroutines."""

    intent: Intent
    position: LogPosition
    _holder: SessionHolder
    _content: Content = ""

    async def verdict(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> Verdict:
        """Await the verdict, as in `Receipt.verdict`."""
        wait_s = checks.seconds(timeout_s)
        return await self._holder.run_async(
            lambda session: await_verdict(session, self.intent, self.position, timeout_s=wait_s)
        )


class _Publishing:
    """The common part of both producers."""

    def __init__(self, holder: SessionHolder, writer_id: str | None) -> None:
        self._holder = holder
        self._stamp = WriterStamp(writer_id)
        self._queue = PublishQueue()
        self._closed = False

    def stamp(self, intent: Intent, *, writer_sequence: int | None = None) -> Intent:
        """Stamp an intent as `publish` does. Publishing the result, any number of times, commits it once."""
        return self._stamp.stamp(_an_intent(intent), _numbered(writer_sequence))

    def _queued(
        self, what: Intent | Receipt | AsyncReceipt, writer_sequence: int | None, content: str | None
    ) -> Queued:
        if self._closed:
            raise Invalid("lake-closed", f"this producer of {self._holder.name} is closed; open another one")
        if isinstance(what, Receipt | AsyncReceipt):
            return self._queue.add(lambda: what.intent, what._content)
        intent, number = _an_intent(what), _numbered(writer_sequence)
        words = None if content is None else checks.text(content, "content")
        stated_content = "" if words is None and not self._stamp.is_supplied else words
        return self._queue.add(lambda: self._stamp.stamp(intent, number), stated_content)


class Producer(_Publishing):
    """A publisher of intents, made by `lake.producer`. Thread-safe.

    Without a `writer_id`, it writes under a fresh one and numbers its intents itself, from 0 for each table.
    """

    def publish(
        self, what: Intent | Receipt, *, writer_sequence: int | None = None, content: str | None = None
    ) -> Receipt:
        """Append an intent to the log, or publish a receipt's intent again. It is durable when this returns.

        Args:
            what: the intent, or the receipt of an earlier call.
            writer_sequence: the intent's number for this table, 0 or more, under the supplied `writer_id`.
            content: words that identify the intent's content and that a replay repeats, such as its input's offsets.
                The same number with other content is rejected (`sequence-reused`). By default, under a supplied
                `writer_id`, the content is the whole intent, including its files' names. `""` states no content.

        Returns:
            A receipt, which waits for the verdict on request.

        Raises:
            Invalid: `setting-invalid`, the pair of writer and sequence is incomplete; `intent-too-large`;
                `table-name-invalid`; `lake-closed`.
            Unavailable: `log-unavailable`, nothing was appended.
            OutcomeUnknown: `publish-unknown`, the log did not confirm it. To retry safely, call `stamp(intent)` first
                and publish its result again.
        """
        queued = self._queued(what, writer_sequence, content)
        try:
            position = self._holder.run(lambda session: self._queue.deliver(session, queued))
            return Receipt(queued.intent, position, self._holder, queued.content)
        except BaseException:
            queued.withdraw()
            raise

    def close(self) -> None:
        """Refuse further publishing. Receipts stay usable while the lake is open."""
        self._closed = True

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncProducer(_Publishing):
    """The same as `Producer`, for coroutines on any event loop."""

    async def publish(
        self, what: Intent | AsyncReceipt, *, writer_sequence: int | None = None, content: str | None = None
    ) -> AsyncReceipt:
        """Publish an intent, as in `Producer.publish`."""
        queued = self._queued(what, writer_sequence, content)
        try:
            position = await self._holder.run_async(lambda session: self._queue.deliver(session, queued))
            return AsyncReceipt(queued.intent, position, self._holder, queued.content)
        except BaseException:
            queued.withdraw()
            raise

    async def close(self) -> None:
        """Refuse further publishing, as in `Producer.close`."""
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
