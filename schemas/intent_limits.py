"""How much one intent may hold.

Owns: the limits and their defaults. Does not own: where they are set (settings), what measures (`intent_codec`,
`location_rules`).
Invariants: nothing is expanded in memory before it has been measured against these.

Source: format page, "Intents on the log".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class IntentLimits:
    """Over any of these an intent is rejected with a verdict that says which one and what to do instead."""

    max_bytes: int = 1_000_000
    """Key, value and headers of the record together."""
    max_files: int = 10_000
    """Files, vectors and leaves that are added or removed, counted together."""
    max_location_chars: int = 1_024
    max_statistics_columns: int = 1_000
    """Columns and expressions with statistics on one file."""
    max_nesting: int = 64
    """Brackets inside brackets of a JSON intent."""


DEFAULT_LIMITS: Final = IntentLimits()
