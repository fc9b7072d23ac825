"""Columns that a file does not store: metadata such as `_file` and `_pos`, the lineage of rows, partition values.

Owns: names, ids, types and values of the metadata columns (`_file`, `_pos`, `_deleted`, `_spec_id`, `_partition`,
`_row_id`, `_last_updated_sequence_number`), and the first rule of column projection: a column that is absent from a
file has the value of its identity partition. Does not own: the choice of rows and the other rules of projection
(`data_file_reader`, `row_projection`).
Invariants: metadata columns are read only if they are named. A column of the table with the same name takes precedence.
`_file` is the location in the metadata, relative to the table's folder or absolute. The lineage stored in a rewritten
file takes precedence over the one computed from its entry. Only the partition spec of the file counts, and only
identity members of it.

Source: the Iceberg specification, "Reserved Field IDs", "Row Lineage" and "Column Projection".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BooleanType, IntegerType, LongType, NestedField, PrimitiveType, StringType, StructType

from rootline.schemas import field_ids
from rootline.schemas.arrow_values import array_from, scalar_from
from rootline.schemas.bytes.leaf_schema import arrow_type_of_bound, column_of_physical
from rootline.schemas.content_entry import Bound, ContentEntry
from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.rows.arrow_types import arrow_type_of, as_type, repeated


def constants_of(entry: ContentEntry, definition: TableDefinition) -> Callable[[NestedField], pa.Array | None]:
    """A function that returns a column's value in the file of `entry`, if its partition states it for all rows.

    The value is an array of length 1. `None`: the partition does not state it.
    """

    @cache
    def values() -> dict[int, Bound | None]:
        from rootline.tree.scan.delete_index import partition_tuple

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
    """An array of length 1 in the Arrow type of `kind`. `value`: in the form of statistics, such as days for a date."""
    array = column_of_physical([value], arrow_type_of_bound(kind) or pa.null())
    return as_type(array, arrow_type_of(kind))


FILE: Final = "_file"
POS: Final = "_pos"
DELETED: Final = "_deleted"
SPEC_ID: Final = "_spec_id"
PARTITION: Final = "_partition"
ROW_ID: Final = "_row_id"
LAST_UPDATED: Final = "_last_updated_sequence_number"
LINEAGE: Final = (ROW_ID, LAST_UPDATED)
METADATA_COLUMNS: Final = (FILE, POS, DELETED, SPEC_ID, PARTITION, ROW_ID, LAST_UPDATED)
LINEAGE_IDS: Final = frozenset((field_ids.ROW_ID_COLUMN, field_ids.LAST_UPDATED_COLUMN))
"""Ids of the metadata columns that a file may contain."""
METADATA_IDS: Final = LINEAGE_IDS | {
    field_ids.FILE_COLUMN,
    field_ids.POS_COLUMN,
    field_ids.DELETED_COLUMN,
    field_ids.SPEC_ID_COLUMN,
    field_ids.PARTITION_COLUMN,
}

_PLAIN: Final = {
    FILE: NestedField(field_ids.FILE_COLUMN, FILE, StringType(), required=True),
    POS: NestedField(field_ids.POS_COLUMN, POS, LongType(), required=True),
    DELETED: NestedField(field_ids.DELETED_COLUMN, DELETED, BooleanType(), required=True),
    SPEC_ID: NestedField(field_ids.SPEC_ID_COLUMN, SPEC_ID, IntegerType(), required=True),
    ROW_ID: NestedField(field_ids.ROW_ID_COLUMN, ROW_ID, LongType()),
    LAST_UPDATED: NestedField(field_ids.LAST_UPDATED_COLUMN, LAST_UPDATED, LongType()),
}


def may_state_lineage(definition: TableDefinition) -> bool:
    """Whether files may store the lineage of rows. They may not if the table has columns of these names."""
    return not {*LINEAGE} & {column.name for column in definition.schema.fields}


def metadata_field(name: str, definition: TableDefinition) -> NestedField | None:
    """The metadata column `name`, or `None` if there is no such column.

    `_partition` has a member for each field of each spec.
    """
    if name != PARTITION:
        return _PLAIN.get(name)
    members = dict.fromkeys(member for spec in definition.partition_specs for member in spec.expr_ids)
    fields: list[NestedField] = []
    for tracked in filter(None, map(definition.tracked_by_id.get, members)):
        is_taken = any(field.name == tracked.name for field in fields)  # for example by a dropped column
        name_of_field = f"{tracked.name}_{tracked.tracked_id}" if is_taken else tracked.name
        fields.append(NestedField(tracked.tracked_id, name_of_field, tracked.type))
    return NestedField(field_ids.PARTITION_COLUMN, PARTITION, StructType(*fields))


@dataclass(frozen=True, slots=True)
class FileColumns:
    """The metadata columns of the rows of one data file."""

    entry: ContentEntry
    definition: TableDefinition

    def column(
        self,
        field: NestedField,
        positions: np.ndarray[Any, np.dtype[np.int64]],
        deleted: np.ndarray[Any, np.dtype[np.bool_]],
    ) -> pa.Array:
        """The values of `field` for the rows at `positions` of the file. `deleted`: for each row, whether it is
        deleted.

        Raises:
            Invalid: `file-unreadable`, the file's statistics do not state its partition.
        """
        if field.field_id == field_ids.POS_COLUMN:
            return array_from(positions)
        if field.field_id == field_ids.DELETED_COLUMN:
            return array_from(deleted)
        if field.field_id == field_ids.FILE_COLUMN:
            return pa.repeat(scalar_from(self.entry.location, pa.string()), len(positions))
        if field.field_id == field_ids.SPEC_ID_COLUMN:
            return pa.repeat(scalar_from(self.entry.partition_spec_id, pa.int32()), len(positions))
        return self._partition(field, len(positions))

    def lineage(self, field: NestedField, positions: np.ndarray[Any, np.dtype[np.int64]], stored: pa.Array) -> pa.Array:
        """`_row_id` or `_last_updated_sequence_number` of the rows at `positions`. `stored` is the file's own column.

        Null if neither the file nor its entry states it.
        """
        if field.field_id == field_ids.LAST_UPDATED_COLUMN:
            return pc.coalesce(stored, scalar_from(self.entry.version_info.sequence_number, pa.int64()))
        first = self.entry.first_row_id
        return stored if first is None else pc.coalesce(stored, array_from(positions + first))

    def _partition(self, field: NestedField, length: int) -> pa.Array:
        from rootline.tree.scan.delete_index import partition_tuple

        values = partition_tuple(self.entry, self.definition)
        if values is None:
            raise Invalid("file-unreadable", f"{self.entry.location}: its statistics do not state its partition")
        members = self.definition.spec_by_id(self.entry.partition_spec_id).expr_ids
        known = dict(zip(members, values, strict=True))
        kind = arrow_type_of(field.field_type)
        assert isinstance(field.field_type, StructType)
        columns = []
        for member in field.field_type.fields:
            assert isinstance(member.field_type, PrimitiveType)
            value = one_value(known.get(member.field_id), member.field_type)
            columns.append(repeated(value, length))
        if not columns:
            return pa.array([{}] * length, kind)
        return pa.StructArray.from_arrays(columns, fields=list(kind))
