"""Rows of one shape as rows of a table's schema: columns found, filled, cast, at every depth.

Owns: the walk over structs, lists and maps. Does not own: how a column is found (by name when writing, by field id
when reading), what may be cast to what (`type_promotion`).
Invariants: no value changes: only widenings and exact casts are done; a null in a required column is an error that
names the column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
)

from rootline.schemas.errors import Invalid
from rootline.storage.rows.arrow_types import (
    arrow_field_of,
    arrow_type_of,
    as_type,
    repeated,
    rows_without_columns,
    storage_of,
)
from rootline.storage.rows.default_column import DefaultColumn
from rootline.storage.rows.exact_cast import exactly, first_misfit
from rootline.storage.rows.given_maps import is_list_of_pairs, pairs_as_map, struct_as_map
from rootline.storage.rows.type_promotion import Accepts, may_promote

FindField = Callable[[Sequence[pa.Field]], Callable[[NestedField], int | None]]
"""Which of the given fields is a wanted one; the fields of one level are looked at once, however many are wanted."""


def initial_default(field: NestedField) -> Any:
    """What rows that were written before the column existed have in it."""
    return field.initial_default


def write_default(field: NestedField) -> Any:
    """The value of rows that are written without the column."""
    return field.write_default


@dataclass(frozen=True, slots=True)
class RowProjection:
    """How rows become rows of the schema. `code` is the error code of rows that do not fit; `subject` begins messages.

    A column that the rows lack has its one value of `constant_of`, where that is not `None`, else its default.
    `accepts`: which types may be in a column, as for stored files unless it says otherwise. `first_row`: the number
    that messages give to the first row.
    """

    find: FindField
    default_of: Callable[[NestedField], Any]
    code: str
    subject: str
    constant_of: Callable[[NestedField], pa.Array | None] | None = None
    accepts: Accepts = may_promote
    first_row: int = 0

    @property
    def _is_strict(self) -> bool:
        return self.accepts is may_promote

    def columns(self, rows: pa.RecordBatch, fields: Sequence[NestedField]) -> pa.RecordBatch:
        """`rows` as the columns `fields`, in their order.

        Raises:
            Invalid: `self.code`; the message names the column.

        """
        arrays, find = rows.columns, self.find(list(rows.schema))
        found = [self._member(arrays, find, field, "", rows.num_rows, None, self.first_row) for field in fields]
        schema = pa.schema([arrow_field_of(field) for field in fields])
        if not found:
            return rows_without_columns(rows.num_rows)
        return pa.RecordBatch.from_arrays(found, schema=schema)

    def as_values(self, array: pa.Array, wanted: IcebergType, name: str, row: int | None) -> pa.Array:
        """`array` as values of the type `wanted`. `row`: the number of the first value's row. Raises as `columns`."""
        return self._array(array, wanted, name, row)

    def default_value(self, wanted: NestedField, name: str) -> pa.Array:
        """The value of rows that lack the column `wanted`, as an array of one. Raises as `columns`."""
        return self._absent(wanted, name, 1)

    def _member(
        self,
        arrays: Sequence[pa.Array],
        find: Callable[[NestedField], int | None],
        wanted: NestedField,
        path: str,
        length: int,
        parent_is_valid: pa.Array | None,
        row: int | None,
    ) -> pa.Array:
        name = f"{path}{wanted.name}"
        at = find(wanted)
        if at is None:
            array = self._absent(wanted, name, length)
        else:
            array = self._array(arrays[at], wanted.field_type, name, row)
        if wanted.required and array.null_count:
            missing = array.is_null()
            if parent_is_valid is not None:
                missing = pc.and_(missing, parent_is_valid)
            count = pc.sum(missing).as_py() or 0
            if count:
                raise self._error(name, f"is required, but {count} of {length} rows have none")
            array = _without_nulls(array)  # they are under null parents, and Parquet has no place for them
        return array

    def _absent(self, wanted: NestedField, name: str, length: int) -> pa.Array:
        constant = None if self.constant_of is None else self.constant_of(wanted)
        if constant is not None:
            return repeated(constant, length)
        default = self.default_of(wanted)
        arrow_type = arrow_type_of(wanted.field_type)
        if default is None:
            if wanted.required and length:
                raise self._error(name, "is required, but missing")
            return pa.nulls(length, arrow_type)
        try:
            return repeated(DefaultColumn(self.default_of).of(wanted.field_type, default), length)
        except (pa.ArrowException, TypeError, ValueError, ArithmeticError, LookupError) as error:
            reason = f"has the default {default!r:.80}, which is no {wanted.field_type}; give the column in every row"
            raise self._error(name, reason) from error

    def _array(self, array: pa.Array, wanted: IcebergType, name: str, row: int | None) -> pa.Array:
        """`row` is the number of the row of the first value; `None` where values are not one to a row."""
        array = _plain(array)
        if isinstance(wanted, PrimitiveType):
            return self._primitive(array, wanted, name, row)
        if pa.types.is_null(array.type):
            return pa.nulls(len(array), arrow_type_of(wanted))
        if isinstance(wanted, StructType) and pa.types.is_struct(array.type):
            return self._struct(array, wanted, name, row)
        if isinstance(wanted, ListType) and pa.types.is_list(array.type):
            return self._list(array, wanted, name)
        if isinstance(wanted, MapType) and pa.types.is_map(array.type):
            return self._map(array, wanted, name)
        if isinstance(wanted, MapType) and not self._is_strict:
            if is_list_of_pairs(array.type):
                return self._map_of(pairs_as_map(array), wanted, name)
            if pa.types.is_struct(array.type):
                return self._map_of_struct(array, wanted, name, row)
        raise self._error(name, f"is a {wanted}, not {array.type}")

    def _struct(self, array: pa.StructArray, wanted: StructType, name: str, row: int | None) -> pa.Array:
        children, given = array.flatten(), list(array.type)
        if not self._is_strict:
            self._check_members([field.name for field in given], wanted, name)
        is_valid = array.is_valid() if array.null_count else None
        find = self.find(given)
        path, length = f"{name}.", len(array)
        members = [self._member(children, find, field, path, length, is_valid, row) for field in wanted.fields]
        mask = array.is_null() if array.null_count else None
        fields = [arrow_field_of(field) for field in wanted.fields]
        if not fields:  # all were dropped; Arrow would take the length from the first one
            validity = None if is_valid is None else is_valid.buffers()[1]
            return pa.Array.from_buffers(arrow_type_of(wanted), length, [validity])
        return pa.StructArray.from_arrays(members, fields=fields, mask=mask)

    def _check_members(self, given: Sequence[str], wanted: StructType, name: str) -> None:
        known = [field.name for field in wanted.fields]
        for member in given:
            if member not in known:
                raise self._error(name, f"has no member {member!r}, only {', '.join(known[:40])}; leave it out")
            if given.count(member) > 1:
                raise self._error(name, f"has member {member!r} more than once")

    def _list(self, array: pa.ListArray, wanted: ListType, name: str) -> pa.Array:
        values = self._array(array.values, wanted.element_type, f"{name}.element", None)
        if wanted.element_required and array.flatten().null_count:
            raise self._error(f"{name}.element", "is required, but some rows have none")
        offsets, mask = _offsets_and_mask(array)
        return pa.ListArray.from_arrays(offsets, values, type=arrow_type_of(wanted), mask=mask)

    def _map(self, array: pa.MapArray, wanted: MapType, name: str) -> pa.Array:
        keys = self._array(array.keys, wanted.key_type, f"{name}.key", None)
        items = self._array(array.items, wanted.value_type, f"{name}.value", None)
        if wanted.value_required and items.null_count:
            raise self._error(f"{name}.value", "is required, but some rows have none")
        offsets, mask = _offsets_and_mask(array)
        return pa.MapArray.from_arrays(offsets, keys, items, type=arrow_type_of(wanted), mask=mask)

    def _map_of(self, parts: tuple[pa.Array, pa.Array, pa.Array], wanted: MapType, name: str) -> pa.Array:
        offsets, keys, items = parts
        if keys.null_count:
            raise self._error(f"{name}.key", "is null in some rows; give every entry of a map a key")
        keys = self._array(keys, wanted.key_type, f"{name}.key", None)
        items = self._array(items, wanted.value_type, f"{name}.value", None)
        if wanted.value_required and items.null_count:
            raise self._error(f"{name}.value", "is required, but some rows have none")
        return pa.MapArray.from_arrays(offsets, keys, items, type=arrow_type_of(wanted))

    def _map_of_struct(self, array: pa.StructArray, wanted: MapType, name: str, row: int | None) -> pa.Array:
        names = [field.name for field in array.type]
        members = [
            self._array(member, wanted.value_type, f"{name}.{key}", row)
            for key, member in zip(names, array.flatten(), strict=True)
        ]
        return self._map_of(struct_as_map(array, names, members, arrow_type_of(wanted.value_type)), wanted, name)

    def _primitive(self, array: pa.Array, wanted: PrimitiveType, name: str, row: int | None) -> pa.Array:
        arrow_type = arrow_type_of(wanted)
        if array.type == arrow_type:
            return array
        plain = storage_of(array)
        if pa.types.is_null(plain.type):
            return pa.nulls(len(array), arrow_type)
        if not self.accepts(plain.type, wanted):
            raise self._error(name, _mismatch(array.type, wanted, self.accepts))
        try:
            return as_type(plain, arrow_type) if self._is_strict else exactly(plain, arrow_type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            if self._is_strict:
                reason = f"is a {wanted}, and a value of {array.type} does not fit: {error}"
            else:
                at = first_misfit(plain, arrow_type)
                where = "a value" if row is None else f"row {row + at} (the first is 0)"
                reason = f"is a {wanted}, and {where} is {_shown(plain[at])}, which does not fit; convert the column"
            raise self._error(name, reason) from error

    def _error(self, name: str, reason: str) -> Invalid:
        return Invalid(self.code, f"{self.subject}: column {name} {reason}")


def _plain(array: pa.Array) -> pa.Array:
    """The same values without an encoding that the table does not have."""
    if isinstance(array, pa.DictionaryArray):
        return _without_views(array).dictionary_decode()
    if isinstance(array, pa.RunEndEncodedArray):
        return pc.run_end_decode(array)
    kind = array.type
    if pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind) or _is_list_view(kind):
        return array.cast(pa.list_(kind.value_field))
    return array


def _without_views(array: pa.DictionaryArray) -> pa.DictionaryArray:
    """The same array with a dictionary that Arrow can decode: it takes no values from one of views."""
    for is_view, plain in ((pa.types.is_string_view, pa.large_string()), (pa.types.is_binary_view, pa.large_binary())):
        if is_view(array.type.value_type):
            return pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(plain))
    return array


def _is_list_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def _shown(value: pa.Scalar) -> str:
    try:
        return f"{value.as_py()!r:.80}"
    except (ValueError, OverflowError):  # a moment that Python has no value for
        return str(value.cast(pa.int64()))


def _mismatch(found: pa.DataType, wanted: PrimitiveType, accepts: Accepts) -> str:
    if accepts is may_promote:
        return f"is a {wanted}, not {found}, and no promotion leads there; write the file again with the table's type"
    return f"is a {wanted}, not {found}; cast it first"


def _without_nulls(array: pa.Array) -> pa.Array:
    """The same array with something arbitrary in place of its nulls."""
    if isinstance(array, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(array.type, _without_nulls(array.storage))
    if pa.types.is_struct(array.type):
        members = [array.field(at) for at in range(array.type.num_fields)]
        return pa.StructArray.from_arrays(members, fields=list(array.type))
    if pa.types.is_list(array.type):
        return pa.ListArray.from_arrays(array.offsets, array.values, type=array.type)
    if pa.types.is_map(array.type):
        return pa.MapArray.from_arrays(array.offsets, array.keys, array.items, type=array.type)
    return pa.Array.from_buffers(array.type, len(array), [None, *array.buffers()[1:]], 0, array.offset)


def _offsets_and_mask(array: pa.ListArray | pa.MapArray) -> tuple[pa.Array, pa.Array | None]:
    if not array.null_count:
        return array.offsets, None
    copied = pa.array(array.offsets.to_numpy(zero_copy_only=False), pa.int32())  # a mask wants offsets of their own
    return copied, array.is_null()
