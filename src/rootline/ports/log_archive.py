"""Inspecting a log: what is still in it, newest first, without being one of its readers.

Owns: the port. Does not own: what is looked for (`rootline.client`).
Invariants: inspection changes nothing in the log; it ends, even while records keep coming; one portion fits into
memory, however large the log is.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from rootline.schemas.identifiers import LogRecord
from rootline.schemas.verdict import DeadLetter, Verdict


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
