"""Splitting rows by partition, and sorting them in the table's sort order.

Owns: grouping rows into partitions, their order, and the name of a partition's folder. Does not own: the transforms
(`rootline.schemas.bytes.transform_values`), writing (`data_file_writer`).
Invariants: every row is in exactly one part. All rows of a part have the same value for every member of the spec. Rows
of equal rank keep their order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.transforms import IdentityTransform, VoidTransform

from rootline.client.column_statistics import ColumnPath
from rootline.schemas.bytes.transform_values import expression_column, partition_column
from rootline.schemas.content_entry import Bound
from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import PartitionSpec, SortField, SortOrder, TableDefinition

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.\-]")
_PART_CHARS_MAX: Final = 64


Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class PartitionPart:
    """Rows of one partition. `values`: the id of a partition field's column or expression → its value, in the spec's
    order.
    """

    rows: pa.Table
    values: dict[int, Bound | None]


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """The ascending numbers of the rows of one partition, with the `values` of `PartitionPart`."""

    numbers: Numbers
    values: dict[int, Bound | None]


def split_by_partition(
    rows: pa.Table, definition: TableDefinition, spec: PartitionSpec, paths: dict[int, ColumnPath]
) -> Iterator[PartitionPart]:
    """Yield the parts of `rows` under `spec`. Without rows there are none.

    Raises:
        Invalid: `definition-invalid`, a transform is unknown or its column was dropped.
    """
    for part in rows_by_partition(rows, definition, spec, paths):
        is_all = len(part.numbers) == rows.num_rows
        yield PartitionPart(rows if is_all else rows.take(pa.array(part.numbers)), part.values)


def rows_by_partition(
    rows: pa.Table, definition: TableDefinition, spec: PartitionSpec, paths: dict[int, ColumnPath]
) -> Iterator[PartitionRows]:
    """Yield the rows of each partition, as `split_by_partition` does, without a copy of them."""
    if rows.num_rows and not spec.expr_ids:
        yield PartitionRows(np.arange(rows.num_rows), {})
    if not rows.num_rows or not spec.expr_ids:
        return
    members = [_member_values(rows, definition, member, paths) for member in spec.expr_ids]
    codes = np.zeros(rows.num_rows, dtype=np.int64)
    for values in members:
        encoded = values.dictionary_encode(null_encoding="encode")
        _, codes = np.unique(
            codes * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False), return_inverse=True
        )
    order = np.argsort(codes, kind="stable")
    bounds = np.flatnonzero(np.diff(codes[order])) + 1
    for group in sorted(np.split(order, bounds), key=lambda group: int(group[0])):
        found = {member: values[int(group[0])].as_py() for member, values in zip(spec.expr_ids, members, strict=True)}
        yield PartitionRows(group, found)


def _member_values(rows: pa.Table, definition: TableDefinition, member: int, paths: dict[int, ColumnPath]) -> pa.Array:
    expression = definition.expressions_by_id.get(member)
    if expression is not None and isinstance(expression.parsed, VoidTransform):
        return pa.nulls(rows.num_rows, pa.int32())  # null of any type, and its column may have been dropped
    source_ids = (member,) if expression is None else expression.source_ids
    for source_id in source_ids:
        if source_id not in paths:
            reason = f"partition member {member} uses column id {source_id}, which was dropped"
            raise Invalid("definition-invalid", reason)
    sources = [paths[source_id] for source_id in source_ids]
    if expression is None:
        return partition_column(IdentityTransform(), sources[0].type, sources[0].of(rows))
    types, columns = [source.type for source in sources], [source.of(rows) for source in sources]
    return expression_column(expression.transform, expression.parsed, types, columns)


@dataclass(frozen=True, slots=True)
class SortKeys:
    """The sort keys of rows: a table of key columns, and the direction of each."""

    columns: pa.Table
    directions: tuple[tuple[str, str], ...]

    def order(self) -> pa.Array:
        """The row numbers in sorted order. Rows of equal rank keep their order. Raises `ArrowNotImplementedError` for a
        type that Arrow cannot sort.
        """
        return pc.sort_indices(self.columns, sort_keys=list(self.directions))

    def are_in_order(self) -> bool:
        """Whether the rows are in this order already. Raises `ArrowNotImplementedError` as `order`."""
        is_equal: pa.Scalar | pa.Array = pa.scalar(True)
        for name, direction in self.directions:
            values = self.columns.column(name).combine_chunks()
            pair = (values[:-1], values[1:])
            before, after = pair if direction == "ascending" else pair[::-1]
            if pc.any(pc.and_(is_equal, pc.fill_null(pc.greater(before, after), False))).as_py():
                return False
            is_equal = pc.and_(is_equal, pc.fill_null(pc.equal(before, after), True))  # nulls have a key before theirs
        return True


def sort_keys(rows: pa.Table, fields: Sequence[SortField], paths: dict[int, ColumnPath]) -> SortKeys | None:
    """The sort keys of `rows` under the fields of a sort order, or `None` if their values cannot be computed."""
    keys: dict[str, pa.Array] = {}
    directions: list[tuple[str, str]] = []
    for index, field in enumerate(fields):
        path = paths.get(field.source_id)
        if path is None:
            return None
        try:
            values = partition_column(field.parsed, path.type, path.of(rows))
        except (Invalid, ValueError):
            return None
        nulls_last = field.null_order == "nulls-last"
        keys[f"null_{index}"] = pc.cast(values.is_null(), pa.int8())
        keys[f"value_{index}"] = _in_total_order(values)
        directions.append((f"null_{index}", "ascending" if nulls_last else "descending"))
        directions.append((f"value_{index}", "descending" if field.direction == "desc" else "ascending"))
    return SortKeys(pa.table(keys), tuple(directions))


def sorted_rows(rows: pa.Table, order: SortOrder, paths: dict[int, ColumnPath]) -> pa.Table | None:
    """`rows` in the sort order, or `None` if Arrow cannot sort by it."""
    keys = sort_keys(rows, order.fields, paths)
    if keys is None:
        return None
    try:
        return rows.take(keys.order())
    except pa.ArrowNotImplementedError:
        return None


def are_sorted(pieces: Iterable[pa.Table], order: SortOrder, paths: dict[int, ColumnPath]) -> bool:
    """Whether the rows of `pieces`, which follow each other, are in the sort order. Not if Arrow cannot sort by it."""
    last: list[pa.Table] = []
    for piece in pieces:
        keys = sort_keys(pa.concat_tables([*last, piece]), order.fields, paths)
        try:
            if keys is None or not keys.are_in_order():
                return False
        except pa.ArrowNotImplementedError:
            return False
        last = [piece[-1:]]
    return True


def _in_total_order(values: pa.Array) -> pa.Array:
    """Floats as integers in the specification's order: -0 before 0, NaN last. Other values are unchanged."""
    if not pa.types.is_floating(values.type):
        return values
    wide = pc.fill_null(values, 0.0).cast(pa.float64()).to_numpy(zero_copy_only=False).view(np.int64)
    return pa.array(np.where(wide < 0, wide ^ np.iinfo(np.int64).max, wide))


def partition_folder(definition: TableDefinition, values: dict[int, Bound | None]) -> str:
    """A readable folder name such as `carrier=UA/month=2013-01/`, never parsed. Empty for an unpartitioned table."""
    return "".join(f"{_folder_part(definition, member, value)}/" for member, value in values.items())


def _folder_part(definition: TableDefinition, member: int, value: Bound | None) -> str:
    tracked = definition.tracked_by_id.get(member)
    source_id, transform = definition.transform_of(member)
    source = definition.tracked_by_id.get(source_id)
    text: Any = value
    if source is not None:
        try:
            text = transform.to_human_string(source.type, value)
        except (ValueError, TypeError, OverflowError):
            text = value
    name = str(member) if tracked is None else tracked.name
    return f"{_UNSAFE.sub('_', name)[:_PART_CHARS_MAX]}={_UNSAFE.sub('_', str(text))[:_PART_CHARS_MAX]}"
