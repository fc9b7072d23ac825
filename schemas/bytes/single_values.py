"""Bounds in Iceberg's single-value form, as in V1 to V3 metadata and in intents that were written without this library.

Owns: single-value bytes, JSON forms and Avro partition values to physical bounds, including promotions, and physical
bounds back to the form of an intent. Does not own: the statistics around them (`manifest_codec`), the wire model
(`intent`), the rules of a file's statistics (`rootline.tree`).
Invariants: in adopted metadata, a value that is not of its type and a bound that is NaN become `None`, which means
unknown and never prunes. In an intent, a bound that does not fit its column's type raises `Invalid`, which names the id
and the value.

Source: the Iceberg specification, Appendix D (single-value serialization) and "Schema Evolution".
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final

from pyiceberg.conversions import from_bytes, to_bytes
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
    UUIDType,
)
from pyiceberg.utils.datetime import (
    date_str_to_days,
    time_str_to_micros,
    timestamp_to_micros,
    timestamp_to_nanos,
    timestamptz_to_micros,
    timestamptz_to_nanos,
)

from rootline.schemas.bytes.bound_codec import bound_codec
from rootline.schemas.bytes.entry_schema import COUNTS_ONLY, kind_of
from rootline.schemas.content_entry import Bound, ContentStats, FieldStatistics
from rootline.schemas.errors import Invalid
from rootline.schemas.intent import GenericStatistics
from rootline.schemas.table_definition import TrackedField

__all__ = ["bound_of", "from_generic", "to_generic"]

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
"""Type → length → format of the most common bounds, which are read from their bytes alone."""


def bound_of_bytes(kind: PrimitiveType, data: bytes | None) -> Bound | None:
    """A bound from its single-value bytes, which may have the type from which `kind` was promoted."""
    return None if data is None else bound_reader(kind)(data)


def bound_reader(kind: PrimitiveType) -> BoundReader:
    """The function `bound_of_bytes` with a fixed `kind`, for a caller that reads many bounds of one column."""
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
    """A partition value from a manifest, without conversion of its logical type. NaN is a normal value."""
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


_CODE: Final = "statistics-invalid"
_DECIMAL_DIGITS: Final = Context(prec=80)
_INSTANTS: Final = {
    DateType: date_str_to_days,
    TimeType: time_str_to_micros,
    TimestampType: timestamp_to_micros,
    TimestamptzType: timestamptz_to_micros,
    TimestampNanoType: timestamp_to_nanos,
    TimestamptzNanoType: timestamptz_to_nanos,
}


def from_generic(items: Sequence[GenericStatistics], tracked_by_id: Mapping[int, TrackedField]) -> ContentStats:
    """Convert generic statistics with single-value bytes to typed values: column or expression id → statistics.

    Args:
        items: at most one for each id.
        tracked_by_id: the table's columns and expressions.

    Raises:
        Invalid: `statistics-invalid`: an id that the table does not have, or a bound that is not of its type.

    """
    return {item.field_id: _field_of(item, tracked_by_id.get(item.field_id)) for item in items}


def to_generic(statistics: ContentStats, tracked_by_id: Mapping[int, TrackedField]) -> tuple[GenericStatistics, ...]:
    """The same statistics with bounds in Iceberg's binary form, by ascending id.

    Raises:
        Invalid: `statistics-invalid`: an id that the table does not have, or a bound that is not of its type.

    """
    return tuple(_generic_of(tracked_id, statistics[tracked_id], tracked_by_id) for tracked_id in sorted(statistics))


def _field_of(item: GenericStatistics, tracked: TrackedField | None) -> FieldStatistics:
    if tracked is None:
        raise Invalid(_CODE, f"statistics of id {item.field_id}: the table has no such column; omit them")
    return FieldStatistics(
        bound_of(tracked, "lower", item.lower_bound, item.lower_value),
        bound_of(tracked, "upper", item.upper_bound, item.upper_value),
        item.tight_bounds,
        item.value_count,
        item.null_value_count,
        item.nan_value_count,
        item.avg_value_size_in_bytes,
        item.max_value_size_in_bytes,
    )


def bound_of(
    tracked: TrackedField, side: str, binary: bytes | None, value: bool | int | float | str | None
) -> Bound | None:
    """The physical bound from one of the two forms. `side` is `lower` or `upper`. Raises as `from_generic`."""
    if binary is None and value is None:
        return None
    which = f"statistics of id {tracked.tracked_id} ({tracked.name}, {tracked.type})"
    if binary is not None and value is not None:
        raise Invalid(_CODE, f"{which}: {side}_bound and {side}_value exclude each other: send one of them")
    if kind_of(tracked.type) == COUNTS_ONLY:
        raise Invalid(_CODE, f"{which}: this type has no bounds")
    try:
        bound: Bound
        if binary is not None:
            bound = from_bytes(_written_type(tracked.type, binary), binary)
        elif value is not None:
            bound = _of_json(tracked.type, value)
        bound_codec(tracked.type, allow_nan=True).encode(bound)
    except (ValueError, TypeError, ArithmeticError, struct.error) as error:
        raise Invalid(_CODE, f"{which}: {side} bound: {error}") from error
    return bound


def _written_type(field_type: PrimitiveType, binary: bytes) -> PrimitiveType:
    """The type in which a bound was written. It differs from `field_type` if the column was widened after the writer
    loaded the table.
    """
    if len(binary) == 4 and isinstance(field_type, LongType | DoubleType):
        return IntegerType() if isinstance(field_type, LongType) else FloatType()
    return field_type


def _of_json(field_type: PrimitiveType, value: bool | int | float | str) -> Bound:
    """The physical value of a JSON single value. Temporal types also accept their physical number."""
    if isinstance(field_type, FloatType | DoubleType):
        return _floating(field_type, value)
    if isinstance(value, str):
        of_text = _INSTANTS.get(type(field_type))
        if of_text is not None:
            return of_text(value)
        if isinstance(field_type, DecimalType):
            return _decimal(value)
        if isinstance(field_type, UUIDType):
            return uuid.UUID(value).bytes
        if isinstance(field_type, FixedType | BinaryType):
            return bytes.fromhex(value)
    if isinstance(field_type, DecimalType) and type(value) is int:
        return Decimal(value)
    return value  # already of the type, or refused by the bound's encoder


def _floating(field_type: PrimitiveType, value: bool | int | float | str) -> float:
    if isinstance(value, bool | str):
        raise ValueError(f"{value!r:.60} is not a number")
    number = float(value)
    if number != value and number == number:
        raise ValueError(f"{value} is not exact as a floating-point number")
    if isinstance(field_type, FloatType):
        rounded: float = struct.unpack("<f", struct.pack("<f", number))[0]
        return rounded  # the column's exact value, which JSON has with fewer digits
    return number


def _decimal(value: str) -> Decimal:
    try:
        return Decimal(value)
    except InvalidOperation:
        raise ValueError(f"{value!r:.60} is not a decimal") from None


def _generic_of(
    tracked_id: int, field: FieldStatistics, tracked_by_id: Mapping[int, TrackedField]
) -> GenericStatistics:
    tracked = tracked_by_id.get(tracked_id)
    if tracked is None:
        raise Invalid(_CODE, f"statistics of id {tracked_id}: the table has no such column; omit them")
    return GenericStatistics(
        field_id=tracked_id,
        lower_bound=_binary(tracked, field.lower_bound),
        upper_bound=_binary(tracked, field.upper_bound),
        tight_bounds=field.tight_bounds,
        value_count=field.value_count,
        null_value_count=field.null_value_count,
        nan_value_count=field.nan_value_count,
        avg_value_size_in_bytes=field.avg_value_size_in_bytes,
        max_value_size_in_bytes=field.max_value_size_in_bytes,
    )


def _binary(tracked: TrackedField, bound: Bound | None) -> bytes | None:
    if bound is None:
        return None
    try:
        bound_codec(tracked.type, allow_nan=True).encode(bound)
        if isinstance(tracked.type, DecimalType) and isinstance(bound, Decimal):
            bound = bound.quantize(Decimal(1).scaleb(-tracked.type.scale), context=_DECIMAL_DIGITS)
        return to_bytes(tracked.type, bound)
    except (ValueError, TypeError, struct.error) as error:
        raise Invalid(_CODE, f"statistics of id {tracked.tracked_id} ({tracked.name}): {error}") from error
