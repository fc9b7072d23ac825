"""Conversion of filter literals to exact physical values of a column's type.

Owns: the conversion, and the result for a literal that the type cannot represent.
Does not own: the filter's structure.
Invariants: A literal is never rounded, except to the floating-point precision of its column. A literal between two
values of the type becomes `Between`. A literal outside the range of the type becomes `Above` or `Below`.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from typing import Any, Final

from pyiceberg.expressions.literals import Literal, LongLiteral
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

from rootline.schemas.content_entry import Bound
from rootline.schemas.errors import Invalid

_TIMESTAMPS: Final = (TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType)
_CALENDAR: Final = (DateType, TimeType, *_TIMESTAMPS)
_DATE_ONLY: Final = re.compile(r"\d{4}-\d{2}-\d{2}\Z")
_EXACT: Final = Context(prec=400)


@dataclass(frozen=True, slots=True)
class Above:
    """The literal is greater than every value of the type."""


@dataclass(frozen=True, slots=True)
class Below:
    """The literal is less than every value of the type."""


@dataclass(frozen=True, slots=True)
class Between:
    """The literal lies between two neighbouring values of the type."""

    below: Bound
    above: Bound


def exact_value(literal: Literal[Any], field_type: PrimitiveType, *, column: str) -> Bound | Above | Below | Between:
    """The physical value of `literal` for a column of `field_type`.

    Raises:
        Invalid: `filter-invalid`, the literal is of another kind; the message names `column`.

    """
    raw = literal.value
    if isinstance(literal, LongLiteral) and isinstance(field_type, _CALENDAR):
        # a number would count days or microseconds, never what a user means by 20240131
        example = "'12:30:00'" if isinstance(field_type, TimeType) else "'2024-01-31'"
        raise Invalid(
            "filter-invalid",
            f"column {column} is a {field_type}, and {raw} is a number: write a string, as in {example}",
        )
    if isinstance(raw, bool | int | float) and isinstance(field_type, StringType):
        raise Invalid(
            "filter-invalid", f"column {column} is a string, and {raw!r} is not: write it in single quotes, '{raw}'"
        )
    try:
        value = _converted(literal, raw, field_type)
    except (ValueError, TypeError, ArithmeticError, NotImplementedError) as error:
        raise Invalid("filter-invalid", f"column {column} is a {field_type}; {raw!r} does not fit: {error}") from error
    if value is None:
        raise Invalid("filter-invalid", f"column {column} is a {field_type} and cannot be compared with {raw!r}")
    return value


def _converted(literal: Literal[Any], raw: Any, field_type: PrimitiveType) -> Bound | Above | Below | Between | None:
    if isinstance(field_type, IntegerType | LongType):
        bits = 31 if isinstance(field_type, IntegerType) else 63
        if type(raw) is int and -(2**bits) <= raw < 2**bits:
            return raw
        number = _number(raw)
        return None if number is None else _integer(number, bits)
    if isinstance(field_type, DecimalType):
        number = _number(raw)
        return None if number is None else _decimal(number, field_type)
    if isinstance(field_type, FloatType | DoubleType):
        number = _number(raw)
        return None if number is None else _float(float(number), field_type)
    if isinstance(field_type, _TIMESTAMPS):
        return _timestamp(literal, raw, field_type)
    if isinstance(field_type, FixedType):
        return raw if isinstance(raw, bytes) and len(raw) == len(field_type) else None
    if isinstance(field_type, BinaryType):
        return raw if isinstance(raw, bytes) else None
    converted = literal.to(field_type).value
    if isinstance(field_type, DateType) and not -(2**31) <= converted < 2**31:
        return Above() if converted > 0 else Below()
    return converted  # type: ignore[no-any-return]


def _number(raw: Any) -> Decimal | None:
    if isinstance(raw, bool) or not isinstance(raw, int | float | Decimal | str):
        return None
    try:
        return _EXACT.create_decimal(raw.strip() if isinstance(raw, str) else raw)
    except InvalidOperation:
        return None


def _integer(number: Decimal, bits: int) -> int | Above | Below | Between:
    if number.is_nan():
        raise ValueError("NaN is not an integer")
    if number >= 2**bits:
        return Above()
    if number < -(2**bits):
        return Below()
    floor = math.floor(number)
    if floor == number:
        return floor
    return Between(floor, floor + 1) if floor + 1 < 2**bits else Above()


def _decimal(number: Decimal, field_type: DecimalType) -> Decimal | Above | Below | Between:
    if number.is_nan():
        raise ValueError("NaN is not a decimal")
    greatest = Decimal((0, (9,) * field_type.precision, -field_type.scale))
    if number > greatest:
        return Above()
    if number < -greatest:
        return Below()
    step = Decimal((0, (1,), -field_type.scale))
    floor = number.quantize(step, rounding=ROUND_FLOOR, context=_EXACT)
    ceiling = number.quantize(step, rounding=ROUND_CEILING, context=_EXACT)
    return floor if floor == ceiling else Between(floor, ceiling)


def _float(number: float, field_type: PrimitiveType) -> float:
    if math.isnan(number):
        raise ValueError("compare with IS NAN")
    if isinstance(field_type, DoubleType):
        return number
    try:
        narrow: float = struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)
    return narrow


def _timestamp(literal: Literal[Any], raw: Any, field_type: PrimitiveType) -> int:
    has_zone = isinstance(field_type, TimestamptzType | TimestamptzNanoType)
    if isinstance(raw, str):
        text = raw.strip().replace(" ", "T", 1)
        if _DATE_ONLY.match(text):
            text += "T00:00:00"
        if has_zone and not re.search(r"(Z|[+-]\d{2}:\d{2})\Z", text):
            text += "+00:00"
        literal = type(literal)(re.sub(r"Z\Z", "+00:00", text))  # type: ignore[call-arg]
    micros: int = literal.to(TimestamptzType() if has_zone else TimestampType()).value
    return micros * 1000 if isinstance(field_type, TimestampNanoType | TimestamptzNanoType) else micros
