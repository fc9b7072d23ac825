"""Bounds of Iceberg V1 to V3 as physical values: single-value bytes, and partition values as Avro stores them.

Owns: reading them under the table's newest types, promotions included. Does not own: the statistics they belong to
(`manifest_codec`, `manifest_list_codec`), what present writers send (`generic_statistics`).
Invariants: a value that is not of its type, or is NaN where that bounds nothing, is `None`: unknown, so it never
prunes.

Source: the Iceberg specification, Appendix D (binary single-value serialization) and "Schema Evolution".
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from pyiceberg.conversions import from_bytes
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from rootline.schemas.bytes.values.bound_codec import bound_codec
from rootline.schemas.errors import Invalid
from rootline.schemas.statistics import Bound

BoundReader = Callable[[bytes], Bound | None]

_INT, _LONG, _FLOAT, _DOUBLE = (struct.Struct(form) for form in ("<i", "<q", "<f", "<d"))
_NUMBERS: Final[dict[type[PrimitiveType], dict[int, struct.Struct]]] = {
    IntegerType: {4: _INT},
    DateType: {4: _INT},
    LongType: {4: _INT, 8: _LONG},
    TimeType: {8: _LONG},
    TimestampType: {8: _LONG},
    TimestamptzType: {8: _LONG},
    FloatType: {4: _FLOAT},
    DoubleType: {4: _FLOAT, 8: _DOUBLE},
}
"""By length: the commonest bounds, read without looking at anything but their bytes."""


def bound_of_bytes(kind: PrimitiveType, data: bytes | None) -> Bound | None:
    """A bound from its single-value bytes, which may be of the type that `kind` was promoted from."""
    return None if data is None else bound_reader(kind)(data)


def bound_reader(kind: PrimitiveType) -> BoundReader:
    """What `bound_of_bytes` does with the bounds of one column, for a caller that reads many."""
    if isinstance(kind, StringType):
        return _text
    numbers = _NUMBERS.get(type(kind), {})

    def read(data: bytes) -> Bound | None:
        number = numbers.get(len(data))
        if number is None:
            return _general_bound(kind, data)
        found: int | float = number.unpack(data)[0]
        return found if found == found else None

    return read


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _general_bound(kind: PrimitiveType, data: bytes) -> Bound | None:
    try:
        return _fitting(kind, from_bytes(kind, data))
    except (ValueError, TypeError, ArithmeticError, struct.error):
        return None


def bound_of_avro(kind: PrimitiveType, value: Any) -> Bound | None:
    """A partition value from a manifest, its logical type not converted; NaN is a value like any other."""
    if isinstance(kind, DecimalType) and isinstance(value, bytes):
        unscaled = int.from_bytes(value, "big", signed=True)
        return Decimal(unscaled).scaleb(-kind.scale)
    return None if value is None else _fitting(kind, value, allow_nan=True)


def _fitting(kind: PrimitiveType, value: Any, *, allow_nan: bool = False) -> Bound | None:
    if value != value and not allow_nan:
        return None
    try:
        bound_codec(kind, allow_nan=True).encode(value)
    except (ValueError, TypeError, ArithmeticError, struct.error, Invalid):
        return None
    bound: Bound = value
    return bound
