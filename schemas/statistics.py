"""Statistics of one column or expression over the rows of a file, or over the entries of a leaf.

Owns: the value type, its meaning, and what its members may not say together. Does not own: encodings
(`statistics_codec`, `leaf_codec`), the same rules over columns (`leaf_statistics_rules`), aggregation and pruning
(`rootline.tree`).
Invariants: bounds are *physical* values: date = days, time and timestamps = micro- or nanoseconds since the epoch
(int), uuid and fixed = bytes, decimal = `decimal.Decimal`, string = str, binary = bytes. NaN is never a bound
outside partition values. A struct that is absent means "unknown".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

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


def same_statistics(one: ContentStats, other: ContentStats) -> bool:
    """Whether both state the same about the same columns. NaN, which may be a partition value, equals NaN here."""
    return one.keys() == other.keys() and all(same_field(item, other[field_id]) for field_id, item in one.items())


def same_field(one: FieldStatistics | None, other: FieldStatistics | None) -> bool:
    """As `same_statistics`, of one column."""
    if one == other or one is None or other is None:
        return one == other
    return _without_nan(one) == _without_nan(other) and all(
        same_bound(mine, theirs)
        for mine, theirs in ((one.lower_bound, other.lower_bound), (one.upper_bound, other.upper_bound))
    )


def same_bound(one: Bound | None, other: Bound | None) -> bool:
    """Whether two bounds are equal, with NaN equal to NaN."""
    return one == other or (one != one and other != other)


def _without_nan(item: FieldStatistics) -> FieldStatistics:
    low, high = item.lower_bound, item.upper_bound
    return replace(item, lower_bound=low if low == low else None, upper_bound=high if high == high else None)


MORE_NULLS: Final = "more nulls and NaNs than values"
GREATER_MEAN: Final = "avg_value_size_in_bytes is greater than max_value_size_in_bytes"
CROSSED_BOUNDS: Final = "the lower bound is above the upper bound"


def statistics_violations(item: FieldStatistics) -> Iterator[str]:
    """What the members of one column's statistics may not say together, a sentence for each rule that `item` breaks.

    Written out, not read from a table, which would take more than twice as long; `leaf_statistics_rules` is the same
    over columns, and `tests/tree/proof/test_leaf_proof.py` holds the two together.
    """
    values = item.value_count
    if values is not None and (item.null_value_count or 0) + (item.nan_value_count or 0) > values:
        yield MORE_NULLS
    mean, greatest = item.avg_value_size_in_bytes, item.max_value_size_in_bytes
    if mean is not None and greatest is not None and mean > greatest:
        yield GREATER_MEAN
    lower, upper = item.lower_bound, item.upper_bound
    if lower is not None and upper is not None and lower > upper:  # type: ignore[operator]
        yield CROSSED_BOUNDS
