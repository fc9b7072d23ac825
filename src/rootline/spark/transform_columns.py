"""Iceberg's transforms as Spark columns: the partition and the rank of each row, computed without Python.

Owns: the value of each transform that Spark can compute, the group of a partition, the keys of a sort order, Iceberg's
hash. Does not own: rows in Arrow (`partition_split`), types (`fitted_columns`), the write (`parquet_append`).
Invariants: two rows have the same group if they have the same partition. Rows sorted by the keys are in the table's
sort order. Every written file is checked for both, so a mistake here costs a write or a sort order id, and never a row.
A transform that Spark cannot compute exactly has no column.

Theory. Iceberg's bucket is the standard murmur3 (32 bits, seed 0). Spark's `hash` differs in two ways. It begins with
the seed 42, but each further argument begins with the hash of the arguments before it: the hash of `_ZERO` is 0. And it
mixes the last 1 to 3 bytes of a text in its own way. So a text gets 1 to 4 zero bytes, which make it whole words of
four bytes, as both read them. Then the final mixing and the last word's rotation are undone, the true length is put in,
and the final mixing is repeated. Each step is a projection, because a step uses the value before it several times.

Source: the Iceberg specification, "Partition Transforms" and Appendix B.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final

from pyiceberg.schema import Schema
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
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # as everyone calls it

from rootline.schemas.table_definition import TableDefinition
from rootline.spark.spark_types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def column_by_id(schema: Schema, field_id: int) -> Column | None:
    """The column with this id, which may be a member of a struct. `None`: the schema has none."""
    path = _path_to(schema.as_struct(), field_id)
    return None if path is None else F.col(".".join(map(quoted, path)))


def _path_to(struct: StructType, field_id: int) -> tuple[str, ...] | None:
    for field in struct.fields:
        if field.field_id == field_id:
            return (field.name,)
        if isinstance(field.field_type, StructType):
            inner = _path_to(field.field_type, field_id)
            if inner is not None:
                return (field.name, *inner)
    return None


GROUP: Final = "partition_group"
"""The name of the folders for Spark, one for each partition: `partition_group=1234`. The number is never read."""
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
"""Types whose equality is the same in Spark. Floats are excluded, because they have two zeros."""
_HOUR_US: Final = 3_600_000_000
_DAY_US: Final = 24 * _HOUR_US


def with_group(frame: DataFrame, definition: TableDefinition) -> DataFrame | None:
    """`frame` with a last column `GROUP`: a number that is the same for all rows of one partition of the default spec.

    `frame` has the table's columns and types. `None`: Spark cannot compute a field of the spec.
    """
    values: list[Column] = []
    texts: dict[str, Column] = {}
    for member in definition.spec_by_id(definition.default_spec_id).expr_ids:
        expression = definition.expressions_by_id.get(member)
        transform = IdentityTransform() if expression is None else expression.parsed
        if isinstance(transform, VoidTransform):
            continue
        source_ids = (member,) if expression is None else expression.source_ids
        sources = [_Source.of(definition.schema, source_id) for source_id in source_ids]
        value = _value_of(transform, [source for source in sources if source is not None])
        if value is None or None in sources:
            return None
        values += [value, value.isNull()]  # a hash ignores nulls
        if isinstance(transform, BucketTransform):
            texts |= {source.hash_name: source.column for source in sources if source is not None and source.is_text}
    names = (quoted(field.name) for field in definition.schema.fields)
    return _with_hashes(frame, texts).select(*names, F.xxhash64(F.lit(0), *values).alias(GROUP))


def sort_columns(definition: TableDefinition) -> list[Column] | None:
    """The keys of the table's sort order, with their directions. Empty if the table has none.

    `None`: Spark cannot compute a field of the sort order.
    """
    found: list[Column] = []
    order = definition.default_sort_order
    for field in () if order is None else order.fields:
        source = _Source.of(definition.schema, field.source_id)
        keys = None if source is None else _rank(field.parsed, source)
        if keys is None:
            return None
        found += [getattr(key, f"{field.direction}_{field.null_order.replace('-', '_')}")() for key in keys]
    return found


def _rank(transform: Transform, source: _Source) -> list[Column] | None:  # type: ignore[type-arg]
    """The values to sort by. For Spark, the zeros of a float are equal. In a sort order, -0 is before 0."""
    if isinstance(source.type, FloatType | DoubleType) and isinstance(transform, IdentityTransform):
        column = source.column
        return [column, F.when(column == 0, column.cast("string") != "-0.0")]
    is_hashed_text = isinstance(transform, BucketTransform) and source.is_text  # its hash is in another projection
    value = None if is_hashed_text else _value_of(transform, [source])
    return None if value is None else [value]


@dataclass(frozen=True, slots=True)
class _Source:
    """A column of the table in Spark. `hash_name`: the column with its hash, if it is a text."""

    type: IcebergType
    column: Column
    hash_name: str

    @staticmethod
    def of(schema: Schema, field_id: int) -> _Source | None:
        column = column_by_id(schema, field_id)
        return None if column is None else _Source(schema.find_type(field_id), column, f"{GROUP}_hash_{field_id}")

    @property
    def is_text(self) -> bool:
        return isinstance(self.type, StringType | BinaryType)


def _value_of(transform: Transform, sources: Sequence[_Source]) -> Column | None:  # type: ignore[type-arg]
    """The transform's value, or another one with the same equality and order. `None`: Spark cannot compute it."""
    if isinstance(transform, BucketTransform):
        return _bucket(transform.num_buckets, sources)
    return _value(transform, sources[0].type, sources[0].column) if len(sources) == 1 else None


def _value(transform: Transform, kind: IcebergType, column: Column) -> Column | None:  # type: ignore[type-arg]
    match transform:
        case IdentityTransform() if isinstance(kind, _EXACT):
            return column
        case TruncateTransform(width=width) if isinstance(kind, IntegerType | LongType):
            return F.try_subtract(column, F.pmod(column, F.lit(width)))
        case TruncateTransform(width=width) if isinstance(kind, StringType | BinaryType):
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
    """The quotient rounded down, in integers. A double would round the last microseconds of a year up."""
    long = F.lit(unit).cast("long")
    return F.call_function("div", number, long) - F.when(number % long < 0, 1).otherwise(0)


_ZERO: Final = -1_693_959_553
"""The integer whose hash in Spark is 0."""
_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF


def _bucket(buckets: int, sources: Sequence[_Source]) -> Column | None:
    hashes = [_hash(source) for source in sources]
    known = [found.bitwiseAND(_POSITIVE) for found in hashes if found is not None]
    if not known or len(known) < len(hashes):
        return None
    is_valid = reduce(and_, (source.column.isNotNull() for source in sources))
    return F.when(is_valid, reduce(Column.bitwiseXOR, known) % buckets)


def _hash(source: _Source) -> Column | None:
    match source.type:
        case IntegerType() | LongType():
            return F.hash(F.lit(_ZERO), source.column.cast("long"))
        case DateType():
            return F.hash(F.lit(_ZERO), F.unix_date(source.column).cast("long"))
        case TimestampType() | TimestamptzType():  # Spark hashes their microseconds
            return F.hash(F.lit(_ZERO), source.column)
        case StringType() | BinaryType():
            return F.col(source.hash_name).cast("long")
    return None


def _with_hashes(frame: DataFrame, texts: Mapping[str, Column]) -> DataFrame:
    """`frame` with the standard murmur3 of each of `texts`, under the name that is its key."""
    if not texts:
        return frame
    frame = frame.withColumns({name: _hash_of_words(text) for name, text in texts.items()})
    for step in _STEPS:
        frame = frame.withColumns({name: step(F.col(name), F.octet_length(text)) for name, text in texts.items()})
    return frame


def _hash_of_words(text: Column) -> Column:
    """Spark's hash of a text that ends with 1 to 4 zero bytes."""
    zeros = F.unhex(F.lit("00000000"))
    padded = F.concat(text.cast("binary"), F.substring(zeros, F.lit(1), 4 - F.octet_length(text) % 4))
    return F.hash(F.lit(_ZERO), padded).cast("long").bitwiseAND(_MASK)


def _times(number: Column, factor: int) -> Column:
    """The product of two numbers of 32 bits, in 32 bits. A single multiplication would overflow 64 bits."""
    low, high = number.bitwiseAND(0xFFFF), F.shiftright(number, 16)
    return (low * factor + F.shiftleft((high * factor).bitwiseAND(0xFFFF), 16)).bitwiseAND(_MASK)


def _folded(number: Column, *shifts: int) -> Column:
    return reduce(lambda found, shift: found.bitwiseXOR(F.shiftright(number, shift)), shifts, number)


def _first_word(number: Column, length: Column) -> Column:
    padded = (length + 4 - length % 4).cast("long")
    return _times((_folded(number, 16).bitwiseXOR(padded) + (_MASK + 1 - 0xE6546B64)).bitwiseAND(_MASK), 0xCCCCCCCD)


def _of_true_length(number: Column, length: Column) -> Column:
    turned = F.shiftright(number, 13).bitwiseOR(F.shiftleft(number.bitwiseAND(0x1FFF), 19))
    return turned.bitwiseXOR(length.cast("long"))


_STEPS: Final[tuple[Callable[[Column, Column], Column], ...]] = (
    lambda number, _: _times(_folded(number, 16), 0x7ED1B41D),
    lambda number, _: _times(_folded(number, 13, 26), 0xA5CB9243),
    _first_word,
    _of_true_length,
    lambda number, _: _times(_folded(number, 16), 0x85EBCA6B),
    lambda number, _: _times(_folded(number, 13), 0xC2B2AE35),
    lambda number, _: _folded(number, 16),
)
"""From the hash of whole words to the hash of the text. The first three undo Spark's last steps, backwards."""
