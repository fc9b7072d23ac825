"""Iceberg types as Arrow types: with field ids, promotions, exact casts, and defaults as columns.

Owns: the in-memory form of rows, the Arrow types that a column may be read or written from, casts without loss, the
value of a default at every depth. Does not own: types of schemas without ids (`given_schema`), the walk over nested
columns (`row_projection`), legal defaults (`rootline.tree`).
Invariants: one Arrow type for each Iceberg type. Every field carries its id under `PARQUET:field_id`, so that Parquet
files carry the ids too. A stored file is read only as its own type or by a promotion of the specification. It is never
refused because its format stores a type with another width, unit or offset size. A cast keeps the values or raises
`pa.ArrowInvalid`. A float is cast to an integer only below the size at which floats begin to skip integers. A field
absent from a struct's default has its own default, and a dropped field is omitted.

Source: the table specification, "Schemas and Data Types" and "Schema Evolution", Appendix D of the Iceberg
specification, docs/decisions/0058.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_json
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from rootline.schemas.arrow_values import array_from, values_from
from rootline.schemas.bytes.leaf_schema import SIMPLE_TYPES
from rootline.schemas.default_values import nested_default
from rootline.schemas.errors import Invalid

FIELD_ID_KEY: Final = b"PARQUET:field_id"

_SIMPLE: Final[dict[type[IcebergType], pa.DataType]] = {**SIMPLE_TYPES, UUIDType: pa.uuid(), UnknownType: pa.null()}


def arrow_schema_of(schema: Schema) -> pa.Schema:
    """The Arrow schema of a table's rows.

    Raises:
        Invalid: `definition-invalid`, a column's type has no Arrow type.
    """
    return pa.schema([arrow_field_of(field) for field in schema.fields])


def arrow_field_of(field: NestedField) -> pa.Field:
    """The Arrow field of a column. Raises the errors of `arrow_schema_of`."""
    metadata = {FIELD_ID_KEY: str(field.field_id).encode()}
    return pa.field(field.name, arrow_type_of(field.field_type), nullable=not field.required, metadata=metadata)


def arrow_type_of(field_type: IcebergType) -> pa.DataType:
    """The Arrow type of an Iceberg type. Raises the errors of `arrow_schema_of`."""
    simple = _SIMPLE.get(type(field_type))
    if simple is not None:
        return simple
    if isinstance(field_type, DecimalType):
        return pa.decimal128(field_type.precision, field_type.scale)
    if isinstance(field_type, FixedType):
        return pa.binary(len(field_type))
    if isinstance(field_type, StructType):
        return pa.struct([arrow_field_of(field) for field in field_type.fields])
    if isinstance(field_type, ListType):
        return pa.list_(arrow_field_of(field_type.element_field))
    if isinstance(field_type, MapType):
        return pa.map_(arrow_field_of(field_type.key_field), arrow_field_of(field_type.value_field))
    raise Invalid("definition-invalid", f"type {field_type} cannot be written to or read from Parquet")


def as_type(plain: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    """Cast `plain` to `arrow_type`, which may be an extension type. Raises Arrow's error if a value does not fit."""
    if isinstance(arrow_type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(arrow_type, plain.cast(arrow_type.storage_type))
    return plain.cast(arrow_type)


def repeated(one: pa.Array, length: int) -> pa.Array:
    """An array of `length` times the value of `one`, an array of length 1."""
    return one.take(array_from(np.zeros(length, dtype=np.int64)))


def nulls_of(of_type: IcebergType, length: int) -> pa.Array:
    """`length` nulls. Required members of a null struct have values, because Parquet cannot store nulls of them."""
    if not isinstance(of_type, StructType) or not of_type.fields:
        return pa.nulls(length, arrow_type_of(of_type))
    members = [nulls_of(member.field_type, length) for member in of_type.fields]
    stored = [
        without_nulls(array) if member.required else array
        for member, array in zip(of_type.fields, members, strict=True)
    ]
    fields = [arrow_field_of(member) for member in of_type.fields]
    return pa.StructArray.from_arrays(stored, fields=fields, mask=pa.repeat(True, length))


def without_nulls(array: pa.Array) -> pa.Array:
    """The same array with arbitrary values in place of its nulls."""
    if isinstance(array, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(array.type, without_nulls(array.storage))
    if pa.types.is_struct(array.type):
        if not array.type.num_fields:
            return pa.Array.from_buffers(array.type, len(array), [None])
        members = [array.field(at) for at in range(array.type.num_fields)]
        return pa.StructArray.from_arrays(members, fields=list(array.type))
    if pa.types.is_list(array.type):
        return pa.ListArray.from_arrays(array.offsets, array.values, type=array.type)
    if pa.types.is_map(array.type):
        return pa.MapArray.from_arrays(array.offsets, array.keys, array.items, type=array.type)
    return pa.Array.from_buffers(array.type, len(array), [None, *array.buffers()[1:]], 0, array.offset)


def rows_without_columns(count: int) -> pa.RecordBatch:
    """`count` rows without columns."""
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), count, [None]))


def storage_of(array: pa.Array) -> pa.Array:
    """The storage array of an extension array, for compute functions. Other arrays are unchanged."""
    return array.storage if isinstance(array, pa.ExtensionArray) else array


Accepts = Callable[[pa.DataType, PrimitiveType], bool]
"""Whether values of an Arrow type may be in a column of an Iceberg type."""
_Is = Callable[[pa.DataType], bool]
_Families = tuple[tuple[tuple[type[IcebergType], ...], tuple[_Is, ...]], ...]


def _is_local(source: pa.DataType) -> bool:
    return pa.types.is_timestamp(source) and source.tz is None


def _is_zoned(source: pa.DataType) -> bool:
    return pa.types.is_timestamp(source) and source.tz is not None


def _is_integer_of(source: pa.DataType, bits: int) -> bool:
    """Whether a signed number of `bits` bits can represent all values of `source`."""
    return bool(pa.types.is_integer(source) and source.bit_width + pa.types.is_unsigned_integer(source) <= bits)


def _fits_int(source: pa.DataType) -> bool:
    return _is_integer_of(source, 32)


def _fits_long(source: pa.DataType) -> bool:
    return _is_integer_of(source, 64)


_TEXT: Final[tuple[_Is, ...]] = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES: Final[tuple[_Is, ...]] = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
_ALIKE: Final[_Families] = (
    ((BooleanType,), (pa.types.is_boolean,)),
    ((StringType,), _TEXT),
    ((FixedType, UUIDType), (*_BYTES, pa.types.is_fixed_size_binary)),
    ((DateType,), (pa.types.is_date,)),
    ((TimeType,), (pa.types.is_time,)),
    ((TimestampType, TimestampNanoType), (_is_local,)),
    ((TimestamptzType, TimestamptzNanoType), (_is_zoned,)),
)
"""Types common to files and rows. ORC has no fixed-length bytes, so bytes may become fixed or uuid if the cast fits."""
_STORED: Final[_Families] = (
    *_ALIKE,
    ((IntegerType,), (_fits_int,)),
    ((LongType,), (_fits_long,)),
    ((FloatType,), (pa.types.is_float32,)),
    ((DoubleType,), (pa.types.is_float32, pa.types.is_float64)),
    ((BinaryType,), _BYTES),
)
_NUMBERS: Final[tuple[_Is, ...]] = (pa.types.is_integer, pa.types.is_floating)
_GIVEN: Final[_Families] = (
    *_ALIKE,
    ((IntegerType, LongType), (*_NUMBERS, pa.types.is_decimal)),
    ((FloatType, DoubleType), _NUMBERS),
    ((DecimalType,), (pa.types.is_decimal, pa.types.is_integer)),
    ((BinaryType,), (*_BYTES, pa.types.is_fixed_size_binary)),
    ((DateType,), (_is_local,)),
)


def may_promote(source: pa.DataType, wanted: PrimitiveType) -> bool:
    """Whether a stored file with values of `source` may be read as `wanted`."""
    if isinstance(wanted, DecimalType) and pa.types.is_decimal(source):
        return bool(source.scale == wanted.scale and source.precision <= wanted.precision)
    return _is_one_of(_STORED, source, wanted)


def may_cast(source: pa.DataType, wanted: PrimitiveType) -> bool:
    """Whether rows of type `source` from a writer may become `wanted`. The cast then checks each value."""
    return _is_one_of(_GIVEN, source, wanted)


def _is_one_of(families: _Families, source: pa.DataType, wanted: PrimitiveType) -> bool:
    return any(accepts(source) for types, accepting in families if isinstance(wanted, types) for accepts in accepting)


_WHOLE_UP_TO: Final = {16: 2**11, 32: 2**24, 64: 2**53}
_DECIMAL_DIGITS: Final = 76


def exactly(array: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    """Cast `array` to `arrow_type`.

    Raises `pa.ArrowInvalid` or `pa.ArrowNotImplementedError` if a value would change.
    """
    source, types = array.type, pa.types
    if types.is_floating(source) and types.is_integer(arrow_type):
        return _whole(array, arrow_type)
    if types.is_floating(source) and types.is_floating(arrow_type):
        return _unless_changed(array, array.cast(arrow_type))
    if types.is_integer(source) and types.is_decimal(arrow_type):
        return array.cast(pa.decimal256(_DECIMAL_DIGITS, arrow_type.scale)).cast(arrow_type)
    if types.is_timestamp(source) and types.is_date(arrow_type):
        return _unless_changed(array, array.cast(arrow_type))
    if types.is_float16(source):
        return exactly(array.cast(pa.float32()), arrow_type)
    return as_type(array, arrow_type)


def first_misfit(array: pa.Array, arrow_type: pa.DataType) -> int:
    """The index of the first value that `exactly` refuses. Call it only after `exactly` has refused the array."""
    low, high = 0, len(array)  # all before `low` fit, one before `high` does not fit
    while high - low > 1:
        middle = (low + high) // 2
        try:
            exactly(array.slice(low, middle - low), arrow_type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            high = middle
        else:
            low = middle
    return low


def _whole(array: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    limit = _WHOLE_UP_TO[array.type.bit_width]
    wide = array.cast(pa.float64())
    cast = wide.cast(arrow_type)
    if pc.any(pc.greater(pc.abs(wide), limit)).as_py():
        raise pa.ArrowInvalid(f"a {array.type} above {limit} may be a rounded integer")
    return cast


def _unless_changed(array: pa.Array, cast: pa.Array) -> pa.Array:
    again = cast.cast(array.type)
    same = pc.equal(array, again)
    if pa.types.is_floating(array.type):
        same = pc.or_(same, pc.and_(pc.is_nan(array), pc.is_nan(again)))
    if pc.all(same).as_py() is False:
        raise pa.ArrowInvalid(f"a {array.type} would be rounded to a {cast.type}")
    return cast


@dataclass(frozen=True, slots=True)
class DefaultColumn:
    """Defaults of columns as arrays. `default_of` returns the initial or the write default of a field, or `None`."""

    default_of: Callable[[NestedField], Any]

    def of(self, of_type: IcebergType, default: Any) -> pa.Array:
        """An array of length 1 with `default`, given in the form of the schema's model, as the type `of_type`.

        Raises:
            ValueError, TypeError, ArithmeticError, pa.ArrowException: it is not a value of that type.
        """
        if isinstance(of_type, StructType | ListType | MapType):
            return self._array(of_type, json.loads(nested_default(of_type, default)))
        return _primitive(of_type, default)

    def _array(self, of_type: IcebergType, value: Any) -> pa.Array:
        """An array of length 1 with `value`, given in JSON form."""
        if value is None:
            return nulls_of(of_type, 1)
        match of_type:
            case StructType() if (
                not of_type.fields
            ):  # all members were dropped: Arrow would take the length from the first one
                return pa.array([{}], arrow_type_of(of_type))
            case StructType():
                members = [self._member(member, value) for member in of_type.fields]
                return pa.StructArray.from_arrays(members, fields=[arrow_field_of(member) for member in of_type.fields])
            case ListType():
                items = self._items(of_type.element_type, value)
                return pa.ListArray.from_arrays(_bounds(value), items, type=arrow_type_of(of_type))
            case MapType():
                keys, items = value["keys"], value["values"]
                return pa.MapArray.from_arrays(
                    _bounds(keys),
                    self._items(of_type.key_type, keys),
                    self._items(of_type.value_type, items),
                    type=arrow_type_of(of_type),
                )
        return _primitive(of_type, value)

    def _member(self, member: NestedField, values: dict[str, Any]) -> pa.Array:
        key = str(member.field_id)
        if key in values:
            return self._array(member.field_type, values[key])
        own = self.default_of(member)
        if own is None and member.required:
            raise ValueError(f"{member.name} is required, and has no value")
        return nulls_of(member.field_type, 1) if own is None else self.of(member.field_type, own)

    def _items(self, of_type: IcebergType, values: list[Any]) -> pa.Array:
        arrays = [self._array(of_type, value) for value in values]
        return pa.concat_arrays(arrays) if arrays else pa.nulls(0, arrow_type_of(of_type))


def _bounds(values: list[Any]) -> pa.Array:
    return pa.array([0, len(values)], pa.int32())


def _primitive(of_type: IcebergType, default: Any) -> pa.Array:
    if not isinstance(of_type, PrimitiveType):
        raise TypeError(f"{of_type} has no values")
    value, arrow_type = from_json(of_type, default), arrow_type_of(of_type)
    plain = value.bytes if isinstance(of_type, UUIDType) and hasattr(value, "bytes") else value
    if isinstance(of_type, FloatType | DoubleType) and isinstance(plain, int):
        plain = float(plain)  # JSON's 9007199254740993 is rounded: Arrow refuses whole numbers that it must round
    storage = arrow_type.storage_type if isinstance(arrow_type, pa.BaseExtensionType) else arrow_type
    return as_type(values_from([plain], storage), arrow_type)
