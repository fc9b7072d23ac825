"""Partition values as the values of columns that a data file lacks.

Owns: Iceberg's first rule of column projection: a column that is absent from a file has the value of its identity
partition. Does not own: the other rules (`field_matching`: name mapping; `data_file_reader`: initial defaults).
Invariants: only the file's own spec counts, and only members that hold the column as it is; a value that the entry does
not show is no value, and leaves the column to the next rule.

Source: the Iceberg specification, "Column Projection"; files that Hive wrote have no partition columns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pyarrow as pa
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField, PrimitiveType

from rootline.schemas.bytes.leaf_schema import arrow_type_of_bound, column_of_physical
from rootline.schemas.content_entry import Bound, ContentEntry
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.rows.arrow_types import arrow_type_of, as_type
from rootline.tree.scan.partition_tuple import partition_tuple


def constants_of(entry: ContentEntry, definition: TableDefinition) -> Callable[[NestedField], pa.Array | None]:
    """Column → its one value in the file of `entry`, as an array of one; `None` when its partition does not say it."""

    @cache
    def values() -> dict[int, Bound | None]:
        members = definition.spec_by_id(entry.partition_spec_id).expr_ids
        found = partition_tuple(entry, definition) if members else None
        if found is None:
            return {}
        sources = [definition.transform_of(member) for member in members]
        return {
            source: value
            for (source, transform), value in zip(sources, found, strict=True)
            if isinstance(transform, IdentityTransform)
        }

    def constant(field: NestedField) -> pa.Array | None:
        if not isinstance(field.field_type, PrimitiveType) or field.field_id not in values():
            return None
        return one_value(values()[field.field_id], field.field_type)

    return constant


def one_value(value: Bound | None, kind: PrimitiveType) -> pa.Array:
    """An array of one: `value`, physical as in statistics, in the Arrow type of columns of type `kind`."""
    array = column_of_physical([value], arrow_type_of_bound(kind) or pa.null())
    return as_type(array, arrow_type_of(kind))
