"""Whether two engines read the same rows.

Owns: the comparison: NaN is NaN, -0.0 is not 0.0, the order says nothing. Does not own: reading.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


def plain(rows: pa.Table, columns: Sequence[str] | None = None) -> list[tuple[str, ...]]:
    """The rows as something that compares by value, sorted."""
    chosen = rows if columns is None else rows.select(list(columns))
    return sorted(tuple(repr(value) for value in row.values()) for row in chosen.to_pylist())
