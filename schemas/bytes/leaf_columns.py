"""Steps over the Arrow columns of a leaf: chunks and masks, inheritance from the root row, the rules of shape.

Owns: the inherited snapshot id, sequence numbers and row ids of entries, the evaluation of the rules for a whole leaf
at once. Does not own: the rules and their evaluation for one entry (`entry_rules`), the columns (`leaf`,
`leaf_schema`), free row ids (`rootline.tree`).
Invariants: no entry is decoded, and values are copied only where a docstring states so. Only an ADDED entry inherits
numbers. Row ids are a running counter over entries without one, ignoring DELETED ones and manifest vectors, so they
never change. An entry's own value wins. For a leaf, the rules report exactly the faults that `entry_rules` reports for
its entries (`tests/schemas/test_rule_twins.py`). A leaf that breaks a rule is neither written nor read.

Every reader must combine a leaf with its root row first (`Leaf.of_row`). Without this step, entries in leaves that
clients wrote have no sequence numbers and row ids.
Source: format page, "Row ids", "Leaf manifest" and "Root manifest", and the Single File Commits proposal, "V4 content
entry structure".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rootline.schemas.arrow_values import ZERO, array_from, numpy_from, scalar_from
from rootline.schemas.content_entry import FILE_TYPES, ContentEntry, ContentType, Status
from rootline.schemas.entry_rules import (
    DESCENDING,
    FIELD_RULES,
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

Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
"""One flag for each entry."""


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """The values of `column` as one array, copied only if there are several chunks. After a filter there may be no
    chunk.
    """
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def picked(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """The columns of `table` with these `names`, in the form in which Parquet's reader returns them.

    A name is a column, or the path of a struct's member. Columns are in the order of their first names, and members
    in the order of the table. Names that the table lacks are ignored.
    """
    wanted: dict[int, list[list[str]]] = {}
    for name in names:
        top, *path = name.split(".")
        index = table.schema.get_field_index(top)
        if index >= 0 and _leads(table.schema.field(index).type, path):
            wanted.setdefault(index, []).append(path)
    fields: list[pa.Field] = []
    columns: list[pa.ChunkedArray] = []
    for index, paths in wanted.items():
        field, column = table.schema.field(index), table.column(index)
        if all(paths):
            kept = _kept_type(field.type, paths)
            field = field.with_type(kept)
            column = pa.chunked_array([_kept_members(chunk, kept) for chunk in column.chunks], kept)
        fields.append(field)
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=pa.schema(fields)) if columns else table.select([])


def _leads(kind: pa.DataType, path: Sequence[str]) -> bool:
    """Whether type `kind` has a member at `path`."""
    for name in path:
        index = kind.get_field_index(name) if pa.types.is_struct(kind) else -1
        if index < 0:
            return False
        kind = kind.field(index).type
    return True


def _kept_type(kind: pa.StructType, paths: Sequence[Sequence[str]]) -> pa.StructType:
    """The struct type with only the members at `paths`."""
    kept: list[pa.Field] = []
    for field in kind:
        below = [path[1:] for path in paths if path[0] == field.name]
        if below:
            kept.append(field if not all(below) else field.with_type(_kept_type(field.type, below)))
    return pa.struct(kept)


def _kept_members(column: pa.StructArray, kept: pa.StructType) -> pa.StructArray:
    if column.type == kept:
        return column
    children = [
        _kept_members(child, field.type) if pa.types.is_struct(field.type) else child
        for field in kept
        for child in [column.field(field.name)]
    ]
    mask = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(kept), mask=mask)


def mask_of(flags: pa.Array) -> Mask:
    """The flags as a NumPy array. They must not contain nulls."""
    found: Mask = numpy_from(flags)
    return found


class Inherited(NamedTuple):
    """The values that the entries of a leaf inherit from its root row. They stay the same as long as the leaf is in
    the tree.
    """

    snapshot_id: int | None
    sequence_number: int | None
    file_sequence_number: int | None
    first_row_id: int | None


def inherited_from(row: ContentEntry) -> Inherited:
    """The values that entries inherit from the root row of their leaf."""
    info = row.version_info
    return Inherited(info.snapshot_id, info.sequence_number, info.file_sequence_number, row.first_row_id)


def inherited_rows(rows: pa.Table, inherited: Inherited) -> pa.Table:
    """`rows`, flat and with one chunk for each column, with their inherited values."""
    added: pa.Array | None = None
    for name in NUMBERS:
        column, value = rows.column(name), getattr(inherited, name)
        if value is None or not column.null_count:
            continue
        if added is None:
            added = _has_status(rows, Status.ADDED)
        inherits = pc.and_(added, pc.is_null(column))
        rows = _with(rows, name, pc.if_else(inherits, scalar_from(value, pa.int64()), column))
    first = rows.column("first_row_id")
    if inherited.first_row_id is not None and first.null_count:
        counted = pc.and_not(pc.is_null(first), _has_status(rows, Status.DELETED))
        counts = pc.if_else(counted, rows.column("record_count"), ZERO)
        starts = pc.subtract(pc.add(pc.cumulative_sum(counts), scalar_from(inherited.first_row_id, pa.int64())), counts)
        rows = _with(rows, "first_row_id", pc.if_else(counted, starts, first))
    return rows


def _has_status(rows: pa.Table, status: Status) -> pa.ChunkedArray:
    column = rows.column("status")
    return pc.equal(column, scalar_from(int(status), column.type))


def may_inherit(table: pa.Table) -> bool:
    """Whether `table`, read from a leaf, has null sequence numbers or row ids, which entries inherit from the root."""
    for field in table.schema:
        column = table.column(field.name)
        if field.name == "first_row_id" and column.null_count:
            return True
        if field.name == "version_info":
            members = [pc.struct_field(column, child.name) for child in field.type if child.name in NUMBERS]
            if any(member.null_count for member in members):
                return True
    return False


def inherited_columns(table: pa.Table, rows: pa.Table) -> pa.Table:
    """`table` with its sequence numbers and first row ids replaced by those in `rows`, whose columns are flat."""
    for index, field in enumerate(table.schema):
        if field.name == "version_info":
            children = [one_chunk(rows.column(child.name)) for child in field.type]
            table = table.set_column(index, field, pa.StructArray.from_arrays(children, fields=list(field.type)))
        elif field.name == "first_row_id":
            table = table.set_column(index, field, rows.column("first_row_id"))
    return table


def _with(rows: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(name), name, column)


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
"""The columns that `column_violation` checks. `location`, the largest column, is checked by `entry_rules`."""

_ABSENT: Final = frozenset({"manifest_stats"})
"""Fields of an entry without a column in a leaf: null in every row."""


def column_violation(table: pa.Table) -> str | None:
    """The first rule that some entry breaks, as a sentence. `table` has at least `RULED_COLUMNS`, with whole
    structs.
    """
    types = table.column("content_type")
    found = pc.unique(types).to_pylist()
    for number in found:
        if number not in FILE_TYPES:
            return f"content_type {number} {ROOTS_ONLY}"
        rows = table if len(found) == 1 else table.filter(pc.equal(types, scalar_from(number, types.type)))
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
        if pc.min(_lengths(rows.column(name))).as_py() == 0:
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
                statuses = array_from(map(int, INHERITING[ManifestKind.LEAF])).cast(pa.int32())
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
    """Whether any list has numbers that do not ascend."""
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
