"""The log of intents, verdicts and dead letters, as four capabilities, and its archive for inspection.

Owns: the ports, the retention that a log reports, the check that a position belongs to a log. Does not own: framing of
records (`rootline.schemas.bytes.intent_codec`, `rootline.schemas.bytes.verdict_codec`), the table of a record,
when a verdict may be published.
Invariants: a published record is durable before `publish` returns. Records of one key keep their order. A reader sees
every record from its position on, once, in order. Offsets of one log are never taken for another's. Inspection changes
nothing in the log and ends, even while records keep coming, and one portion fits into memory, however large the log
is.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from rootline.schemas.bytes.record_headers import Lake
from rootline.schemas.errors import Fenced
from rootline.schemas.identifiers import LogId, LogPosition, LogRecord
from rootline.schemas.verdict import DeadLetter, Verdict

NewRecord = tuple[bytes, bytes] | tuple[bytes, bytes, bytes | None]
"""Key and value; perhaps what the writer says of the content (`rootline.schemas.bytes.record_headers`)."""


class IntentSink(Protocol):
    """Where writers publish."""

    async def publish(self, key: bytes, value: bytes, *, oldest_file_ms: int | None = None) -> LogPosition:
        """Append one record; durable when it returns. Raises `Unavailable`, or `OutcomeUnknown` (safe to resend).

        `oldest_file_ms`: when the first file that the intent brings was uploaded, by the store's date.
        """
        ...

    async def publish_many(
        self, records: Sequence[NewRecord], *, oldest_file_ms: int | None = None
    ) -> list[LogPosition]:
        """Append records in order, all or none. What is said of a content is delivered as a header.

        `oldest_file_ms`: of all of them together.
        """
        ...


class IntentSource(Protocol):
    """Where a coordinator reads."""

    async def identity(self) -> LogId:
        """The log's identity: it changes when the log is created again."""
        ...

    async def first_undecided(self) -> int:
        """The offset to start from: every record before it has a durable verdict."""
        ...

    async def beginning(self) -> int:
        """Every record from this offset on is still there; what is below was decided, and may have been deleted."""
        ...

    async def confirmed_version(self, table: str) -> int | None:
        """The highest version of `table` that a verdict on this log ever named, unless an operator accepted a loss."""
        ...

    async def end_offset(self) -> int:
        """The offset that the next record will get; it never goes back while the identity is the same."""
        ...

    async def read(self, from_offset: int, *, limit: int, wait_s: float) -> list[LogRecord]:
        """Up to `limit` records at or after `from_offset`, waiting up to `wait_s` seconds for the first one."""
        ...


class VerdictSink(Protocol):
    """Where a coordinator publishes what it decided."""

    async def publish_verdicts(self, verdicts: Sequence[Verdict], dead_letters: Sequence[DeadLetter]) -> None:
        """Durable when it returns; publishing the same verdict again changes nothing."""
        ...


class VerdictSource(Protocol):
    """Where writers wait."""

    async def wait_verdict(self, position: LogPosition, *, timeout_s: float) -> Verdict | None:
        """The verdict on the record at `position`; `None` when none came in `timeout_s` seconds."""
        ...


@runtime_checkable
class KnowsItsLake(Protocol):
    """A log that serves one lake, and refuses another one."""

    async def introduce(self, lake: Lake) -> None:
        """The caller reads or writes for this lake. Raises `Invalid` (`lake-mismatch`) if the log is another's."""
        ...


class IntentLog(IntentSink, IntentSource, VerdictSink, VerdictSource, Protocol):
    """All four, as the embedded log has them."""

    async def close(self) -> None:
        """Give back files and connections."""
        ...


@runtime_checkable
class MayGoBack(Protocol):
    """A log whose file someone can overwrite with an older copy while it is open."""

    def check_is_there(self, last_read: LogRecord) -> None:
        """Raises `Fenced` (`log-behind-root`) unless the record that was read last is still there."""
        ...

    async def publish_verdicts(
        self, verdicts: Sequence[Verdict], dead_letters: Sequence[DeadLetter], last_read: LogRecord | None = None
    ) -> None:
        """Publish as `VerdictSink.publish_verdicts` if `last_read` is still there, else raise as `check_is_there`."""
        ...


class LogArchive(Protocol):
    """Every method raises `Unavailable` (`log-unavailable`) when the log cannot be reached."""

    def records(self, *, key: bytes | None = None, since_ms: int = 0) -> AsyncGenerator[Sequence[LogRecord], None]:
        """All records, the newest first by their append time, in portions; close the generator if you stop early.

        With a `key`, records of other keys may be left out. Records appended before `since_ms` (milliseconds since the
        epoch) are left out.
        """
        ...

    def dead_letters(self, *, since_ms: int = 0) -> AsyncGenerator[Sequence[DeadLetter], None]:
        """All rejected records, in portions as `records`; one that was published twice comes twice."""
        ...

    async def verdict_on(self, record: LogRecord) -> Verdict | None:
        """The verdict on a record; `None` if there is none, or it is no longer kept."""
        ...

    async def dead_letter_of(self, record: LogRecord) -> DeadLetter | None:
        """The dead letter of a record; `None` if there is none, or it is no longer kept."""
        ...

    async def close(self) -> None:
        """Give back files and connections."""
        ...


@dataclass(frozen=True, slots=True)
class LogKeeps:
    """Seconds that a record stays at least, and a dead letter that may be replayed."""

    records_s: int
    dead_letters_s: int = 0


AskLogKeeps: TypeAlias = Callable[[], Awaitable[LogKeeps | None]]
"""Asks the log; `None`: it keeps records for ever, or does not say. Raises `Unavailable` (`log-unavailable`)."""


def check_identity(own: str, named: str) -> None:
    """Pass when `named` is the log's own identity.

    Raises:
        Fenced: `log-replaced`.

    """
    if named != own:
        raise Fenced(
            "log-replaced", f"the position is of log {named}, but this is log {own}: the log was created again"
        )
