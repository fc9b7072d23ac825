"""What a log still holds, for people who look: newest first, without taking part in it.

Owns: the port. Does not own: what is looked for (`rootline.client`).
Invariants: looking changes nothing and remembers nothing; it ends, also while records keep coming; what is read at one
time fits into memory, however much the log holds.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from rootline.schemas.dead_letter import DeadLetter
from rootline.schemas.log_position import LogRecord
from rootline.schemas.verdict import Verdict


class LogArchive(Protocol):
    """Every method raises `Unavailable` (`log-unavailable`) when the log cannot be reached."""

    def records(self, *, key: bytes | None = None, since_ms: int = 0) -> AsyncGenerator[Sequence[LogRecord], None]:
        """All records, the newest first by their append time, in portions; close it when it is not read to its end.

        With a `key`, records of other keys may be left out. None are told that were appended before `since_ms`
        (milliseconds since the epoch).
        """
        ...

    def dead_letters(self, *, since_ms: int = 0) -> AsyncGenerator[Sequence[DeadLetter], None]:
        """All rejected records, in portions as `records`; the same one twice where it was published twice."""
        ...

    async def verdict_on(self, record: LogRecord) -> Verdict | None:
        """The verdict on a record; `None` when there is none, or it is kept no longer."""
        ...

    async def dead_letter_of(self, record: LogRecord) -> DeadLetter | None:
        """The dead letter of a record; `None` when there is none, or it is kept no longer."""
        ...

    async def close(self) -> None:
        """Give back files and connections."""
        ...
