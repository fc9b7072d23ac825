"""The rows that equality deletes delete, as a set that columns of a data file are looked up in.

Owns: the set and the lookup. Does not own: reading delete files (`delete_file_reader`), which of them apply to a data
file (`rootline.tree.scan.delete_index`).
Invariants: null equals null, NaN equals NaN, -0.0 equals 0.0; a row is in the set exactly if one deleted row equals it
in every column; memory grows with the deleted rows, never with the data that is looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import NestedField, StructType

from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.rows.arrow_types import storage_of

Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class EqualityKeys:
    """Distinct deleted rows: `ids` are the equality columns, ascending.

    `values[0]` are the distinct values of the first column. `values[n]` those of column n, and `pairs[n - 1]` the
    distinct combinations that the columns up to n have, each the number of the combination before times the number of
    values, plus the value's.
    """

    ids: tuple[int, ...]
    values: tuple[pa.Array, ...]
    pairs: tuple[pa.Array, ...]

    @staticmethod
    def of(ids: tuple[int, ...], columns: Sequence[pa.Array]) -> EqualityKeys:
        """The rows that `columns` hold, one column for each of `ids`."""
        plain = [_comparable(column) for column in columns]
        values = tuple(pc.unique(column) for column in plain)
        codes, pairs = _code(plain[0], values[0]), []
        for column, known in zip(plain[1:], values[1:], strict=True):
            combined = _combined(codes, column, known)
            pairs.append(pc.unique(combined))
            codes = _code(combined, pairs[-1])
        return EqualityKeys(ids, values, tuple(pairs))

    def __len__(self) -> int:
        """How many distinct rows, about: what a lookup costs besides the rows that are looked up."""
        return max(map(len, (*self.values, *self.pairs)))

    def holds(self, columns: Sequence[pa.Array]) -> Mask:
        """Which rows of `columns`, in the order of `ids`, are in the set; as many at once as the set is large, or more,
        so that going through the set does not cost more than going through the rows.
        """
        plain = [_comparable(column) for column in columns]
        codes = _code(plain[0], self.values[0])
        for column, known, pairs in zip(plain[1:], self.values[1:], self.pairs, strict=True):
            codes = _code(_combined(codes, column, known), pairs)
        found: Mask = codes.is_valid().to_numpy(zero_copy_only=False)
        return found


def _comparable(column: pa.Array) -> pa.Array:
    """The same values, so that equal ones are the same bits."""
    array = storage_of(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)
    if pa.types.is_floating(array.type):
        zero, nan = pa.scalar(0.0, array.type), pa.scalar(float("nan"), array.type)
        array = pc.if_else(pc.equal(array, zero), zero, array)
        array = pc.if_else(pc.is_nan(array), nan, array)
    return array


def _code(column: pa.Array, known: pa.Array) -> pa.Array:
    """The place of each value in `known`; null for values that are not there. A null is a value like any other."""
    return pc.index_in(column, value_set=known, skip_nulls=False)


def _combined(codes: pa.Array, column: pa.Array, known: pa.Array) -> pa.Array:
    """One number for a combination and the value beside it; null where either is not known."""
    count = pa.scalar(max(len(known), 1), pa.int64())
    return pc.add(pc.multiply(codes.cast(pa.int64()), count), _code(column, known).cast(pa.int64()))


def key_field(definition: TableDefinition, field_id: int) -> NestedField:
    """The column `field_id` with the structs around it and nothing else; its newest form if the table has dropped it.

    Nothing of it is required: a delete file, or a data file that is older than the column, may lack it.

    Raises:
        Invalid: `file-unreadable`, no schema of the table ever had a primitive column of this id.

    """
    for schema in (definition.schema, *reversed(definition.schemas)):
        found = _path_to(schema.as_struct(), field_id)
        if found is not None:
            return found
    raise Invalid("file-unreadable", f"equality id {field_id} is no primitive column of any schema of the table")


def _path_to(struct: StructType, field_id: int) -> NestedField | None:
    for member in struct.fields:
        kind = member.field_type
        if member.field_id == field_id and kind.is_primitive:
            return member.model_copy(update={"required": False})
        if isinstance(kind, StructType) and (inner := _path_to(kind, field_id)) is not None:
            default = member.initial_default
            return NestedField(member.field_id, member.name, StructType(inner), required=False, initial_default=default)
    return None


def innermost(array: pa.Array) -> pa.Array:
    """The primitive column at the end of a `key_field`, null where a struct around it is."""
    while pa.types.is_struct(array.type):
        array = pc.struct_field(array, 0)
    return array
