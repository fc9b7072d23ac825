"""Statistics of one column or expression over the rows of a file, or over the entries of a leaf.

Owns: the value type and its meaning. Does not own: encodings (`statistics_codec`, `leaf_codec`), aggregation and
pruning (`rootline.tree`).
Invariants: bounds are *physical* values: date = days, time and timestamps = micro- or nanoseconds since the epoch
(int), uuid and fixed = bytes, decimal = `decimal.Decimal`, string = str, binary = bytes. NaN is never a bound
outside partition values. A struct that is absent means "unknown".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

Bound = bool | int | float | str | bytes | Decimal


@dataclass(frozen=True, slots=True)
class FieldStatistics:
    """Counts include nulls and NaN where their names say so; sizes are bytes of one value."""

    lower_bound: Bound | None = None
    upper_bound: Bound | None = None
    tight_bounds: bool | None = None
    value_count: int | None = None
    null_value_count: int | None = None
    nan_value_count: int | None = None
    avg_value_size_in_bytes: int | None = None
    max_value_size_in_bytes: int | None = None


ContentStats = Mapping[int, FieldStatistics]
"""Column or expression id → statistics. Partition values are statistics too: the lower bound of the spec's ids."""
