"""By what Spark tells the rows of one partition from those of another, so that it writes files of one partition each.

Owns: the expression that is equal for rows of one partition. Does not own: the partition's values, which are taken from
the rows of each file when it is there (`rootline.client.data_file`).
Invariants: a file of several partitions is refused later, so a mistake here costs a write and never a row; rows of one
partition in two groups are only one file more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyiceberg.transforms import (
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
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)
from pyspark.sql import functions as F  # noqa: N812  # as everyone calls it

from rootline.schemas.table_definition import TableDefinition

if TYPE_CHECKING:
    from pyspark.sql import Column

_EXACT: Final = (
    BooleanType,
    IntegerType,
    LongType,
    DateType,
    DecimalType,
    StringType,
    BinaryType,
    TimestampType,
    TimestamptzType,
)
"""Types of which equal values are equal to Spark too: not so of floats, which have two zeros."""
_HOUR_US: Final = 3_600_000_000
_DAY_US: Final = 24 * _HOUR_US


def partition_group(definition: TableDefinition) -> Column | None:
    """A number that is the same for all rows of one partition of the default spec.

    `None`: the spec has a member that Spark has no function for (a bucket, for one), or it has none at all.
    """
    members: list[Column] = []
    for member in definition.spec_by_id(definition.default_spec_id).expr_ids:
        found = _member(definition, member)
        if found is None:
            return None
        members += found
    return F.xxhash64(*members) if members else None


def _member(definition: TableDefinition, member: int) -> list[Column] | None:
    """What tells its values apart; nothing for one that is always null. `None`: not known."""
    expression = definition.expressions_by_id.get(member)
    source_ids = (member,) if expression is None else expression.source_ids
    transform = IdentityTransform() if expression is None else expression.parsed
    if isinstance(transform, VoidTransform):
        return []
    field = next((field for field in definition.schema.fields if (field.field_id,) == source_ids), None)
    if field is None:
        return None
    value = _value(transform, field.field_type, F.col(f"`{field.name.replace('`', '``')}`"))
    return None if value is None else [value, value.isNull()]  # a hash takes no notice of nulls


def _value(transform: Transform, kind: IcebergType, column: Column) -> Column | None:  # type: ignore[type-arg]
    match transform:
        case IdentityTransform() if isinstance(kind, _EXACT):
            return column
        case TruncateTransform(width=width) if isinstance(kind, IntegerType | LongType):
            return F.try_subtract(column, F.pmod(column, F.lit(width)))
        case TruncateTransform(width=width) if isinstance(kind, StringType):
            return F.substring(column, 1, width)
        case HourTransform():
            return _hour(kind, column)
        case DayTransform():
            return _day(kind, column)
        case MonthTransform() | YearTransform():
            day = _day(kind, column)
            return None if day is None else F.trunc(day, "month" if isinstance(transform, MonthTransform) else "year")
    return None


def _day(kind: IcebergType, column: Column) -> Column | None:
    match kind:
        case DateType() | TimestampType():
            return column.cast("date")
        case TimestamptzType():  # in UTC, whatever the session's time zone is
            return F.date_from_unix_date(_whole(F.unix_micros(column), _DAY_US).cast("int"))
    return None


def _hour(kind: IcebergType, column: Column) -> Column | None:
    match kind:
        case TimestampType():
            return F.unix_date(column.cast("date")).cast("long") * 24 + F.hour(column)
        case TimestamptzType():
            return _whole(F.unix_micros(column), _HOUR_US)
    return None


def _whole(number: Column, unit: int) -> Column:
    """How many whole units, rounded down, in whole numbers: a double would round the last of a year's moments up."""
    long = F.lit(unit).cast("long")
    return F.call_function("div", number, long) - F.when(number % long < 0, 1).otherwise(0)
