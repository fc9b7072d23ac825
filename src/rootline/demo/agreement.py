"""Comparing what a demo read with what it should have read.

Owns: the comparisons, the digest of rows, the words for their outcome. Does not own: what is expected
(`example_flights`), who read it (`quick_demo`, `examples/spark_demo`).
Invariants: a digest does not depend on the order of rows or columns; every difference is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


@dataclass
class Agreement:
    """The outcome of all comparisons so far; `mismatches` are sentences."""

    mismatches: list[str] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        """Whether nothing differs."""
        return not self.mismatches

    def lines(self) -> Iterator[str]:
        """One line for each mismatch."""
        for mismatch in self.mismatches:
            yield f"MISMATCH  {mismatch}"

    def hold(self, what: str, expected: Any, read: Any) -> None:
        """Compare one thing."""
        if expected != read:
            self.mismatches.append(f"{what}: expected {expected}, read {read}")

    def hold_rows(self, reader: str, expected: pd.DataFrame, read: pd.DataFrame) -> None:
        """Compare the rows that `reader` read: how many, of which carriers, and every value."""
        self.hold(f"rows read by {reader}", len(expected), len(read))
        self.hold(f"rows of each carrier read by {reader}", rows_by_carrier(expected), rows_by_carrier(read))
        self.hold(f"every value of every row read by {reader}", rows_digest(expected), rows_digest(read))


def rows_digest(rows: pd.DataFrame) -> int:
    """A number that is the same for the same rows in any order."""
    import pandas as pd

    ordered = rows[sorted(rows.columns)]
    return int(pd.util.hash_pandas_object(ordered, index=False).sum())


def rows_by_carrier(rows: pd.DataFrame) -> dict[str, int]:
    """How many rows each carrier has."""
    counts: dict[str, int] = rows.carrier.value_counts().sort_index().to_dict()
    return counts
