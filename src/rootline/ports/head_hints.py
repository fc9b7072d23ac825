"""Hints from other processes about the newest version of a table. A hint only saves time.

Owns: the port, and an implementation without hints. Does not own: where hints are stored
(`rootline.adapters.redis_calls`), their use (`rootline.storage.metadata.read_cache`).
Invariants: A hint may be missing, out of date, or wrong, and no decision depends on it: the store's LIST gives the
newest version. Methods raise only on cancellation. `tell` neither waits nor fails.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Protocol

from typing_extensions import override

from rootline.schemas.identifiers import TableName, Version


class HintOutcome(StrEnum):
    """The result of a request for a hint."""

    RIGHT = "right"  # the store shows the same version
    WRONG = "wrong"  # the store shows another version, older or newer
    NONE = "none"  # there was no hint, or its value is not a version
    LATE = "late"  # the store answered first


class HeadHints(Protocol):
    """Sends and receives hints. Use it from one event loop."""

    @property
    def are_kept(self) -> bool:
        """Whether hints can be sent and received now."""
        ...

    def tell(self, table: TableName, version: Version) -> None:
        """Report that this version was the newest a moment ago.

        Returns without waiting, and the hint may never be sent.
        """
        ...

    async def newest(self, table: TableName) -> Version | None:
        """The version in the last hint for `table`. `None` without a hint, or if no answer arrives soon."""
        ...

    def judged(self, outcome: HintOutcome) -> None:
        """Count, in the metrics, whether a hint was right."""
        ...


class NoHints(HeadHints):
    """An implementation for processes without a place for hints."""

    are_kept: bool = False

    @override
    def tell(self, table: TableName, version: Version) -> None:
        """Do nothing."""

    @override
    async def newest(self, table: TableName) -> Version | None:
        return None

    @override
    def judged(self, outcome: HintOutcome) -> None:
        """Do nothing."""


NO_HINTS: Final = NoHints()
