"""The rules of shape over the columns of a leaf.

Owns: the evaluator for a whole leaf at once. Does not own: the rules (`entry_rule_table`), the evaluator for one entry
(`entry_rules`), the leaf's schema (`leaf_schema`), what contradicts other entries or the root (`rootline.tree`,
`rootline.storage`).
Invariants: says of a leaf what `entry_rules.shape_rules` says of its entries (`tests/schemas/test_rule_twins.py`); a
leaf that breaks a rule is neither written nor read; statistics and locations are not looked at.

Source: the Single File Commits proposal, "V4 content entry structure"; format page, "Root manifest".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from rootline.schemas.content_entry import ContentType
from rootline.schemas.entry_rule_table import (
    DESCENDING,
    FIELD_RULES,
    IN_LEAVES,
    INHERITING,
    LEAST,
    NO_NUMBER,
    NO_VECTOR_RULES,
    NUMBERS,
    ROOTS_ONLY,
    FieldRules,
    Least,
    ManifestKind,
    negative_number,
)

RULED_COLUMNS: Final = (
    "content_type",
    "file_format",
    "version_info",
    "partition_spec_id",
    "record_count",
    "file_size_in_bytes",
    "deletion_vector",
    "sort_order_id",
    "referenced_file",
    "split_offsets",
    "equality_ids",
    "first_row_id",
)
"""What `column_violation` looks at; `location`, the largest column, is left to `entry_rules`."""

_ABSENT: Final = frozenset({"manifest_stats"})
"""Fields of an entry that a leaf has no column for: null in every row."""


def column_violation(table: pa.Table) -> str | None:
    """The first rule that some entry breaks, as a sentence; `table` has at least `RULED_COLUMNS`, whole structs."""
    types = table.column("content_type")
    found = pc.unique(types).to_pylist()
    for number in found:
        if number not in IN_LEAVES:
            return f"content_type {number} {ROOTS_ONLY}"
        rows = table if len(found) == 1 else table.filter(pc.equal(types, number))
        for sentence in _of_type(rows, FIELD_RULES[ContentType(number)]):
            return sentence
    return next(_of_all(table), None)


def _of_type(rows: pa.Table, rules: FieldRules) -> Iterator[str]:
    for name in rules.required:
        if rows.column(name).null_count:
            yield rules.required_sentence(name)
    for name in rules.null:
        if name not in _ABSENT and rows.column(name).null_count != len(rows):
            yield rules.null_sentence(name)
    for file_format in pc.unique(rows.column("file_format")).to_pylist():
        if file_format not in rules.formats:
            yield rules.format_sentence(str(file_format))
    for name in rules.not_empty:
        if _any(pc.equal(_lengths(rows.column(name)), 0)):
            yield f"{name} is empty"
    yield from _too_small(rows.column, rules.least)
    if rules.vector is not NO_VECTOR_RULES:
        yield from _vectors(rows, rules)


def _vectors(rows: pa.Table, rules: FieldRules) -> Iterator[str]:
    members = partial(pc.struct_field, rows.column("deletion_vector"))
    for name in rules.vector.required:
        if members(name).null_count:
            yield rules.required_sentence(f"deletion_vector.{name}")
    for name in rules.vector.null:
        if members(name).null_count != len(rows):
            yield rules.null_sentence(f"deletion_vector.{name}")
    yield from _too_small(members, rules.vector.least)


def _of_all(table: pa.Table) -> Iterator[str]:
    info = table.column("version_info")
    inherits: pa.ChunkedArray | None = None
    for name in NUMBERS:
        column = pc.struct_field(info, name)
        if column.null_count:
            if inherits is None:
                statuses = pa.array(map(int, INHERITING[ManifestKind.LEAF]), pa.int32())
                inherits = pc.is_in(pc.struct_field(info, "status"), value_set=statuses)
            if _any(pc.and_not(pc.is_null(column), inherits)):
                yield f"{name} {NO_NUMBER}"
        least = pc.min(column).as_py()
        if least is not None and least < 0:
            yield negative_number(name, least)
    yield from _too_small(table.column, LEAST)
    offsets = table.column("split_offsets")
    if offsets.null_count != len(table) and _descend(offsets):
        yield DESCENDING


def _too_small(column: Callable[[str], pa.ChunkedArray], rules: tuple[Least, ...]) -> Iterator[str]:
    for rule in rules:
        least = pc.min(column(rule.field)).as_py()
        if least is not None and least < rule.value:
            yield rule.sentence


def _descend(offsets: pa.ChunkedArray) -> bool:
    """Whether the numbers of some list do not ascend."""
    values, parents = pc.list_flatten(offsets), pc.list_parent_indices(offsets)
    if len(values) < 2:
        return False
    values, parents = _one(values), _one(parents)
    same = pc.equal(parents.slice(1), parents.slice(0, len(parents) - 1))
    return _any(pc.and_(same, pc.less(values.slice(1), values.slice(0, len(values) - 1))))


def _lengths(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.list_value_length(column) if pa.types.is_list(column.type) else pc.binary_length(column)


def _any(flags: pa.Array | pa.ChunkedArray) -> bool:
    return bool(pc.any(flags).as_py())


def _one(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
