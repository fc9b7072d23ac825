"""The order of entries inside leaves, and leaves of new files made from columns.

A writer with many files publishes leaves of them instead of the files.

Owns: the sort key, the division into leaves of even size, the columns that a list of files may have, the bounds of
generic statistics as columns. Does not own: the leaf's bytes (`leaf_codec`), the choice of entries to flush
(`flush_plan`), storing leaves (the client), their proof by the coordinator (`rootline.tree.rules.leaf_rules`).
Invariants: total and deterministic: the same entries yield the same leaves in any input order. The order helps
pruning: by partition values, then by the lower bounds of the columns of the table's sort order. New entries are ADDED
without numbers and row ids, because the commit assigns those. No loop over files. If `columns_of` returns columns, they
have exactly the values that each file states. If it returns `None`, the caller reads the files one by one, which
succeeds or names the fault.

Theory. Read value by value, the statistics of a file with twenty columns take a hundred times as long as its row in
a leaf. Most bounds are numbers of a fixed length or text, in exactly the bytes that Arrow uses. A column of them
needs no loop.

Source: format page, "Leaf manifest".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, pairwise
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    FixedType,
    StringType,
    UUIDType,
)

from rootline.schemas.bytes.leaf_schema import (
    CONTENT_STATS,
    COUNT_FIELDS,
    ROW_FIELDS,
    arrow_type_of_bound,
    column_of_physical,
    leaf_schema,
    physical_column,
)
from rootline.schemas.bytes.single_values import bound_of
from rootline.schemas.content_entry import Bound, ContentEntry, ContentType, FieldStatistics, FileFormat, Status
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import DataFile
from rootline.schemas.table_definition import TableDefinition, TrackedField

__all__ = ["columns_of"]


def cluster(entries: Sequence[ContentEntry], definition: TableDefinition, spec_id: int) -> list[ContentEntry]:
    """Entries of one spec, sorted by partition values, then by lower bounds, then by age and location.

    The lower bounds are of the columns of the default sort order, or of the spec's source columns if there is none.
    """
    order = sort_ids(definition, spec_id)

    def key(entry: ContentEntry) -> tuple[Any, ...]:
        stats = entry.content_stats
        bounds = tuple(_rank(stats.get(tracked_id)) for tracked_id in order)
        offset = None if entry.deletion_vector is None else entry.deletion_vector.offset
        return (*bounds, entry.version_info.file_sequence_number or 0, entry.location, offset or 0)

    return sorted(entries, key=key)


def sort_ids(definition: TableDefinition, spec_id: int) -> tuple[int, ...]:
    """The columns and expressions by whose lower bounds a spec's entries are sorted, the most significant first."""
    spec = definition.spec_by_id(spec_id)
    columns = _sort_columns(definition) or tuple(definition.transform_of(expr_id)[0] for expr_id in spec.expr_ids)
    return (*spec.expr_ids, *(column for column in columns if column not in spec.expr_ids))


def cut(entries: Sequence[ContentEntry], entries_max: int) -> list[Sequence[ContentEntry]]:
    """Divide into runs of even size, at most `entries_max` entries, so that no small last run needs a compaction."""
    pieces = -(-len(entries) // entries_max)
    ends = [len(entries) * piece // pieces for piece in range(pieces + 1)]
    return [entries[start:end] for start, end in pairwise(ends)]


def _sort_columns(definition: TableDefinition) -> tuple[int, ...]:
    order = definition.default_sort_order
    return () if order is None else tuple(field.source_id for field in order.fields)


def _rank(statistics: FieldStatistics | None) -> tuple[int, Bound]:
    # values of one column compare with each other, but null, NaN and unknown do not, so these have separate ranks
    if statistics is None:
        return (3, 0)
    bound = statistics.lower_bound
    if bound is None:
        return (0, 0)
    return (2, 0) if bound != bound else (1, bound)


_REQUIRED: Final = ("location", "record_count", "file_size_in_bytes")
_OPTIONAL: Final = ("file_format", "sort_order_id", "key_metadata", "split_offsets", CONTENT_STATS)
_TYPES: Final = {field.name: field for field in ROW_FIELDS}
LEAF_ENTRIES: Final = 50_000
"""The target number of files in one leaf."""


def leaf_columns(files: pa.Table, definition: TableDefinition, spec_id: int) -> pa.Table:
    """Convert a list of data files of one spec to the columns of a leaf.

    Args:
        files: `location`, `record_count`, `file_size_in_bytes`, and optionally `file_format`, `sort_order_id`,
            `key_metadata`, `split_offsets`, and `content_stats`, a struct of a struct `_<id>` for each column or
            expression, with any of the members that the format page names (`lower_bound`, `upper_bound`, …).
        definition: the table's definition.
        spec_id: the partition spec of all the files.

    Raises:
        Invalid: `rows-invalid`, a column is missing, unknown, or of a type that does not fit.
    """
    for name in _REQUIRED:
        if name not in files.column_names:
            raise Invalid("rows-invalid", f"the list of files has no column {name!r}; every file needs it")
    for name in files.column_names:
        if name not in _REQUIRED and name not in _OPTIONAL:
            raise Invalid(
                "rows-invalid", f"the list of files has a column {name!r}, which files do not have; leave it out"
            )
    files = files.combine_chunks()
    tracked = _tracked_in(files, definition)
    schema = leaf_schema(tracked)
    given = {
        "content_type": pa.repeat(pa.scalar(int(ContentType.DATA), pa.int32()), len(files)),
        "file_format": pa.repeat(pa.scalar(FileFormat.PARQUET.value), len(files)),
        "version_info": _version_info(len(files), schema.field("version_info").type),
        "partition_spec_id": pa.repeat(pa.scalar(spec_id, pa.int32()), len(files)),
    }
    for name in files.column_names:
        if name != CONTENT_STATS:
            given[name] = _cast(_one(files.column(name)), _TYPES[name].type, name)
    arrays = [given.get(field.name, pa.nulls(len(files), field.type)) for field in ROW_FIELDS]
    if tracked:
        arrays.append(_statistics(_one(files.column(CONTENT_STATS)), tracked, schema.field(CONTENT_STATS).type))
    return pa.Table.from_arrays(arrays, schema=schema)


def clustered(table: pa.Table, definition: TableDefinition, spec_id: int) -> pa.Table:
    """Sort the rows of `table`, so that the bounds of each leaf are narrow. Unchanged if there are no bounds."""
    held = (
        {field.name for field in table.schema.field(CONTENT_STATS).type} if CONTENT_STATS in table.schema.names else ()
    )
    keys: dict[str, pa.Array] = {}
    for tracked_id in sort_ids(definition, spec_id):
        if f"_{tracked_id}" in held:
            bounds = pc.struct_field(_one(table.column(CONTENT_STATS)), [f"_{tracked_id}", "lower_bound"])
            keys[str(tracked_id)] = physical_column(bounds)
    if not keys:
        return table
    keys["location"] = _one(table.column("location"))
    order = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys])
    in_order = pa.array(range(len(order)), order.type)
    return table if order.equals(in_order) else table.take(order)


def cut_evenly(table: pa.Table, entries_max: int = LEAF_ENTRIES) -> Iterator[pa.Table]:
    """Divide rows into runs of even size, at most `entries_max` rows."""
    pieces = -(-len(table) // entries_max)
    for piece in range(pieces):
        start, end = (len(table) * at // pieces for at in (piece, piece + 1))
        yield table.slice(start, end - start)


def _tracked_in(files: pa.Table, definition: TableDefinition) -> list[TrackedField]:
    if CONTENT_STATS not in files.column_names:
        return []
    kind = files.schema.field(CONTENT_STATS).type
    if not pa.types.is_struct(kind):
        raise Invalid("rows-invalid", f"{CONTENT_STATS} is not a struct with a struct `_<id>` for each column")
    known = {f"_{tracked_id}": field for tracked_id, field in definition.tracked_by_id.items()}
    names = [field.name for field in kind]
    for name in names:
        if name not in known or names.count(name) > 1:
            raise Invalid("rows-invalid", f"{CONTENT_STATS}.{name}: the table has no such column, or it occurs twice")
    return sorted((known[name] for name in names), key=lambda field: field.tracked_id)


def _statistics(given: pa.StructArray, tracked: list[TrackedField], kind: pa.StructType) -> pa.StructArray:
    columns = {field.name: column for field, column in zip(given.type, given.flatten(), strict=True)}
    children = [
        _statistics_of(columns[f"_{field.tracked_id}"], kind.field(f"_{field.tracked_id}")) for field in tracked
    ]
    return pa.StructArray.from_arrays(children, fields=list(kind))


def _statistics_of(given: pa.Array, wanted: pa.Field) -> pa.StructArray:
    if not pa.types.is_struct(given.type):
        raise Invalid("rows-invalid", f"{CONTENT_STATS}.{wanted.name} is not a struct")
    members = {field.name: child for field, child in zip(given.type, given.flatten(), strict=True)}
    expected = [field.name for field in wanted.type]
    for name in members:
        if name not in expected:
            raise Invalid(
                "rows-invalid", f"{CONTENT_STATS}.{wanted.name} has no member {name!r}, only {', '.join(expected)}"
            )
    children = [
        _cast(members[field.name], field.type, f"{CONTENT_STATS}.{wanted.name}.{field.name}")
        if field.name in members
        else pa.nulls(len(given), field.type)
        for field in wanted.type
    ]
    absent = given.is_null() if given.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(wanted.type), mask=absent)


def _version_info(length: int, kind: pa.StructType) -> pa.StructArray:
    status = pa.repeat(pa.scalar(int(Status.ADDED), pa.int32()), length)
    children = [status if field.name == "status" else pa.nulls(length, field.type) for field in kind]
    return pa.StructArray.from_arrays(children, fields=list(kind))


def _cast(column: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    if column.type == kind:
        return column
    try:
        return column.cast(kind)
    except (pa.ArrowException, ValueError) as error:
        raise Invalid("rows-invalid", f"{name} of the files cannot be cast to {kind}: {error!s:.200}") from error


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


_OF_FILE: Final = (
    "location",
    "file_format",
    "record_count",
    "file_size_in_bytes",
    "sort_order_id",
    "key_metadata",
    "split_offsets",
)
_LISTED_TYPES: Final = {field.name: field.type for field in ROW_FIELDS}
_BOUNDS: Final = ("lower_bound", "lower_value", "upper_bound", "upper_value")
_MEMBERS: Final = (*_BOUNDS, *(name for name, _, _ in COUNT_FIELDS), "field_id")
_MEMBERS_OF: Final = itemgetter(*_MEMBERS)
_NOTHING: Final = (None,) * len(_MEMBERS)
"""The statistics of a column for which a file has none."""
_AS_WRITTEN: Final = (StringType, BinaryType, FixedType, UUIDType)
_VALUE_BY_VALUE: Final = (BooleanType, DecimalType)


def columns_of(files: Sequence[DataFile], definition: TableDefinition) -> pa.Table | None:
    """`files`, of one partition spec, as the columns for `leaf_columns`. `None` if they must be read one by one."""
    if any(file.content_stats is not None for file in files):
        return None
    try:
        told = list(map(vars, files))
        columns = {name: pa.array([file[name] for file in told], _LISTED_TYPES[name]) for name in _OF_FILE}
        statistics = _listed_statistics(files, definition)
    except (Invalid, pa.ArrowException, LookupError, OverflowError, TypeError, ValueError):
        return None
    return pa.table(columns if statistics is None else {**columns, CONTENT_STATS: statistics})


def _listed_statistics(files: Sequence[DataFile], definition: TableDefinition) -> pa.StructArray | None:
    # one list for a column: a tuple for each file would keep the garbage collector busy
    told: dict[int, list[Any]] = {}
    for start, file in zip(count(step=len(_MEMBERS)), files, strict=False):
        for item in file.statistics:
            said = vars(item)  # a model's own attributes take four times as long
            column = told.get(said["field_id"])
            if column is None:
                column = told[said["field_id"]] = []
            if len(column) != start:
                if len(column) > start:
                    raise Invalid("statistics-invalid", f"{file.location}: statistics of id {item.field_id} twice")
                column += _NOTHING * ((start - len(column)) // len(_MEMBERS))
            column += _MEMBERS_OF(said)
    if not told:
        return None
    ids = sorted(told)
    children = []
    for tracked_id in ids:
        column = told.pop(tracked_id)
        column += _NOTHING * (len(files) - len(column) // len(_MEMBERS))
        children.append(_of_column(column, definition.tracked_by_id[tracked_id]))
    return pa.StructArray.from_arrays(children, names=[f"_{tracked_id}" for tracked_id in ids])


def _of_column(told: list[Any], tracked: TrackedField) -> pa.StructArray:
    values = {name: told[at :: len(_MEMBERS)] for at, name in enumerate(_MEMBERS)}
    columns: dict[str, pa.Array] = {}
    if arrow_type_of_bound(tracked.type) is not None:
        for side in ("lower", "upper"):
            columns[f"{side}_bound"] = _bounds(tracked, side, values[f"{side}_bound"], values[f"{side}_value"])
    elif any(_has_values(values[name]) for name in _BOUNDS):
        raise Invalid("statistics-invalid", f"{tracked.name} has bounds, but its type allows none; leave them out")
    for name, _, kind in COUNT_FIELDS:
        columns[name] = pa.array(values[name], kind)
    absent = pa.array(values["field_id"]).is_null()
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns), mask=absent)


def _bounds(tracked: TrackedField, side: str, binary: Sequence[bytes | None], values: Sequence[Any]) -> pa.Array:
    kind: pa.DataType = arrow_type_of_bound(tracked.type)
    if isinstance(tracked.type, _VALUE_BY_VALUE) or _has_values(values):
        bounds = [bound_of(tracked, side, *each) for each in zip(binary, values, strict=True)]
        return column_of_physical(bounds, kind)
    if isinstance(tracked.type, _AS_WRITTEN):
        return pa.array(binary, pa.binary()).cast(kind)
    # numbers are little-endian in Iceberg's form, and in Arrow's wherever Arrow runs
    return pa.array(binary, pa.binary(kind.bit_width // 8)).view(kind)


def _has_values(values: Sequence[Any]) -> bool:
    return values.count(None) < len(values)
