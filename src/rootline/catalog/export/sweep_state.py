"""What sweeps have done to a table so far, as exporters must know it.

Owns: when what an exporter knows is out of date, and what makes names of new objects new. Does not own: sweeps
(`rootline.workers`).

A name that was condemned is never used again: each root that condemns something makes another salt, and what is made
from then on has it in its name. So an object that is found under a name with the newest salt was never condemned.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import Final

from rootline.schemas.root_header import Condemned, RootHeader

TRUSTED_S: Final = 60.0
"""So long what was read of a head counts. The shortest retention of a sweep is ten times that."""


@dataclass(frozen=True, slots=True)
class SweepState:
    """`horizon_ms` and `condemned` of the head. As long as they stay, nothing more of an export is about to go."""

    horizon_ms: int
    condemned: tuple[Condemned, ...]

    @staticmethod
    def of(header: RootHeader) -> SweepState:
        """What the root of a head says."""
        return SweepState(header.horizon_ms, tuple(header.condemned))

    @property
    def salt(self) -> str:
        """16 hex digits for the names of objects to come; empty, before a table's first sweep."""
        if not self.horizon_ms and not self.condemned:
            return ""
        pages = [(item.page.digest.hex(), int(item.since_version)) for item in self.condemned]
        return hashlib.sha256(repr((self.horizon_ms, pages)).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Moment:
    """When something was read, by two clocks: one stands still while a machine sleeps, the other may be set back."""

    monotonic_s: float
    wall_s: float

    @staticmethod
    def now() -> Moment:
        """This moment."""
        return Moment(time.monotonic(), time.time())

    def is_past(self) -> bool:
        """Whether what was read then has to be read again."""
        return max(time.monotonic() - self.monotonic_s, time.time() - self.wall_s) > TRUSTED_S
