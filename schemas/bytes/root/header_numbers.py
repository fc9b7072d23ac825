"""Numbers in the header's JSON, which are never negative."""

from __future__ import annotations

from typing import Any, Final

_NUMBER_MAX: Final = 2**63 - 1


def count_of(value: Any) -> int:
    """`value`, if it is a non-negative integer of at most 63 bits. Raises `ValueError`."""
    if type(value) is not int or not 0 <= value <= _NUMBER_MAX:
        raise ValueError(f"{value!r:.60} is not a number from 0 to 2^63-1")
    return value
