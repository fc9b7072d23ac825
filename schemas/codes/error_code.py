"""What is known of one error code.

Owns: the value type. Does not own: the codes (`error_codes`).
Invariants: a value; it raises nothing and knows no error class.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """One code: its category (the name of an error class), meaning, what to do, what not to do."""

    code: str
    category: str
    meaning: str
    do: str
    do_not: str = ""
