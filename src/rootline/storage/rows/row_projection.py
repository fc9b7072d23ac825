"""Rows of one shape as rows of a table's schema: columns found, filled and cast, at every depth.

Owns: the walk over structs, lists and maps, matching columns by field id or through the name mapping, maps in the form
of other libraries. Does not own: the legal casts and their values (`arrow_types`).
Invariants: no value changes: only widenings and exact casts are done. A null in a required column is an error that
names the column. A file with ids is matched by ids alone, so a rename never changes a column's content, and a column
that was dropped and added under the same name is a different one. Entries of maps stay in order. A null member of a
struct is not an entry of the map.

Source: docs/decisions/0058.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError
from pyiceberg.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
)

from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import NAME_MAPPING_PROPERTY
from rootline.storage.rows.arrow_types import (
    FIELD_ID_KEY,
    Accepts,
    DefaultColumn,
    arrow_field_of,
    arrow_type_of,
    as_type,
    exactly,
    first_misfit,
    may_promote,
    nulls_of,
    repeated,
    rows_without_columns,
    storage_of,
    without_nulls,
)

if TYPE_CHECKING:
    from pyiceberg.table.name_mapping import MappedField, NameMapping

_PAIR = ("key", "value")


def is_list_of_pairs(arrow: pa.DataType) -> bool:
    """Whether `arrow` is a list of structs of `key` and `value`."""
    if not pa.types.is_list(arrow):
        return False
    pair = arrow.value_type
    return bool(pa.types.is_struct(pair)) and tuple(pair.field(at).name for at in range(pair.num_fields)) == _PAIR


def pairs_as_map(array: pa.ListArray) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Offsets (null for a row without a map), keys and values of a list of pairs."""
    entries = array.flatten()
    keys, values = entries.flatten()
    lengths = np.asarray(array.value_lengths().fill_null(0), dtype=np.int64)
    return _offsets(lengths, array), keys, values


def struct_as_map(
    array: pa.StructArray, names: Sequence[str], members: Sequence[pa.Array], value_type: pa.DataType
) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Offsets, keys and values of a struct, whose `members` are of `value_type` and null if the struct is null."""
    rows, width = len(array), len(members)
    if not width:
        return _offsets(np.zeros(rows, dtype=np.int64), array), pa.array([], pa.string()), pa.nulls(0, value_type)
    present = np.stack([member.is_valid().to_numpy(zero_copy_only=False) for member in members], axis=1)
    row, member = np.nonzero(present)  # ordered by row, then by member
    values = pa.concat_arrays(members).take(pa.array(member * rows + row))
    return _offsets(present.sum(axis=1), array), pa.array(list(names), pa.string()).take(pa.array(member)), values


def _offsets(lengths: np.ndarray[tuple[int], np.dtype[np.int64]], array: pa.Array) -> pa.Array:
    ends = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
    missing = np.concatenate([array.is_null().to_numpy(zero_copy_only=False), np.zeros(1, dtype=np.bool_)])
    return pa.array(ends, pa.int32(), mask=missing)


FindField = Callable[[Sequence[pa.Field]], Callable[[NestedField], int | None]]
"""Finds the index of a wanted field. The given fields of one level are indexed once for all wanted ones."""


def initial_default(field: NestedField) -> Any:
    """The value of rows that were written before the column existed."""
    return field.initial_default


def write_default(field: NestedField) -> Any:
    """The value of rows that are written without the column."""
    return field.write_default


@dataclass(frozen=True, slots=True)
class RowProjection:
    """The conversion of rows to columns of the table's schema.

    * `code`: the error code of rows that do not fit. `subject`: the beginning of messages.
    * `constant_of`: returns the value of a column that the rows lack, or `None` if the column's default applies.
    * `accepts`: whether a column may be read from an Arrow type, by default the rule for stored files.
    * `first_row`: the number of the first row in messages.
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
        """Convert `rows` to the columns `fields`, in this order.

        Raises:
            Invalid: `self.code`. The message names the column.
        """
        arrays, find = rows.columns, self.find(list(rows.schema))
        found = [self._member(arrays, find, field, "", rows.num_rows, None, self.first_row) for field in fields]
        schema = pa.schema([arrow_field_of(field) for field in fields])
        if not found:
            return rows_without_columns(rows.num_rows)
        return pa.RecordBatch.from_arrays(found, schema=schema)

    def as_values(self, array: pa.Array, wanted: IcebergType, name: str, row: int | None) -> pa.Array:
        """Convert `array` to the type `wanted`. Raises the errors of `columns`.

        `row`: the number of the first value's row, or `None` if values and rows do not correspond.
        """
        return self._array(array, wanted, name, row)

    def default_value(self, wanted: NestedField, name: str) -> pa.Array:
        """The value of rows that lack the column `wanted`, as an array of length 1. Raises the errors of `columns`."""
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
            array = without_nulls(array)  # these nulls have null parents, and Parquet cannot store them
        return array

    def _absent(self, wanted: NestedField, name: str, length: int) -> pa.Array:
        constant = None if self.constant_of is None else self.constant_of(wanted)
        if constant is not None:
            return repeated(constant, length)
        default = self.default_of(wanted)
        if default is None:
            if wanted.required and length:
                raise self._error(name, "is required, but missing")
            return nulls_of(wanted.field_type, length)
        try:
            return repeated(DefaultColumn(self.default_of).of(wanted.field_type, default), length)
        except (pa.ArrowException, TypeError, ValueError, ArithmeticError, LookupError) as error:
            reason = (
                f"has the default {default!r:.80}, not a value of {wanted.field_type}; give the column in every row"
            )
            raise self._error(name, reason) from error

    def _array(self, array: pa.Array, wanted: IcebergType, name: str, row: int | None) -> pa.Array:
        """Convert `array` to `wanted`. `row`: see `as_values`."""
        array = _plain(array)
        if isinstance(wanted, PrimitiveType):
            return self._primitive(array, wanted, name, row)
        if pa.types.is_null(array.type):
            return nulls_of(wanted, len(array))
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
        if not fields:  # all members were dropped: Arrow would take the length from the first one
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
        offsets, mask, own = _members_of(array)
        values = self._array(array.values[own], wanted.element_type, f"{name}.element", None)
        if wanted.element_required and array.flatten().null_count:
            raise self._error(f"{name}.element", "is required, but some rows have none")
        return pa.ListArray.from_arrays(offsets, values, type=arrow_type_of(wanted), mask=mask)

    def _map(self, array: pa.MapArray, wanted: MapType, name: str) -> pa.Array:
        offsets, mask, own = _members_of(array)
        keys = self._array(array.keys[own], wanted.key_type, f"{name}.key", None)
        items = self._array(array.items[own], wanted.value_type, f"{name}.value", None)
        if wanted.value_required and items.null_count:
            raise self._error(f"{name}.value", "is required, but some rows have none")
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
    """The same values without encodings that tables do not use, such as dictionaries."""
    if isinstance(array, pa.DictionaryArray):
        return _without_views(array).dictionary_decode()
    if isinstance(array, pa.RunEndEncodedArray):
        return pc.run_end_decode(array)
    kind = array.type
    if _is_list_view(kind):  # Arrow's cast makes a buffer that is too short for the last offset
        lengths = pc.fill_null(pc.list_value_length(array), 0)
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])
        return pa.ListArray.from_arrays(
            offsets,
            array.flatten(),
            type=pa.list_(kind.value_field),
            mask=array.is_null() if array.null_count else None,
        )
    if pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind):
        return array.cast(pa.list_(kind.value_field))
    return array


def _without_views(array: pa.DictionaryArray) -> pa.DictionaryArray:
    """The same array with plain strings in its dictionary, because Arrow cannot decode dictionaries of views."""
    for is_view, plain in ((pa.types.is_string_view, pa.large_string()), (pa.types.is_binary_view, pa.large_binary())):
        if is_view(array.type.value_type):
            return pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(plain))
    return array


def _is_list_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def _shown(value: pa.Scalar) -> str:
    try:
        return f"{value.as_py()!r:.80}"
    except (ValueError, OverflowError):  # a moment outside of Python's range
        return str(value.cast(pa.int64()))


def _mismatch(found: pa.DataType, wanted: PrimitiveType, accepts: Accepts) -> str:
    if accepts is may_promote:
        return f"is a {wanted}, not {found}, and there is no such promotion; rewrite the file with the table's type"
    return f"is a {wanted}, not {found}; cast it first"


def _members_of(array: pa.ListArray | pa.MapArray) -> tuple[pa.Array, pa.Array | None, slice]:
    """The offsets, from 0 on, the nulls, and the range of the members. Rows of a slice share members with others, and
    each slice would convert all of them.
    """
    if not len(array):  # its one offset may be any number
        return pa.array([0], pa.int32()), None, slice(0, 0)
    offsets, mask = array.offsets, array.is_null() if array.null_count else None
    start, end = offsets[0].as_py(), offsets[-1].as_py()
    if start or mask is not None:  # a mask needs a separate offsets buffer
        offsets = pa.array(offsets.to_numpy(zero_copy_only=False) - start, pa.int32())
    return offsets, mask, slice(start, end)


K = TypeVar("K")
_ORC_ID_KEY: Final = b"iceberg.id"


def has_field_ids(schema: pa.Schema) -> bool:
    """Whether any column of a file carries a field id."""
    return any(_carries_id(schema.field(at)) for at in range(len(schema.names)))


def _carries_id(field: pa.Field) -> bool:
    if field_id_of(field) is not None:
        return True
    arrow = field.type
    return pa.types.is_nested(arrow) and any(_carries_id(arrow.field(at)) for at in range(arrow.num_fields))


def field_id_of(field: pa.Field) -> int | None:
    """The field id in an Arrow field's metadata, from Parquet or ORC."""
    metadata = field.metadata or {}
    text = metadata.get(FIELD_ID_KEY, metadata.get(_ORC_ID_KEY))
    return int(text) if text is not None and int(text) >= 0 else None


def finder_for(schema: pa.Schema, properties: Mapping[str, str]) -> FindField:
    """The function that finds columns of a file with `schema`, in a table with `properties`.

    Raises:
        Invalid: `definition-invalid`, the table's name mapping cannot be read.
    """
    if has_field_ids(schema):
        return find_by_id
    text = properties.get(NAME_MAPPING_PROPERTY)
    if text is None:
        return find_by_name
    from pyiceberg.table.name_mapping import parse_mapping_from_json  # slow, and few tables have one

    try:
        mapping = parse_mapping_from_json(text)
    except (ValidationError, ValueError) as error:
        raise Invalid("definition-invalid", f"property {NAME_MAPPING_PROPERTY} cannot be read: {error}") from error
    names = _names_by_id(mapping)

    def find_by_mapping(fields: Sequence[pa.Field]) -> Callable[[NestedField], int | None]:
        places = _first_places(field.name for field in fields)

        def find(wanted: NestedField) -> int | None:
            known = names.get(wanted.field_id, ())
            return min((places[name] for name in known if name in places), default=None)

        return find

    return find_by_mapping


def find_by_id(fields: Sequence[pa.Field]) -> Callable[[NestedField], int | None]:
    """A function that returns the place of the field with the wanted field's id, or `None`."""
    places = _first_places(map(field_id_of, fields))
    return lambda wanted: places.get(wanted.field_id)


def find_by_name(fields: Sequence[pa.Field]) -> Callable[[NestedField], int | None]:
    """A function that returns the place of the field with the wanted field's name, or `None`."""
    places = _first_places(field.name for field in fields)
    return lambda wanted: places.get(wanted.name)


def _first_places(keys: Iterable[K]) -> dict[K, int]:
    found: dict[K, int] = {}
    for at, key in enumerate(keys):
        found.setdefault(key, at)
    return found


def _names_by_id(mapping: NameMapping) -> dict[int, frozenset[str]]:
    found: dict[int, frozenset[str]] = {}

    def take(fields: Sequence[MappedField]) -> None:
        for field in fields:
            if field.field_id is not None:
                found[field.field_id] = frozenset(field.names)
            take(field.fields)

    take(mapping.root)
    return found
