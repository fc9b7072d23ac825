"""Pruning: the part of a filter that the statistics of a file decide, and the residual that its rows must be tested by.

Owns: evaluation of a whole filter, with its projections, on the statistics of one entry: whether rows may match
(inclusive), and whether all of them must (strict). Removing the tests that statistics decide, and the text of the rest.
Does not own: tests of one range (`value_range`), the projections (`projections`), the vectorized form over a leaf
(`leaf_pruning`), evaluating the residual on rows (`conditions`).
Invariants:
* `may_match` is False only if no row can match. `must_match` is True only if every row matches.
* Unknown statistics and unknown transforms never prune.
* A row of the file satisfies the residual if and only if it satisfies the filter. `None` means that every row does.

Source: the Iceberg specification, "Scan Planning" (strict projection, residual predicates).
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DoubleType,
    FloatType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
)

from rootline.schemas.content_entry import LEAF_TYPES, Bound, ContentEntry, ContentStats
from rootline.schemas.table_definition import Function, TableDefinition
from rootline.tree.filter.conditions import (
    ALWAYS,
    NEVER,
    AllOf,
    AnyOf,
    ColumnPair,
    Condition,
    Operator,
    Predicate,
    all_of,
    any_of,
)
from rootline.tree.filter.filters import BoundFilter, bind_filter
from rootline.tree.filter.projections import project_inclusive, project_single, project_strict, project_together
from rootline.tree.filter.value_range import Test, may_test, must_test, range_of

Check = Callable[[ContentStats, int | None, Collection[int]], bool]
_NO_PARTITION: Final[frozenset[int]] = frozenset()


@dataclass(frozen=True)
class PruningFilter:
    """A bound filter compiled for a table definition.

    Both `inclusive` (necessary for a match) and `strict` (sufficient for a match) test columns and the expressions
    over them.
    """

    bound: BoundFilter
    inclusive: Condition
    strict: Condition
    float_ids: frozenset[int]
    spec_members: Mapping[int, frozenset[int]]
    definition: TableDefinition

    @staticmethod
    def of(
        where: str | BooleanExpression | BoundFilter | None, definition: TableDefinition, schema: Schema | None = None
    ) -> PruningFilter:
        """Compile `where` for tables of `definition`. Names are of `schema`, by default the definition's current one.

        Raises:
            Invalid: `filter-invalid`.

        """
        bound = bind_filter(where, definition.schema if schema is None else schema)
        return PruningFilter(
            bound,
            _expanded(bound.condition, definition, is_strict=False),
            _expanded(bound.condition, definition, is_strict=True),
            frozenset(
                field.tracked_id
                for field in definition.tracked_fields
                if isinstance(field.type, FloatType | DoubleType)
            ),
            {spec.spec_id: frozenset(spec.expr_ids) for spec in definition.partition_specs},
            definition,
        )

    @cached_property
    def may(self) -> Check:
        """The compiled test whether some row of a file may match.

        Its arguments are statistics, row count (`None`: unknown), and the ids of columns with partition values.
        """
        return _compiled(self.inclusive, self.float_ids, may_test, unknown=True)

    @cached_property
    def must(self) -> Check:
        """The compiled test whether every row of a file matches. Its arguments are those of `may`."""
        return _compiled(self.strict, self.float_ids, must_test, unknown=False)

    @cached_property
    def _checks(self) -> dict[int, tuple[Predicate | ColumnPair, Check, Check]]:
        return {}

    def checks_of(self, test: Predicate | ColumnPair) -> tuple[Check, Check]:
        """The compiled checks (`may`, `must`) of a single test of the filter."""
        known = self._checks.get(id(test))  # hashing a test takes time in proportion to its list of values
        if known is None or known[0] is not test:
            inclusive = _expanded(test, self.definition, is_strict=False)
            strict = _expanded(test, self.definition, is_strict=True)
            known = self._checks[id(test)] = (
                test,
                _compiled(inclusive, self.float_ids, may_test, unknown=True),
                _compiled(strict, self.float_ids, must_test, unknown=False),
            )
        return known[1:]

    def members_of(self, spec_id: int | None) -> Collection[int]:
        """The ids of the partition fields of spec `spec_id`, whose statistics are partition values. Empty for an
        unknown spec.
        """
        return _NO_PARTITION if spec_id is None else self.spec_members.get(spec_id, _NO_PARTITION)


def may_match(pruning: PruningFilter, stats: ContentStats, record_count: int | None, spec_id: int | None) -> bool:
    """Whether a row of the file can match.

    The statistics of the partition fields of spec `spec_id` are partition values. `spec_id` and `record_count` are
    `None` for the aggregated statistics of a leaf, where null bounds mean "unknown".
    """
    return record_count != 0 and pruning.may(stats, record_count, pruning.members_of(spec_id))


def must_match(pruning: PruningFilter, stats: ContentStats, record_count: int | None, spec_id: int | None) -> bool:
    """Whether every row of the file matches. See `may_match` for the arguments."""
    return pruning.must(stats, record_count, pruning.members_of(spec_id))


def entry_may_match(pruning: PruningFilter, entry: ContentEntry) -> bool:
    """Whether any row can match in the file that `entry` describes, or in the files of the leaf that it describes."""
    if entry.content_type in LEAF_TYPES:
        return pruning.may(entry.content_stats, None, _NO_PARTITION)
    return may_match(pruning, entry.content_stats, entry.record_count, entry.partition_spec_id)


def entry_must_match(pruning: PruningFilter, entry: ContentEntry) -> bool:
    """Whether every row matches in the file that `entry` describes, or in the files of the leaf that it describes."""
    if entry.content_type in LEAF_TYPES:
        return pruning.must(entry.content_stats, None, _NO_PARTITION)
    return must_match(pruning, entry.content_stats, entry.record_count, entry.partition_spec_id)


def _expanded(condition: Condition, definition: TableDefinition, *, is_strict: bool) -> Condition:
    if isinstance(condition, ColumnPair):
        return NEVER if is_strict else all_of(tuple(_both_not_null(condition, definition)))
    if not isinstance(condition, Predicate):
        parts = tuple(_expanded(part, definition, is_strict=is_strict) for part in condition.parts)
        if not isinstance(condition, AllOf):
            return any_of(parts)
        return all_of(parts if is_strict else (*parts, *project_together(condition.parts, definition)))
    tracked = definition.tracked_by_id.get(condition.field_id)
    if tracked is None:  # a struct, list or map: no statistics at all
        return AnyOf() if is_strict else AllOf()
    found: list[Condition] = [condition]
    for expression in definition.expressions:
        if condition.field_id not in expression.source_ids:
            continue
        if definition.function_of(expression) is Function.TRANSFORM:
            project = project_strict if is_strict else project_inclusive
            projected = project(condition, expression.parsed, tracked.type, expression.expr_id)
        else:
            projected = project_single(condition, expression, definition, is_strict=is_strict)
        if projected is not None:
            found.append(projected)
    return any_of(tuple(found)) if is_strict else all_of(tuple(found))


def _both_not_null(pair: ColumnPair, definition: TableDefinition) -> Iterator[Condition]:
    """The conditions that `pair` implies: neither column is null."""
    for field_id in (pair.left_id, pair.right_id):
        yield _expanded(Predicate(field_id, Operator.NOT_NULL), definition, is_strict=False)


def _compiled(
    condition: Condition,
    float_ids: frozenset[int],
    test_of: Callable[[Predicate], Test],
    *,
    unknown: bool,
) -> Check:
    if isinstance(condition, Predicate):
        test, field_id, is_float = test_of(condition), condition.field_id, condition.field_id in float_ids

        def check(stats: ContentStats, row_count: int | None, partition_ids: Collection[int]) -> bool:
            found = stats.get(field_id)
            if found is None:
                return unknown
            is_partition_value = field_id in partition_ids
            return test(range_of(found, row_count, is_partition_value=is_partition_value, is_float=is_float))

        return check
    assert not isinstance(condition, ColumnPair), "an expanded condition has no column pair"
    checks = [_compiled(part, float_ids, test_of, unknown=unknown) for part in condition.parts]
    if isinstance(condition, AllOf):
        return lambda stats, count, ids: all(check(stats, count, ids) for check in checks)
    return lambda stats, count, ids: any(check(stats, count, ids) for check in checks)


_EPOCH: Final = dt.datetime(1970, 1, 1)
_MICROSECONDS: Final = (TimestampType, TimestamptzType)
_NANOSECONDS: Final = (TimestampNanoType, TimestamptzNanoType)
_VALUES_SHOWN: Final = 50
_PLAIN: Final = re.compile(r"[^\W\d][\w$]*(?:\.[^\W\d][\w$]*)*\Z")
_ZONED: Final = (TimestamptzType, TimestamptzNanoType)


def residual_of(pruning: PruningFilter, entry: ContentEntry) -> BoundFilter | None:
    """The residual of the filter for data file `entry`, or `None` if its statistics prove that every row matches."""
    rest = _simplified(pruning, pruning.bound.condition, entry)
    if rest == ALWAYS:
        return None
    if rest == pruning.bound.condition:
        return pruning.bound
    return BoundFilter(rest, text_of(rest, pruning.definition.schema))


def _simplified(pruning: PruningFilter, condition: Condition, entry: ContentEntry) -> Condition:
    if isinstance(condition, AllOf | AnyOf):
        parts = tuple(_simplified(pruning, part, entry) for part in condition.parts)
        return all_of(parts) if isinstance(condition, AllOf) else any_of(parts)
    may, must = pruning.checks_of(condition)
    members = pruning.members_of(entry.partition_spec_id)
    if must(entry.content_stats, entry.record_count, members):
        return ALWAYS
    return condition if may(entry.content_stats, entry.record_count, members) else NEVER


def text_of(condition: Condition, schema: Schema) -> str:
    """The condition in the syntax of filter text."""
    if isinstance(condition, Predicate):
        return _text_of_predicate(condition, schema)
    if isinstance(condition, ColumnPair):
        left, right = _name(condition.left_id, schema), _name(condition.right_id, schema)
        return f"{left} {condition.operator.value} {right}"
    is_all = isinstance(condition, AllOf)
    if not condition.parts:
        return "true" if is_all else "false"
    parts = (
        f"({text_of(part, schema)})" if isinstance(part, AllOf | AnyOf) else text_of(part, schema)
        for part in condition.parts
    )
    return (" and " if is_all else " or ").join(parts)


def _text_of_predicate(predicate: Predicate, schema: Schema) -> str:
    name = _name(predicate.field_id, schema)
    values = [_literal(value, predicate.field_id, schema) for value in predicate.values[:_VALUES_SHOWN]]
    if len(predicate.values) > _VALUES_SHOWN:
        values.append(f"… {len(predicate.values) - _VALUES_SHOWN} more")
    if not values:
        return f"{name} {predicate.operator.value}"
    if predicate.operator in (Operator.IN, Operator.NOT_IN):
        return f"{name} {predicate.operator.value} ({', '.join(values)})"
    return f"{name} {predicate.operator.value} {values[0]}"


def _name(field_id: int, schema: Schema) -> str:
    name = schema.find_column_name(field_id)
    if name is None:
        return f"column {field_id}"
    return name if _PLAIN.match(name) else '"' + name.replace('"', '""') + '"'


def _literal(value: Bound, field_id: int, schema: Schema) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, bool) or not isinstance(value, int):
        return str(value).lower() if isinstance(value, bool) else str(value)
    try:
        kind = schema.find_type(field_id)
        if isinstance(kind, DateType):
            return f"'{(_EPOCH + dt.timedelta(days=value)).date().isoformat()}'"
        if isinstance(kind, _MICROSECONDS + _NANOSECONDS):
            whole = value if isinstance(kind, _MICROSECONDS) else value // 1000
            zone = "+00:00" if isinstance(kind, _ZONED) else ""
            return f"'{(_EPOCH + dt.timedelta(microseconds=whole)).isoformat()}{zone}'"
    except (ValueError, OverflowError):  # a year beyond 9999, or a dropped column
        pass
    return str(value)
