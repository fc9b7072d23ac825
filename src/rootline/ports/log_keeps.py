"""How long a log keeps what it holds: a sweep stays behind it, and takes no file of an intent still to be read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class LogKeeps:
    """Seconds that a record stays at least, and a dead letter that may be replayed."""

    records_s: int
    dead_letters_s: int = 0


AskLogKeeps: TypeAlias = Callable[[], Awaitable[LogKeeps | None]]
"""Asks the log; `None`: it keeps records for ever, or does not say. Raises `Unavailable` (`log-unavailable`)."""
