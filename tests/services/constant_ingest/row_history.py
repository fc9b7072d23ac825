"""What each version of a table must hold: when each row came, and when it went.

Owns: the model, and the comparison with what a scan has read. Does not own: who changes rows (`writers`).
Invariants: too simple to be wrong: a row is a number, which is used once; a version holds what came up to it and did
not go up to it. Only what is decided is known, so a scan is judged once everything that it may have seen is decided.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

import numpy as np

NEVER: Final = np.iinfo(np.int64).max
Rows = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True)
class Seen:
    """The rows that a scan of `version` found, and the changes that were in flight when it ended."""

    version: int
    rows: Rows
    in_flight: frozenset[int]


@dataclass
class RowHistory:
    """Rows by number: `came` and `went` are versions."""

    came: Rows = field(default_factory=lambda: np.full(1 << 16, NEVER, np.int64))
    went: Rows = field(default_factory=lambda: np.full(1 << 16, NEVER, np.int64))
    minted: int = 0
    in_flight: set[int] = field(default_factory=set)
    judged: int = 0
    rows_judged: int = 0
    wrong: list[str] = field(default_factory=list)
    _changes: int = 0
    _waiting: deque[Seen] = field(default_factory=deque)

    def mint(self, count: int) -> Rows:
        """Numbers of new rows."""
        first, self.minted = self.minted, self.minted + count
        while self.minted > len(self.came):
            more = np.full(len(self.came), NEVER, np.int64)
            self.came, self.went = np.concatenate([self.came, more]), np.concatenate([self.went, more])
        return np.arange(first, self.minted, dtype=np.int64)

    def begin(self) -> int:
        """A change begins: from now on a scan may see it."""
        self._changes += 1
        self.in_flight.add(self._changes)
        return self._changes

    def end(self, change: int) -> None:
        """It is decided, and noted."""
        self.in_flight.discard(change)

    def note(self, version: int, *, came: Rows | None = None, went: Rows | None = None) -> None:
        """A change was committed in `version`."""
        if came is not None:
            self.came[came] = version
        if went is not None:
            self.went[went] = np.minimum(self.went[went], version)

    def at(self, version: int) -> Rows:
        """The rows of a version, ascending."""
        return np.flatnonzero((self.came[: self.minted] <= version) & (self.went[: self.minted] > version))

    def saw(self, version: int, rows: Rows) -> None:
        """A scan ended."""
        self._waiting.append(Seen(version, np.sort(rows), frozenset(self.in_flight)))

    def judge(self, *, everything: bool = False) -> None:
        """Judge the scans about which all is known."""
        for _ in range(len(self._waiting)):
            seen = self._waiting.popleft()
            if seen.in_flight & self.in_flight and not everything:
                self._waiting.append(seen)
                continue
            expected = self.at(seen.version)
            self.judged += 1
            self.rows_judged += len(expected)
            if not np.array_equal(expected, seen.rows):
                lost, extra = np.setdiff1d(expected, seen.rows), np.setdiff1d(seen.rows, expected)
                twice = len(seen.rows) - len(np.unique(seen.rows))
                self.wrong.append(
                    f"version {seen.version}: {len(expected)} rows expected, {len(seen.rows)} read; lost "
                    f"{lost[:5].tolist()}, extra {extra[:5].tolist()}, {twice} twice; came at "
                    f"{self.came[lost[:5]].tolist()} and {self.came[extra[:5]].tolist()}, went at "
                    f"{self.went[extra[:5]].tolist()}"
                )
