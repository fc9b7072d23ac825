"""Values of partition transforms and of expressions, in physical values.

Owns: applying transforms and functions to one value and to a whole column, over one or several columns. Does not own:
parsing transforms and their result types (pyiceberg, `table_definition`), filters over them (`rootline.tree`).
Invariants: a single value and a column of it yield the same result. Null in any column yields null. Every date and
timestamp that can be stored has a result, including years outside 1..9999. The scale of a decimal is that of its type,
however it was written.

Source: the Iceberg specification, "Partition Transforms" and Appendix B (bucket hashes), docs/decisions/0028.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from functools import lru_cache, reduce
from operator import xor
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    DateType,
    DecimalType,
    PrimitiveType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
)

from rootline.schemas.bytes.leaf_schema import arrow_type_of_bound, physical_column
from rootline.schemas.content_entry import Bound
from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import Function, function_of

_EXACT: Final = Context(prec=80)
_HOURS_A_DAY: Final = 24
_UNITS_AN_HOUR: Final[dict[type[PrimitiveType], int]] = {
    TimestampType: 3_600_000_000,
    TimestamptzType: 3_600_000_000,
    TimestampNanoType: 3_600_000_000_000,
    TimestamptzNanoType: 3_600_000_000_000,
}


def partition_value(
    transform: Transform[Any, Any], source_type: PrimitiveType, physical_value: Bound | None
) -> Bound | None:
    """The result of `transform` for one value of a column of `source_type`. Null stays null. `void` always yields
    null.

    Raises:
        Invalid: `definition-invalid`, the transform is unknown, or does not support the type.
    """
    function = _function_of(transform, source_type)
    return None if physical_value is None else function(physical_value)


def partition_column(
    transform: Transform[Any, Any], source_type: PrimitiveType, column: pa.Array | pa.ChunkedArray
) -> pa.Array:
    """The physical values of `transform` for a whole column with the Arrow type of data files.

    Dates, times and timestamps become integers. Arguments and `Raises` as `partition_value`, and:

    Raises:
        Invalid: `rows-invalid`, a value near the minimum of its type has no result of the transform.
    """
    function = _function_of(transform, source_type)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    values = physical_column(column.cast(arrow_type_of_bound(source_type)))
    if isinstance(transform, IdentityTransform):
        return values
    units = _units_of(transform, source_type)
    if units is not None:
        values = _floor_divide(values, units)
        if isinstance(transform, DayTransform | HourTransform):
            return pc.cast(values, pa.int32())
        function = _CALENDAR[type(transform)]
    distinct = values.dictionary_encode()
    result_type = physical_type_of(transform, source_type)
    try:
        made = pa.array([function(value) for value in distinct.dictionary.to_pylist()], result_type)
    except (OverflowError, pa.ArrowInvalid) as error:  # truncation rounds down, below the minimum of the type
        raise Invalid(
            "rows-invalid",
            f"{transform} of a value near the minimum of a {source_type} does not fit a {source_type}: remove such "
            "rows, or partition and sort by another transform",
        ) from error
    return made.take(distinct.indices)


def physical_type_of(transform: Transform[Any, Any], source_type: PrimitiveType) -> pa.DataType:
    """The Arrow type of the result of `partition_column`."""
    result = transform.result_type(source_type)
    if not isinstance(result, PrimitiveType):
        raise _unfit(transform, source_type)
    kind = arrow_type_of_bound(result)
    return physical_column(pa.array([], kind)).type


@lru_cache(maxsize=512)
def _function_of(transform: Transform[Any, Any], source_type: PrimitiveType) -> Callable[[Any], Any]:
    if not transform.can_transform(source_type) or arrow_type_of_bound(source_type) is None:
        raise _unfit(transform, source_type)
    if isinstance(transform, IdentityTransform):
        return lambda value: value
    if isinstance(transform, VoidTransform):
        return lambda value: None
    units = _units_of(transform, source_type)
    if units is not None:
        calendar = _CALENDAR.get(type(transform), int)
        return lambda value: calendar(value // units)
    if isinstance(source_type, DecimalType):
        return _of_decimal(transform, source_type)
    if isinstance(transform, BucketTransform | TruncateTransform):
        known: Callable[[Any], Any] = transform.transform(source_type)
        return known
    raise _unfit(transform, source_type)


def _units_of(transform: Transform[Any, Any], source_type: PrimitiveType) -> int | None:
    """The number of source units in one unit of the time transform: an hour, or a day."""
    if isinstance(transform, HourTransform):
        return _UNITS_AN_HOUR[type(source_type)]
    if isinstance(transform, DayTransform | MonthTransform | YearTransform):
        return 1 if isinstance(source_type, DateType) else _UNITS_AN_HOUR[type(source_type)] * _HOURS_A_DAY
    return None


def _of_decimal(transform: Transform[Any, Any], source_type: DecimalType) -> Callable[[Decimal], Any]:
    quantum = Decimal((0, (1,), -source_type.scale))
    if isinstance(transform, TruncateTransform):
        width = transform.width

        def truncated(value: Decimal) -> Decimal:
            unscaled = int(_EXACT.scaleb(value, source_type.scale))
            return _EXACT.multiply(Decimal(unscaled - unscaled % width), quantum)

        return truncated
    hashed = transform.transform(source_type)
    return lambda value: hashed(_EXACT.quantize(value, quantum))


def _month_of(days: int) -> int:
    """Months since January 1970 of a day since 1970-01-01, in the proleptic Gregorian calendar without limits."""
    era, day_of_era = divmod(days + 719_468, 146_097)  # eras of 400 years that begin on 1 March
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    march_based = (5 * day_of_year + 2) // 153
    return (year_of_era + era * 400 - 1970) * 12 + march_based + 2


def _year_of(days: int) -> int:
    return _month_of(days) // 12


_CALENDAR: Final[dict[type[Transform[Any, Any]], Callable[[int], int]]] = {
    MonthTransform: _month_of,
    YearTransform: _year_of,
}


def _floor_divide(values: pa.Array, divisor: int) -> pa.Array:
    if divisor == 1:
        return values
    truncated = pc.divide(values, divisor)
    too_high = pc.less(values, pc.multiply(truncated, divisor))
    return pc.subtract(truncated, pc.cast(too_high, pa.int64()))


def _unfit(transform: Transform[Any, Any], source_type: PrimitiveType) -> Invalid:
    return Invalid("definition-invalid", f"transform {transform} cannot be applied to a column of type {source_type}")


_WHOLE_HASH: Final[BucketTransform[Any]] = BucketTransform(2**31)
"""The specification's hash without its sign bit."""


def expression_value(
    text: str, transform: Transform[Any, Any], sources: Sequence[PrimitiveType], values: Sequence[Bound | None]
) -> Bound | None:
    """The value of the expression for one row's `values` of its columns, which have the types `sources`.

    Raises:
        Invalid: `definition-invalid`, the function is unknown or does not support the types.
    """
    function = _known(text, transform, sources)
    if function is Function.TRANSFORM:
        return partition_value(transform, sources[0], values[0])
    if any(value is None for value in values):
        return None
    if function is Function.LOWER:
        return str(values[0]).lower()
    hashes = (partition_value(_WHOLE_HASH, source, value) for source, value in zip(sources, values, strict=True))
    return reduce(xor, (int(one) for one in hashes if one is not None)) % _buckets(transform)


def expression_column(
    text: str,
    transform: Transform[Any, Any],
    sources: Sequence[PrimitiveType],
    columns: Sequence[pa.Array | pa.ChunkedArray],
) -> pa.Array:
    """The physical values of the expression for whole columns, which have the Arrow types of data files.

    Arguments and `Raises` as `expression_value`.
    """
    function = _known(text, transform, sources)
    if function is Function.TRANSFORM:
        return partition_column(transform, sources[0], columns[0])
    if function is Function.LOWER:
        distinct = partition_column(IdentityTransform(), sources[0], columns[0]).dictionary_encode()
        lowered = pa.array([value.lower() for value in distinct.dictionary.to_pylist()], pa.string())
        return lowered.take(distinct.indices)
    hashes = [partition_column(_WHOLE_HASH, source, column) for source, column in zip(sources, columns, strict=True)]
    whole = pc.cast(reduce(pc.bit_wise_xor, hashes), pa.int64())
    buckets = pa.scalar(_buckets(transform), pa.int64())
    return pc.cast(pc.subtract(whole, pc.multiply(pc.divide(whole, buckets), buckets)), pa.int32())


def _known(text: str, transform: Transform[Any, Any], sources: Sequence[PrimitiveType]) -> Function:
    function = function_of(text, transform, sources)
    if function is Function.UNKNOWN:
        types = ", ".join(str(source) for source in sources)
        raise Invalid("definition-invalid", f"transform {text} cannot be applied to a column of type {types}")
    return function


def _buckets(transform: Transform[Any, Any]) -> int:
    if not isinstance(transform, BucketTransform):
        raise Invalid("definition-invalid", f"transform {transform} takes one column, not several")
    return transform.num_buckets
