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
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, NamedTuple

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


class AtMost(NamedTuple):
    """`part`, or `part` and `other_part` together, is at most `whole`.

    Nothing is said where `whole` or the only part is unknown; of two parts an unknown one counts as zero.
    """

    part: str
    whole: str
    sentence: str
    other_part: str | None = None


AT_MOST: Final = (
    AtMost("null_value_count", "value_count", "more nulls and NaNs than values", "nan_value_count"),
    AtMost(
        "avg_value_size_in_bytes",
        "max_value_size_in_bytes",
        "avg_value_size_in_bytes is greater than max_value_size_in_bytes",
    ),
    AtMost("lower_bound", "upper_bound", "the lower bound is above the upper bound"),
)
"""What must hold among the members of one `FieldStatistics`; the two evaluators read this table."""


def statistics_violations(item: FieldStatistics) -> Iterator[str]:
    """The rules of `AT_MOST` that `item` breaks, each a sentence."""
    for part_name, whole_name, sentence, other_name in AT_MOST:
        whole = getattr(item, whole_name)
        if whole is None:
            continue
        part = getattr(item, part_name)
        if other_name is not None:
            part = (part or 0) + (getattr(item, other_name) or 0)
        if part is not None and part > whole:
            yield sentence
