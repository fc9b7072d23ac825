"""Whether a column's default is a value of the column's type.

Owns: the rule for every type. Does not own: the JSON form of a default (the model of a schema reads it when the
definition is read), who gets the default (`rootline.storage.rows.row_projection`).
Invariants: pure; a default that passes can be written into a column of its type without changing it.

Source: the table specification, "Default Values"; Appendix D of the Iceberg specification, "JSON single-value
serialization".
"""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Final

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
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

_SHOWN_CHARS_MAX: Final = 80
_GREATEST_FLOAT: Final = (2 - 2**-23) * 2.0**127


def default_fault(field: NestedField) -> str | None:
    """What is wrong with the defaults of `field`, as the end of a sentence about it; `None` when nothing is."""
    for kind, value in (("initial-default", field.initial_default), ("write-default", field.write_default)):
        if value is None:
            continue
        shown = f"has {kind} {value!r:.{_SHOWN_CHARS_MAX}}"
        fits = _FITS.get(type(field.field_type))
        if fits is None:
            return f"{shown}: a default of a {field.field_type} cannot be kept; leave it out"
        if not fits(field.field_type, value):
            return f"{shown}, which is no {field.field_type}"
    return None


def _is_integer(value: object, bits: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)


def _is_number(value: object, greatest: float) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return (isinstance(value, int) or math.isfinite(value)) and -greatest <= value <= greatest


def _is_decimal(of_type: IcebergType, value: object) -> bool:
    if not isinstance(of_type, DecimalType) or not isinstance(value, Decimal) or not value.is_finite():
        return False
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)  # of a finite one
    whole_digits = max(len(digits) + exponent, 0)
    return -exponent <= of_type.scale and whole_digits <= of_type.precision - of_type.scale


def _is_text(value: object) -> bool:
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


_FITS: Final[dict[type[IcebergType], Callable[[IcebergType, object], bool]]] = {
    BooleanType: lambda _, value: isinstance(value, bool),
    IntegerType: lambda _, value: _is_integer(value, 32),
    LongType: lambda _, value: _is_integer(value, 64),
    FloatType: lambda _, value: _is_number(value, _GREATEST_FLOAT),
    DoubleType: lambda _, value: _is_number(value, math.nextafter(math.inf, 0)),
    DecimalType: _is_decimal,
    DateType: lambda _, value: isinstance(value, dt.date) and not isinstance(value, dt.datetime),
    TimeType: lambda _, value: isinstance(value, dt.time) and value.tzinfo is None,
    TimestampType: lambda _, value: isinstance(value, dt.datetime) and value.tzinfo is None,
    TimestamptzType: lambda _, value: isinstance(value, dt.datetime) and value.tzinfo is not None,
    StringType: lambda _, value: _is_text(value),
    UUIDType: lambda _, value: isinstance(value, uuid.UUID),
    FixedType: lambda of_type, value: (
        isinstance(of_type, FixedType) and isinstance(value, bytes) and len(value) == len(of_type)
    ),
    BinaryType: lambda _, value: isinstance(value, bytes),
}
"""Types that a default can be of; the schema's model reads no JSON of a default of the others."""
