"""Another process's report of the newest version of a table: a guess that saves time.

Owns: the port, and the one that knows nothing. Does not own: where hints are kept (`rootline.adapters.redis_calls`),
the use of one (`rootline.storage.metadata.read_cache`).
Invariants: a hint may be missing, old, or made up, and nothing is decided by it: the store's LIST gives the newest
version. No method raises but for cancellation, and `tell` neither waits nor fails.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Protocol

from rootline.schemas.identifiers import TableName, Version


class HintOutcome(StrEnum):
    """What became of a question for a hint."""

    RIGHT = "right"  # the store shows the same version
    WRONG = "wrong"  # the store shows another version, older or newer
    NONE = "none"  # there was none, or none that is a version
    LATE = "late"  # the store answered first


class HeadHints(Protocol):
    """Used from one event loop."""

    @property
    def are_kept(self) -> bool:
        """Whether it can make sense to ask."""
        ...

    def tell(self, table: TableName, version: Version) -> None:
        """This version was the newest a moment ago. Returns at once; it is sent later, or never."""
        ...

    async def newest(self, table: TableName) -> Version | None:
        """The version that was told last, as far as is known within a short deadline."""
        ...

    def judged(self, outcome: HintOutcome) -> None:
        """How good a hint was, for the metrics."""
        ...


class NoHints:
    """There is no place for hints."""

    are_kept: bool = False

    def tell(self, table: TableName, version: Version) -> None:
        """Forget it."""

    async def newest(self, table: TableName) -> Version | None:
        """Nothing is known."""
        return None

    def judged(self, outcome: HintOutcome) -> None:
        """Nothing was asked."""


NO_HINTS: Final = NoHints()
