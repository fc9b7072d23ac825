"""The columns of a DataFrame as the table's, in the form in which Spark's own Parquet writer stores them as we do.

Owns: finding columns by name at every depth, casts that change no value, absent columns, the ids of fields. Does not
own: whether rows fit a table at all (`spark_types`), partitions and order (`transform_columns`), the ids of elements of
lists and maps, which Spark cannot write (`parquet_files`).
Invariants: a value is stored unchanged, or the job fails with the column's name. Casts are as in our own writer
(`arrow_types`). Where that is not certain, the columns are refused with a reason, and our own writer writes them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pyiceberg import types as iceberg
from pyiceberg.types import IcebergType, NestedField, PrimitiveType
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # as everyone calls it
from pyspark.sql import types as spark

from rootline.schemas.table_definition import TableDefinition
from rootline.spark.parquet_files import is_scalar
from rootline.spark.spark_types import quoted, resolved, spark_type_of
from rootline.storage.rows.arrow_types import DefaultColumn, arrow_type_of
from rootline.storage.rows.row_projection import write_default

_FIELD_ID: Final = "parquet.field.id"
_DIGITS: Final[dict[type[spark.DataType], int]] = {
    spark.ByteType: 3,
    spark.ShortType: 5,
    spark.IntegerType: 10,
    spark.LongType: 19,
}
_NO_NUMBER: Final = 100
_WHOLE_UP_TO: Final[dict[type[spark.DataType], int]] = {spark.FloatType: 2**24, spark.DoubleType: 2**53}
"""Our own writer does not convert between integers and floats above the size at which floats skip integers."""
_PLAIN_DEFAULTS: Final = (
    iceberg.BooleanType,
    iceberg.IntegerType,
    iceberg.LongType,
    iceberg.FloatType,
    iceberg.DoubleType,
    iceberg.DecimalType,
    iceberg.DateType,
    iceberg.StringType,
)


class UnfitRows(Exception):
    """Spark's writer cannot write the rows as ours does. The text is the reason."""


Fit = Callable[[Column], Column]


@dataclass(frozen=True, slots=True)
class _Member:
    """A column of the table, and the way to it in the rows.

    `given`: its name in the rows, or `None` if they lack it. `fit`: what is done to it, or `None` if a cast is enough.
    """

    name: str
    given: str | None
    fit: Fit | None

    def of(self, parent: Column | None) -> Column:
        """The column, at the top level or as a member of the struct `parent`."""
        if self.given is None:
            value = F.lit(None)
        else:
            value = F.col(quoted(self.given)) if parent is None else parent.getField(self.given)
        return value if self.fit is None else self.fit(value)


@functools.lru_cache
def fitted_columns(_java: object, rows: spark.StructType, table: bytes, *, is_case_sensitive: bool) -> list[Column]:
    """The columns of a table from rows with the schema `rows`, with the ids of fields.

    A column takes some forty calls of Spark's JVM, so the columns of a batch are used for the next ones.

    `_java`: owns that JVM. `table`: its definition, as JSON. `is_case_sensitive`: of the names of nested fields.

    Raises:
        UnfitRows: Spark's writer cannot write one of them as ours does.
    """
    fields = TableDefinition.from_json(table).schema.fields
    members = _Matching(is_case_sensitive).members(rows, fields, "")
    return [
        member.of(None).cast(_stored_type(field.field_type)).alias(field.name, metadata={_FIELD_ID: field.field_id})
        for member, field in zip(members, fields, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Matching:
    is_case_sensitive: bool

    def members(self, rows: spark.StructType, fields: Sequence[NestedField], path: str) -> list[_Member]:
        known = [field.name for field in fields]
        for names in (known, rows.names):
            if len({name.lower() for name in names}) != len(names) or not known:
                raise UnfitRows(f"there are no columns in {path[:-1] or 'the table'}, or names differ only in case")
        found = resolved(rows.names, known, is_case_sensitive=self.is_case_sensitive, path=path)
        given = dict(zip(found, rows.fields, strict=True))
        return [self._member(given.get(field.name), field, f"{path}{field.name}") for field in fields]

    def _member(self, given: spark.StructField | None, field: NestedField, name: str) -> _Member:
        if given is None:
            return _Member(field.name, None, _default(field, name))
        return _Member(field.name, given.name, self._fit(given.dataType, field.field_type, name))

    def _fit(self, given: spark.DataType, kind: IcebergType, name: str) -> Fit | None:
        """A change of values of `given`, so that a cast to the stored type keeps them. `None`: they need none."""
        match kind, given:
            case _, spark.NullType():
                return None
            case PrimitiveType(), _:
                return _fit_of_values(given, kind, name)
            case iceberg.StructType(), spark.StructType():
                members = self.members(given, kind.fields, f"{name}.")
                if [member.given for member in members] == given.names and not any(member.fit for member in members):
                    return None
                return lambda value: F.when(
                    value.isNotNull(), F.struct(*(member.of(value).alias(member.name) for member in members))
                )
            case iceberg.ListType(), spark.ArrayType():
                of_element = self._fit(given.elementType, kind.element_type, f"{name}.element")
                return None if of_element is None else lambda value: F.transform(value, of_element)
            case iceberg.MapType(), spark.MapType():
                of_value = self._fit(given.valueType, kind.value_type, f"{name}.value")
                if self._fit(given.keyType, kind.key_type, f"{name}.key") is not None:
                    raise UnfitRows(f"column {name} has keys of type {given.keyType.simpleString()} in the rows")
                return None if of_value is None else lambda value: F.transform_values(value, lambda _, x: of_value(x))
        raise UnfitRows(f"column {name} is {given.simpleString()} in the rows")


def _stored_type(kind: IcebergType) -> spark.DataType:
    """The type in Spark, with the ids of struct members. Everything in it may be null, as at the top level."""
    match kind:
        case iceberg.StructType(fields=fields):
            return spark.StructType(
                [
                    spark.StructField(field.name, _stored_type(field.field_type), True, {_FIELD_ID: field.field_id})
                    for field in fields
                ]
            )
        case iceberg.ListType():
            return spark.ArrayType(_stored_type(kind.element_type))
        case iceberg.MapType():
            return spark.MapType(_stored_type(kind.key_type), _stored_type(kind.value_type))
    if not is_scalar(arrow_type_of(kind)):
        raise UnfitRows(f"a column is of type {kind}")
    return spark_type_of(kind)


def _default(field: NestedField, name: str) -> Fit | None:
    """The value of rows that lack the column, or `None` if it is null."""
    if field.write_default is None:
        return None
    if not isinstance(field.field_type, _PLAIN_DEFAULTS):
        raise UnfitRows(f"column {name} has a default of type {field.field_type}")
    value = DefaultColumn(write_default).of(field.field_type, field.write_default)[0].as_py()
    return lambda _: F.lit(value)


def _fit_of_values(given: spark.DataType, kind: PrimitiveType, name: str) -> Fit | None:
    wanted = _stored_type(kind)
    if given == wanted or _is_wider(given, wanted):
        return None
    numbers = isinstance(given, spark.NumericType) and isinstance(wanted, spark.NumericType)
    if not numbers and (given, wanted) != (spark.TimestampNTZType(), spark.DateType()):
        raise UnfitRows(f"column {name} is {given.simpleString()} in the rows")
    is_mixed = isinstance(given, spark.IntegralType) != isinstance(wanted, spark.IntegralType)
    limits = [_WHOLE_UP_TO[type(each)] for each in (given, wanted) if type(each) in _WHOLE_UP_TO and is_mixed]

    def cast(value: Column) -> Column:
        made = value.try_cast(wanted)
        is_same = made.try_cast(given).eqNullSafe(value)
        for limit in limits:
            is_same &= value.isNull() | value.between(-limit, limit)
        begin = F.lit(f"rows-invalid: rows: column {name} is a {kind}, and a value is ")
        fault = F.concat(begin, value.cast("string"), F.lit(", which does not fit; convert the column"))
        return F.when(is_same, made).otherwise(F.raise_error(fault))

    return cast


def _is_wider(given: spark.DataType, wanted: spark.DataType) -> bool:
    """Whether every value of `given` is a value of `wanted`."""
    digits = _DIGITS.get(type(given))
    match wanted:
        case spark.DecimalType():
            whole, scale = _digits_of(given)
            return whole <= wanted.precision - wanted.scale and scale <= wanted.scale
        case spark.DoubleType():
            return isinstance(given, spark.FloatType) or (digits is not None and digits <= _DIGITS[spark.IntegerType])
        case spark.FloatType():
            return digits is not None and digits <= _DIGITS[spark.ShortType]
    return digits is not None and digits <= _DIGITS.get(type(wanted), 0)


def _digits_of(given: spark.DataType) -> tuple[int, int]:
    """Digits before and after the point."""
    if isinstance(given, spark.DecimalType):
        return given.precision - given.scale, given.scale
    return _DIGITS.get(type(given), _NO_NUMBER), 0
