"""Publishing intents: the producer, its asyncio twin, and the receipts they give.

Owns: the public surface of publishing. Does not own: the log (`intent_publisher`), stamping (`writer_stamp`), order
(`publish_queue`).
Invariants: a receipt's intent is stamped for good, so publishing the receipt again commits it once; thread-safe; of one
table, what one producer publishes is on the log in the order of its calls.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

from rootline.client import checks
from rootline.client.session.session import Operation, Session, SessionHolder
from rootline.client.session.writer_stamp import WriterStamp
from rootline.client.write.intent_publisher import Content, await_verdict
from rootline.client.write.publish_queue import PublishQueue, Queued
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import LogPosition
from rootline.schemas.intent import Intent
from rootline.schemas.verdict import Verdict

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


__all__ = ["AsyncProducer", "AsyncReceipt", "Producer", "Receipt"]
