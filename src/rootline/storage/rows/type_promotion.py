"""Which Arrow types may be in a column of an Iceberg type: strictly for stored files, leniently for writers' rows.

Owns: both tables. Does not own: the cast of the values, which refuses what does not fit exactly (`exact_cast`).
Invariants: pure; a stored file is read only as its own type or by a promotion of the specification, however well its
values would fit; a stored file is never refused for how its format lays out a type (width, unit, offsets).

Source: the table specification, "Schemas and Data Types" and "Schema Evolution"; docs/decisions/0050.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa
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
    LongType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

Accepts = Callable[[pa.DataType, PrimitiveType], bool]
"""Whether values of an Arrow type may be in a column of an Iceberg type."""
_Is = Callable[[pa.DataType], bool]
_Families = tuple[tuple[tuple[type[IcebergType], ...], tuple[_Is, ...]], ...]


def _is_local(source: pa.DataType) -> bool:
    return pa.types.is_timestamp(source) and source.tz is None


def _is_zoned(source: pa.DataType) -> bool:
    return pa.types.is_timestamp(source) and source.tz is not None


def _is_integer_of(source: pa.DataType, bits: int) -> bool:
    """Whether a signed number of `bits` bits holds all values of `source`."""
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
"""Alike for files and for rows. ORC has bytes of any length only, so they may be fixed or uuid; the cast checks it."""
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
    """Whether rows that a writer gives as `source` may become `wanted`; the cast itself checks each value."""
    return _is_one_of(_GIVEN, source, wanted)


def _is_one_of(families: _Families, source: pa.DataType, wanted: PrimitiveType) -> bool:
    return any(accepts(source) for types, accepting in families if isinstance(wanted, types) for accepts in accepting)
