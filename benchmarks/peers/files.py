"""The files that every peer commits: twenty columns, and statistics that follow from the number of the file.

It imports nothing but the standard library, because the drivers of peers run in an environment without Rootline. A test
compares it with `benchmarks.sample_table`, which is the same for Rootline.
"""

from __future__ import annotations

import uuid
from typing import Any, Final

TYPES: Final = ("long",) * 8 + ("double",) * 4 + ("string",) * 4 + ("timestamp",) * 4
NAMES: Final = tuple(f"c{number}" for number in range(len(TYPES)))
ROW_BYTES: Final = 100


def rows_of(number: int) -> int:
    """The rows of the file."""
    return 10_000 + number * 37 % 5_000


def size_of(number: int) -> int:
    """The bytes of the file."""
    return 1_000_000 + number


def nulls_of(number: int) -> int:
    """The nulls of each column of the file."""
    return number % 7


def location_of(number: int) -> str:
    """The file's path in the table's folder."""
    return f"data/{uuid.UUID(int=number)}.parquet"


def bounds_of(number: int, column: int) -> tuple[Any, Any]:
    """The least and the greatest value of a column of the file; a timestamp is its microseconds since 1970."""
    low = number * 1_000 + column + 1
    kind = TYPES[column]
    if kind == "double":
        return low / 8, (low + 999) / 8
    if kind == "string":
        return f"key-{low:012d}", f"key-{low + 999:012d}"
    return low, low + 999


def selective(files: int, found: int) -> tuple[int, int]:
    """A range of `c0`, its ends included, with rows of `found` files in the middle of a table of `files`."""
    first = max(0, files // 2 - found // 2)
    return first * 1_000 + 1, (first + found) * 1_000
