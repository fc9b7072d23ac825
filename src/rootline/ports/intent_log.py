"""The log of intents, verdicts and dead letters, as four capabilities, and its archive for inspection.

Owns: the ports, the retention that a log reports, the check that a position belongs to a log. Does not own: framing of
records (`rootline.schemas.bytes.intent_codec`, `rootline.schemas.bytes.verdict_codec`), the table of a record,
when a verdict may be published.
Invariants: A published record is durable before `publish` returns. Records of one key keep their order. A reader sees
every record from its position on, once, in order. Offsets of one log are never used for another log. Inspection
changes nothing in the log. It terminates even while records are being appended. One portion fits into memory, however
large the log is.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from rootline.schemas.errors import Fenced
from rootline.schemas.identifiers import LogId, LogPosition, LogRecord

if TYPE_CHECKING:
    from rootline.schemas.bytes.record_headers import Lake
    from rootline.schemas.verdict import DeadLetter, Verdict

NewRecord = tuple[bytes, bytes] | tuple[bytes, bytes, bytes | None]
"""Key and value, and optionally the writer's description of the content (`rootline.schemas.bytes.record_headers`)."""


class IntentSink(Protocol):
    """Publishes the intents of writers."""

    async def publish(self, key: bytes, value: bytes, *, oldest_file_ms: int | None = None) -> LogPosition:
        """Append one record durably. Raises `Unavailable`, or `OutcomeUnknown`. A repetition is safe after both.

        `oldest_file_ms`: the upload time of the oldest file that the intent adds, by the store's clock.
        """
        return (await self.publish_many([(key, value)], oldest_file_ms=oldest_file_ms))[0]

    async def publish_many(
        self, records: Sequence[NewRecord], *, oldest_file_ms: int | None = None
    ) -> list[LogPosition]:
        """Append records in order, all or none. The description of a `NewRecord` becomes a header of its record.

        `oldest_file_ms`: the upload time of the oldest file that any of the intents adds.
        """
        ...


class IntentSource(Protocol):
    """Reads intents for a coordinator."""

    async def identity(self) -> LogId:
        """The log's identity. It changes when the log is created again."""
        ...

    async def first_undecided(self) -> int:
        """The offset to start from. Every record before it has a durable verdict."""
        ...

    async def beginning(self) -> int:
        """The offset from which on every record still exists. Records before it were decided, and may be deleted."""
        ...

    async def confirmed_version(self, table: str) -> int | None:
        """The highest version of `table` in any verdict on this log, unless an operator has accepted a loss."""
        ...

    async def end_offset(self) -> int:
        """The offset of the next record. It never decreases while the identity is the same."""
        ...

    async def read(self, from_offset: int, *, limit: int, wait_s: float) -> list[LogRecord]:
        """Read up to `limit` records at or after `from_offset`. Waits up to `wait_s` seconds for the first one."""
        ...


class VerdictSink(Protocol):
    """Publishes a coordinator's verdicts and dead letters."""

    async def publish_verdicts(self, verdicts: Sequence[Verdict], dead_letters: Sequence[DeadLetter]) -> None:
        """Publish verdicts and dead letters durably. A verdict that is published twice has the same effect as once."""
        ...


class VerdictSource(Protocol):
    """Delivers verdicts to waiting writers."""

    async def wait_verdict(self, position: LogPosition, *, timeout_s: float) -> Verdict | None:
        """The verdict on the record at `position`, or `None` if none arrives within `timeout_s` seconds."""
        ...


@runtime_checkable
class KnowsItsLake(Protocol):
    """A log that serves one lake, and refuses every other lake."""

    async def introduce(self, lake: Lake) -> None:
        """Name the caller's lake. Raises `Invalid` (`lake-mismatch`) if the log serves another lake."""
        ...


class IntentLog(IntentSink, IntentSource, VerdictSink, VerdictSource, Protocol):
    """A log with all four capabilities, such as the embedded log."""

    async def close(self) -> None:
        """Close files and connections."""
        ...


@runtime_checkable
class MayGoBack(Protocol):
    """A log whose file may be overwritten by an older copy while it is open."""

    def check_is_there(self, last_read: LogRecord) -> None:
        """Raise `Fenced` (`log-behind-root`) unless the record that was read last is still in the log."""
        ...

    async def publish_verdicts(
        self, verdicts: Sequence[Verdict], dead_letters: Sequence[DeadLetter], last_read: LogRecord | None = None
    ) -> None:
        """Publish verdicts if `last_read` is still in the log. Otherwise raise the error of `check_is_there`."""
        ...


class LogArchive(Protocol):
    """The records of a log, for inspection. Every method raises `Unavailable` if the log does not answer."""

    def records(self, *, key: bytes | None = None, since_ms: int = 0) -> AsyncGenerator[Sequence[LogRecord], None]:
        """Read all records in portions, newest first by their append time. Close the generator if you stop early.

        With a `key`, records of other keys may be missing. Records that were appended before `since_ms` (milliseconds
        since the epoch) are skipped.
        """
        ...

    def dead_letters(self, *, since_ms: int = 0) -> AsyncGenerator[Sequence[DeadLetter], None]:
        """Read all rejected records in portions, newest first. A dead letter that was published twice appears twice."""
        ...

    async def verdict_on(self, record: LogRecord) -> Verdict | None:
        """The verdict on a record, or `None` if it has none, or the log no longer keeps it."""
        ...

    async def dead_letter_of(self, record: LogRecord) -> DeadLetter | None:
        """The dead letter of a record, or `None` if it has none, or the log no longer keeps it."""
        ...

    async def close(self) -> None:
        """Close files and connections."""
        ...


@dataclass(frozen=True, slots=True)
class LogKeeps:
    """The retention of a log, in seconds: it keeps records, and dead letters for replay, for at least this long."""

    records_s: int
    dead_letters_s: int = 0


AskLogKeeps: TypeAlias = Callable[[], Awaitable[LogKeeps | None]]
"""Asks the log for its retention. `None`: unlimited, or unknown. Raises `Unavailable` (`log-unavailable`)."""


def check_identity(own: str, named: str) -> None:
    """Check that `named`, the log of a position, is this log.

    Raises:
        Fenced: `log-replaced`.
    """
    if named != own:
        raise Fenced(
            "log-replaced", f"the position is of log {named}, but this is log {own}: the log was created again since"
        )
