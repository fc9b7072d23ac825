"""Vectorized pruning: the evaluation of a filter on the statistics of all entries of a leaf.

Owns: the vectorized form of `value_range`, and the choice of the leaf's columns to read.
Does not own: the tables of flags and bounds (`value_range`), pruning of single entries (`pruning`), the live entries
(`scan_plan`).
Invariants: The result for an entry is the same as in `pruning` (checked by `tests/tree/filter/test_prune.py`). Only the
statistics that the filter needs are read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rootline.schemas.arrow_values import FALSE, TRUE, ZERO, scalar_from, values_from
from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.bytes.leaf_columns import Mask, mask_of, one_chunk
from rootline.schemas.bytes.leaf_schema import CONTENT_STATS
from rootline.tree.filter.conditions import (
    COMPARISONS,
    AllOf,
    ColumnPair,
    Condition,
    Operator,
    Predicate,
    predicates_of,
    scalar_of,
)
from rootline.tree.filter.pruning import PruningFilter
from rootline.tree.filter.value_range import (
    DIFFERING,
    EQUALLING,
    MAY_BOUND,
    MAY_COMPARE,
    MAY_DIFFER,
    MAY_FLAGS,
    MUST_BOUND,
    MUST_COMPARE,
    MUST_FLAGS,
    Flags,
    has_one_of,
)

_MEMBERS: Final = ("lower_bound", "upper_bound", "value_count", "null_value_count", "nan_value_count")
_VALUES_ONE_BY_ONE: Final = 20


@dataclass(frozen=True, slots=True)
class LeafPruning:
    """Two flags for each entry. `may`: the file may contain matching rows. `must`: all its rows match. The flags of
    removed entries have no meaning.
    """

    may: Mask
    must: Mask


def prune_leaf(pruning: PruningFilter, leaf: Leaf, spec_id: int) -> LeafPruning:
    """Evaluate `pruning` on every entry of a data leaf whose files are of spec `spec_id`."""
    if pruning.bound.is_always_true:
        every = np.ones(len(leaf), dtype=np.bool_)
        return LeafPruning(every, every)
    known = set(leaf.tracked_ids)
    ids = sorted(
        {predicate.field_id for part in (pruning.inclusive, pruning.strict) for predicate in predicates_of(part)}
        & known
    )
    names = [f"{CONTENT_STATS}._{field_id}.{member}" for field_id in ids for member in _MEMBERS]
    table = leaf.columns(["record_count", *names])
    counts = one_chunk(table.column("record_count"))
    members = pruning.members_of(spec_id)
    stats = one_chunk(table.column(CONTENT_STATS)) if ids else None
    columns = {
        field_id: _ranges(
            pc.struct_field(stats, f"_{field_id}"), counts, field_id in members, field_id in pruning.float_ids
        )
        for field_id in ids
    }
    may = _evaluated(pruning.inclusive, columns, len(leaf), _may, unknown=True)
    must = _evaluated(pruning.strict, columns, len(leaf), _must, unknown=False)
    return LeafPruning(mask_of(may) & mask_of(pc.not_equal(counts, ZERO)), mask_of(must))


@dataclass(frozen=True, slots=True)
class _Ranges:
    """The `ValueRange` of every entry, as columns. A null bound is unknown, and flags have no nulls."""

    lower: pa.Array
    upper: pa.Array
    may_have_null: pa.Array
    may_have_nan: pa.Array
    is_all_null: pa.Array
    is_all_nan: pa.Array
    is_without_values: pa.Array


def _ranges(stats: pa.StructArray, record_counts: pa.Array, is_partition_value: bool, is_float: bool) -> _Ranges:
    nothing, no = pa.nulls(len(stats), pa.int64()), pa.repeat(FALSE, len(stats))
    known = {stats.type.field(at).name: pc.struct_field(stats, at) for at in range(stats.type.num_fields)}
    lower, upper = known.get("lower_bound", nothing), known.get("upper_bound", nothing)
    values = pc.coalesce(known.get("value_count", nothing), record_counts)
    nulls = known.get("null_value_count", nothing)
    nans = known.get("nan_value_count", nothing) if is_float else pa.repeat(ZERO, len(stats))
    may_have_null = pc.fill_null(pc.greater(nulls, ZERO), TRUE)
    may_have_nan = pc.fill_null(pc.greater(nans, ZERO), TRUE)
    is_all_null = pc.fill_null(pc.equal(nulls, values), FALSE)
    is_all_nan = pc.fill_null(pc.and_(pc.equal(nans, values), pc.greater(values, ZERO)), FALSE)
    is_hollow = pc.fill_null(pc.equal(pc.add(nulls, nans), values), FALSE)
    is_without = pc.or_(is_hollow, pc.or_(is_all_null, is_all_nan))
    is_nan = pc.fill_null(pc.is_nan(lower), FALSE) if is_float else no
    if is_partition_value:
        is_known = lower.is_valid()
        is_null = pc.and_(stats.is_valid(), pc.and_(lower.is_null(), upper.is_null()))
        upper = pc.coalesce(upper, lower)
        may_have_null = pc.or_(is_null, pc.and_not(may_have_null, is_known))
        may_have_nan = pc.and_not(pc.if_else(is_known, is_nan, may_have_nan), is_null)
        is_all_null = pc.or_(is_null, pc.and_not(is_all_null, is_known))
        is_all_nan = pc.and_not(pc.if_else(is_known, is_nan, is_all_nan), is_null)
        is_without = pc.or_(is_null, pc.if_else(is_known, is_nan, is_without))
    if is_float:
        lower = pc.if_else(is_nan, scalar_from(None, lower.type), lower)
        upper = pc.if_else(pc.fill_null(pc.is_nan(upper), FALSE), scalar_from(None, upper.type), upper)
    return _Ranges(lower, upper, may_have_null, may_have_nan, is_all_null, is_all_nan, is_without)


def _evaluated(
    condition: Condition,
    columns: dict[int, _Ranges],
    length: int,
    satisfies: Callable[[Predicate, _Ranges], pa.Array],
    *,
    unknown: bool,
) -> pa.Array:
    if isinstance(condition, Predicate):
        known = columns.get(condition.field_id)
        return pa.repeat(_flag(unknown), length) if known is None else satisfies(condition, known)
    assert not isinstance(condition, ColumnPair), "an expanded condition has no column pair"
    is_all = isinstance(condition, AllOf)
    parts = [_evaluated(part, columns, length, satisfies, unknown=unknown) for part in condition.parts]
    return reduce(pc.and_ if is_all else pc.or_, parts) if parts else pa.repeat(_flag(is_all), length)


def _flag(value: bool) -> pa.Scalar:
    return TRUE if value else FALSE


def _bound_test(
    compare: Callable[[pa.Array, pa.Scalar], pa.Array], bound: pa.Array, value: Any, unknown: bool
) -> pa.Array:
    return pc.fill_null(compare(bound, scalar_of(value, bound.type)), _flag(unknown))


def _within(known: _Ranges, low: Any, high: Any) -> pa.Array:
    return pc.and_(
        _bound_test(pc.less_equal, known.lower, high, True), _bound_test(pc.greater_equal, known.upper, low, True)
    )


def _is_one_of(known: _Ranges, values: tuple[Any, ...]) -> pa.Array:
    """One flag for each entry: both bounds equal one of `values`. False if a bound is unknown."""
    if len(values) > _VALUES_ONE_BY_ONE:
        listed = frozenset(values)
        meets = values_from([bound in listed for bound in _physical(known.lower)], pa.bool_())
    else:
        meets = reduce(pc.or_, (_bound_test(pc.equal, known.lower, value, False) for value in values))
    return pc.and_(meets, pc.fill_null(pc.equal(known.lower, known.upper), FALSE))


def _has_one_of(known: _Ranges, values: tuple[Any, ...]) -> pa.Array:
    """One flag for each entry: one of `values` lies within the bounds. An unknown bound excludes no value."""
    if len(values) <= _VALUES_ONE_BY_ONE:
        return reduce(pc.or_, (_within(known, value, value) for value in values))
    bounds = zip(_physical(known.lower), _physical(known.upper), strict=True)
    return values_from([has_one_of(values, low, high) for low, high in bounds], pa.bool_())


def _physical(bounds: pa.Array) -> list[Any]:
    """The bounds as physical values, like those of a filter (days, microseconds, …)."""
    array = bounds.storage if isinstance(bounds, pa.ExtensionArray) else bounds
    if pa.types.is_temporal(array.type):
        array = array.cast(pa.int32() if array.type.bit_width == 32 else pa.int64())
    found: list[Any] = array.to_pylist()
    return found


def _prefix(bound: pa.Array, prefix: str) -> pa.Array:
    return pc.utf8_slice_codeunits(bound, 0, len(prefix))


def _starts(known: _Ranges, prefix: str) -> pa.Array:
    """One flag for each entry: both bounds, and hence all values, start with `prefix`. False if a bound is unknown."""
    both = pc.and_(pc.starts_with(known.lower, pattern=prefix), pc.starts_with(known.upper, pattern=prefix))
    return pc.fill_null(both, FALSE)


def _of_flags(flags: Flags, known: _Ranges) -> pa.Array:
    without = reduce(pc.or_, (getattr(known, name) for name in flags.not_set)) if flags.not_set else None
    if flags.is_set is None:
        return pc.invert(without)
    is_set = getattr(known, flags.is_set)
    return is_set if without is None else pc.and_not(is_set, without)


def _may(predicate: Predicate, known: _Ranges) -> pa.Array:
    operator, values = predicate.operator, predicate.values
    flags = MAY_FLAGS.get(operator)
    if flags is not None:
        return _of_flags(flags, known)
    if operator in DIFFERING:
        may_have_other = pc.and_not(_of_flags(MAY_COMPARE, known), _is_one_of(known, values))
        return pc.or_(may_have_other, _of_flags(MAY_DIFFER, known))
    return pc.and_(_may_compare(operator, values, known), _of_flags(MAY_COMPARE, known))


def _may_compare(operator: Operator, values: tuple[Any, ...], known: _Ranges) -> pa.Array:
    bound = MAY_BOUND.get(operator)
    if bound is not None:
        return _bound_test(COMPARISONS[operator], getattr(known, bound), values[0], True)
    if operator in EQUALLING:
        return _has_one_of(known, values)
    prefix = values[0]
    if operator is Operator.NOT_STARTS_WITH:
        return pc.invert(_starts(known, prefix))
    return pc.and_(
        _bound_test(pc.less_equal, _prefix(known.lower, prefix), prefix, True),
        _bound_test(pc.greater_equal, _prefix(known.upper, prefix), prefix, True),
    )


def _must(predicate: Predicate, known: _Ranges) -> pa.Array:
    flags = MUST_FLAGS.get(predicate.operator)
    if flags is not None:
        return _of_flags(flags, known)
    return pc.and_(_must_compare(predicate.operator, predicate.values, known), _of_flags(MUST_COMPARE, known))


def _must_compare(operator: Operator, values: tuple[Any, ...], known: _Ranges) -> pa.Array:
    bound = MUST_BOUND.get(operator)
    if bound is not None:
        return _bound_test(COMPARISONS[operator], getattr(known, bound), values[0], False)
    if operator in EQUALLING:
        return _is_one_of(known, values)
    if operator in DIFFERING:
        return pc.invert(_has_one_of(known, values))
    prefix = values[0]
    if operator is Operator.STARTS_WITH:
        return _starts(known, prefix)
    return pc.or_(
        _bound_test(pc.greater, _prefix(known.lower, prefix), prefix, False),
        _bound_test(pc.less, _prefix(known.upper, prefix), prefix, False),
    )
