"""A wall clock that runs many times as fast as the real one, and now and then leaps; one for several processes.

Owns: from a real moment to the fast one. Does not own: who uses it (`fast_service`, `fast_dates`, `fast_lake`).
Invariants: it never goes back; all processes agree, also about moments that have passed: a leap counts only for what
came after it; what only measures how long something takes (`monotonic_s`) stays real.
"""

from __future__ import annotations

import mmap
import struct
import time
from pathlib import Path
from typing import Final

from rootline.adapters.system_environment import SystemEnvironment

LEAP_MS: Final = 23 * 3600 * 1000
"""Less than a day: of a longer jump of the log's time only a day counts."""
_LEAPS_MAX: Final = 64
_HEAD: Final = struct.Struct("<dqq")
_LEAP: Final = struct.Struct("<q")


class FastClock:
    """The clock in a file that `make` has written; all times are in milliseconds since the epoch."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), 0)
        self.speed, self._origin_ms, _ = _HEAD.unpack_from(self._shared)

    @staticmethod
    def make(path: Path, speed: float) -> FastClock:
        """A clock that is right now, and fast from now on."""
        head = _HEAD.pack(speed, _real_ms(), 0)
        path.write_bytes(head + bytes(_LEAPS_MAX * _LEAP.size))
        return FastClock(path)

    @property
    def leaps(self) -> list[int]:
        """The real moments at which it leapt."""
        count = _HEAD.unpack_from(self._shared)[2]
        return [_LEAP.unpack_from(self._shared, _HEAD.size + at * _LEAP.size)[0] for at in range(count)]

    def leap(self) -> None:
        """Now it is `LEAP_MS` later."""
        count = len(self.leaps)
        assert count < _LEAPS_MAX
        _LEAP.pack_into(self._shared, _HEAD.size + count * _LEAP.size, _real_ms())
        _HEAD.pack_into(self._shared, 0, self.speed, self._origin_ms, count + 1)

    def at(self, real_ms: float) -> int:
        """The fast moment of a real one; what was before the clock was made stays as it is."""
        passed_ms = real_ms - self._origin_ms
        if passed_ms < 0:
            return int(real_ms)
        leapt_ms = LEAP_MS * sum(real_ms >= at for at in self.leaps)
        return int(self._origin_ms + passed_ms * self.speed + leapt_ms)

    def now_ms(self) -> int:
        """The fast moment of now."""
        return self.at(_real_ms())


class FastEnvironment(SystemEnvironment):
    """The system's, by the fast clock."""

    def __init__(self, clock: FastClock) -> None:
        self._clock = clock

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._clock.now_ms()


def _real_ms() -> int:
    return time.time_ns() // 1_000_000
