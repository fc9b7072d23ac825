"""A column's default as a user gives it, made a value that the definition keeps unchanged.

Owns: what may be given for a type. Does not own: what a definition can keep (`default_rules`, `added_rules`).
Invariants: a default is stored as the value that was given, or refused; text stands for a value of another type where
it is a plain spelling of it, as on a command line.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa
from pyiceberg.conversions import from_json
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from rootline.schemas.errors import Invalid
from rootline.tree.proof.added_rules import NESTED_DEFAULT
from rootline.tree.proof.default_rules import default_fault

_CODE: Final = "evolution-illegal"
_ALL_DIGITS: Final = Context(prec=80)
"""Python's own context has 28 digits, a column has up to 38."""
_SPELLED: Final[dict[type[IcebergType], Callable[[Any, str], Any]]] = {
    IntegerType: lambda _, text: int(text),
    LongType: lambda _, text: int(text),
    FloatType: lambda _, text: float(text),
    DoubleType: lambda _, text: float(text),
    DateType: from_json,
    TimeType: from_json,
    TimestampType: from_json,
    TimestamptzType: from_json,
    UUIDType: from_json,
}
"""Types of which a default may be given as text, as the specification spells them in JSON."""


def default_value(name: str, of_type: IcebergType, given: Any) -> Any:
    """`given` as a default of a column of that type. `None` means no default.

    A float is rounded to the 32 bits that rows have, so that it stays what it is when the column becomes a double.

    Raises:
        Invalid: `evolution-illegal`, it is no such value, or cannot be kept without a change; `definition-invalid`, the
            column is a struct, list or map.

    """
    if given is None:
        return None
    if not isinstance(of_type, PrimitiveType):
        raise Invalid("definition-invalid", f"column {name!r} has default {given!r:.80}, and {NESTED_DEFAULT}")
    value = _value(of_type, given)
    if isinstance(value, float) and not math.isfinite(value):
        raise Invalid(_CODE, f"column {name!r}: default {given!r:.80} is not finite, and such a one cannot be kept")
    field = NestedField.model_construct(  # as it is given: validation would convert it
        field_id=1, name=name, field_type=of_type, required=False, initial_default=value, write_default=None
    )
    fault = f"has default {given!r:.80}, which is no {of_type}" if value is None else default_fault(field)
    if fault is not None:
        raise Invalid(_CODE, f"column {name!r} {fault.replace('initial-default', 'default')}")
    if isinstance(of_type, FloatType):
        return pa.scalar(float(value), pa.float32()).as_py()
    return value


def _value(of_type: IcebergType, given: Any) -> Any:
    """`None` where it is no value of that type; what is left to check is `default_fault`'s."""
    if isinstance(of_type, DecimalType) and isinstance(given, int | str | Decimal) and not isinstance(given, bool):
        return _decimal(of_type, given)
    read = _SPELLED.get(type(of_type)) if isinstance(given, str) else None
    if read is not None:
        try:
            return read(of_type, given)
        except (ValueError, TypeError, ArithmeticError):
            return None
    if isinstance(of_type, FloatType | DoubleType) and isinstance(given, int) and not isinstance(given, bool):
        return float(given) if abs(given) <= 2**53 else None
    return given


def _decimal(of_type: DecimalType, given: int | str | Decimal) -> Decimal | None:
    try:
        exact = Decimal(given)
        value = exact.quantize(Decimal(1).scaleb(-of_type.scale), context=_ALL_DIGITS)
    except (InvalidOperation, ValueError):
        return None
    return value if value == exact else None
