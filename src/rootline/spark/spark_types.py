"""Spark's types: a table's types as Spark's, Arrow values both ways, and the columns of a DataFrame to write.

Owns: both mappings, the check that a table can store the types of a DataFrame, and the assignment of its columns to
the table's, at every depth. Does not own: types in files (`arrow_types`), checks of values (`data_file_writer`), new
columns (`batch_commit`).
Invariants: no value changes silently: a value that Spark's type cannot represent is an error that names the column.
Moments are independent of a session's time zone. A type is refused before anything is written, because Spark passes
VARIANT, GEOMETRY and user-defined types to its tasks as structs of their bytes. A column with exactly the name of a
table's column is that column, otherwise `spark.sql.caseSensitive` decides. Two columns never become one.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from inspect import signature
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyiceberg import types as iceberg
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType
from pyiceberg.types import StructType as IcebergStruct
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import TableDefinition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SIMPLE: Final[dict[type[iceberg.IcebergType], spark.DataType]] = {
    iceberg.BooleanType: spark.BooleanType(),
    iceberg.IntegerType: spark.IntegerType(),
    iceberg.LongType: spark.LongType(),
    iceberg.FloatType: spark.FloatType(),
    iceberg.DoubleType: spark.DoubleType(),
    iceberg.DateType: spark.DateType(),
    iceberg.TimeType: spark.TimeType(6),
    iceberg.TimestampType: spark.TimestampNTZType(),
    iceberg.TimestampNanoType: spark.TimestampNTZType(),
    iceberg.TimestamptzType: spark.TimestampType(),
    iceberg.TimestamptzNanoType: spark.TimestampType(),
    iceberg.StringType: spark.StringType(),
    iceberg.UUIDType: spark.StringType(),
    iceberg.FixedType: spark.BinaryType(),
    iceberg.BinaryType: spark.BinaryType(),
    iceberg.UnknownType: spark.NullType(),
}
_arrow_schema_of: Final[Callable[..., pa.Schema]] = to_arrow_schema
_MOMENTS_IN_UTC: Final = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
"""Spark 4.1 uses UTC without this argument."""
_WIDER: Final[dict[type[spark.DataType], tuple[type[spark.DataType], ...]]] = {
    spark.IntegerType: (spark.LongType, spark.DoubleType),
    spark.FloatType: (spark.DoubleType,),
}


def quoted(name: str) -> str:
    """A column's name for Spark, which may contain a dot or a backtick."""
    return "`" + name.replace("`", "``") + "`"


def spark_schema_of(schema: Schema) -> spark.StructType:
    """The columns of a table in Spark's types. Raises `Invalid` (`definition-invalid`) if Spark has no such type."""
    return spark.StructType([_field(field, "") for field in schema.fields])


def _field(field: iceberg.NestedField, path: str) -> spark.StructField:
    name = f"{path}{field.name}"
    return spark.StructField(field.name, spark_type_of(field.field_type, name), not field.required)


def spark_type_of(wanted: iceberg.IcebergType, name: str = "") -> spark.DataType:
    """The Spark type of a column `name`. Raises the errors of `spark_schema_of`."""
    simple = _SIMPLE.get(type(wanted))
    if simple is not None:
        return simple
    match wanted:
        case iceberg.DecimalType(precision=precision, scale=scale):
            return spark.DecimalType(precision, scale)
        case iceberg.StructType(fields=fields):
            return spark.StructType([_field(field, f"{name}.") for field in fields])
        case iceberg.ListType():
            return spark.ArrayType(spark_type_of(wanted.element_type, f"{name}.element"), not wanted.element_required)
        case iceberg.MapType():
            key = spark_type_of(wanted.key_type, f"{name}.key")
            value = spark_type_of(wanted.value_type, f"{name}.value")
            return spark.MapType(key, value, not wanted.value_required)
    raise Invalid("definition-invalid", f"column {name}: Spark has no type for {wanted}")


def check_columns(wanted: spark.StructType, whole: spark.StructType, table: str) -> None:
    """Check that a user's schema can be read from a table with the columns `whole`.

    Raises:
        Invalid: `column-unknown`; `setting-invalid`, a column has another type, or is declared never null.
    """
    for field in wanted.fields:
        if field.name not in whole.names:
            known = ", ".join(whole.names[:40])
            raise Invalid("column-unknown", f"{table}: there is no column {field.name!r}. It has {known}")
        stored = whole[field.name]
        if not _fits(stored.dataType, field.dataType):
            given, own = field.dataType.simpleString(), stored.dataType.simpleString()
            raise Invalid("setting-invalid", f"{table}: column {field.name} is of type {own}, not {given}")
        if stored.nullable and not field.nullable:
            raise Invalid("setting-invalid", f"{table}: column {field.name} can be null. Declare it without NOT NULL")


def _fits(stored: spark.DataType, wanted: spark.DataType) -> bool:
    match stored, wanted:
        case spark.StructType(), spark.StructType():
            return stored.names == wanted.names and all(
                _fits(stored[name].dataType, wanted[name].dataType)
                and (wanted[name].nullable or not stored[name].nullable)
                for name in stored.names
            )
        case spark.ArrayType(), spark.ArrayType():
            may_be_null = wanted.containsNull or not stored.containsNull
            return may_be_null and _fits(stored.elementType, wanted.elementType)
        case spark.MapType(), spark.MapType():
            may_be_null = wanted.valueContainsNull or not stored.valueContainsNull
            is_key = _fits(stored.keyType, wanted.keyType)
            return may_be_null and is_key and _fits(stored.valueType, wanted.valueType)
        case spark.DecimalType(), spark.DecimalType():
            return wanted.scale == stored.scale and wanted.precision >= stored.precision
    return stored == wanted or isinstance(wanted, _WIDER.get(type(stored), ()))


def arrow_schema_for_spark(schema: spark.StructType) -> pa.Schema:
    """The exact Arrow schema that Spark expects from a reader."""
    return _arrow_schema_of(schema, **_MOMENTS_IN_UTC)


def batch_for_spark(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """`batch` with exactly the types of `target`. Both must have the same columns in the same order.

    Raises:
        Invalid: `file-unreadable`, a value does not fit, naming the column.
    """
    columns = [_for_spark(column, field) for column, field in zip(batch.columns, target, strict=True)]
    if not columns:
        return batch
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _for_spark(column: pa.Array, field: pa.Field) -> pa.Array:
    if isinstance(column, pa.ExtensionArray) and pa.types.is_string(field.type):
        texts = [None if value is None else str(uuid.UUID(bytes=value)) for value in column.storage.to_pylist()]
        return pa.array(texts, field.type)
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise Invalid(
            "file-unreadable", f"column {field.name}: Spark's type cannot represent a value: {error}"
        ) from error


def batch_from_spark(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """`batch` with the texts of UUID columns as UUIDs. Other columns are unchanged.

    Raises:
        Invalid: `rows-invalid`, a text is not a UUID, naming the column.
    """
    ids = [field.name for field in schema.fields if isinstance(field.field_type, iceberg.UUIDType)]
    return reduce(_with_uuids, (name for name in ids if name in batch.schema.names), batch)


def _with_uuids(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    at = batch.schema.get_field_index(name)
    if not pa.types.is_string(batch.column(at).type) and not pa.types.is_large_string(batch.column(at).type):
        return batch
    values: list[bytes | None] = []
    for text in batch.column(at).to_pylist():
        try:
            values.append(None if text is None else uuid.UUID(text).bytes)
        except ValueError as error:
            raise Invalid("rows-invalid", f"rows: column {name} is a uuid, and {text[:40]!r} is not a UUID") from error
    return batch.set_column(at, name, pa.array(values, pa.binary(16)))


_CODE: Final = "rows-invalid"
_STORABLE: Final = (
    spark.BooleanType,
    spark.ByteType,
    spark.ShortType,
    spark.IntegerType,
    spark.LongType,
    spark.FloatType,
    spark.DoubleType,
    spark.DecimalType,
    spark.DateType,
    spark.TimeType,
    spark.TimestampType,
    spark.TimestampNTZType,
    spark.StringType,
    spark.CharType,
    spark.VarcharType,
    spark.BinaryType,
    spark.NullType,
)
_INSTEAD: Final[Mapping[str, str]] = {
    "VariantType": "write to_json(…), a string, and read it with parse_json(…)",
    "GeometryType": "write st_asbinary(…), and read it with st_geomfromwkb(…)",
    "GeographyType": "write st_asbinary(…), and read it with st_geogfromwkb(…)",
    "DayTimeIntervalType": "cast it to a string, or write a number of seconds",
    "YearMonthIntervalType": "cast it to a string, or write a number of months",
    "CalendarIntervalType": "cast it to a string",
}
"""Keyed by the name of the type, because not every version of Spark has all of them."""


def check_types(rows: spark.StructType, table: str) -> None:
    """Check that a table can store the types of the columns of a DataFrame.

    Raises:
        Invalid: `rows-invalid`, naming the column, its type, and the value to write instead.
    """
    for field in rows.fields:
        _check_type(field.dataType, field.name, table)


def _check_type(kind: spark.DataType, name: str, table: str) -> None:
    match kind:
        case spark.StructType(fields=fields):
            for field in fields:
                _check_type(field.dataType, f"{name}.{field.name}", table)
        case spark.ArrayType():
            _check_type(kind.elementType, f"{name}.element", table)
        case spark.MapType():
            _check_type(kind.keyType, f"{name}.key", table)
            _check_type(kind.valueType, f"{name}.value", table)
        case _ if not isinstance(kind, _STORABLE):
            instead = _INSTEAD.get(type(kind).__name__, "cast it to a type that tables have")
            text = kind.simpleString().upper()
            raise Invalid(_CODE, f"{table}: column {name} is of type {text:.80}, which no table stores: {instead}")


def check_fit(rows: spark.StructType, definition: TableDefinition, table: str, *, is_case_sensitive: bool) -> None:
    """Check, before a job runs, that a DataFrame has columns of the table, with types that can be converted to the
    table's.

    Raises:
        Invalid: `rows-invalid`, naming the column.
    """
    from rootline.client.data_file_writer import checked_rows  # a read needs none of its imports

    columns = arrow_schema_for_spark(rows.toNullable())  # the elements of `array()` are of no type, and never null
    empty = pa.RecordBatch.from_pylist([], columns)
    named = as_table_names(empty, definition.schema, is_case_sensitive=is_case_sensitive)
    checked_rows(batch_from_spark(named, definition.schema), definition)
    for field in definition.schema.fields:
        if field.required and field.write_default is None and field.name not in named.schema.names:
            raise Invalid(_CODE, f"{table}: column {field.name} is required, but missing: add it to the rows")


def renamed(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """`rows` with these names, or the same object if it has them, so that columns taken from it stay valid."""
    return rows if list(rows.columns) == list(names) else rows.toDF(*names)


def resolved(names: Sequence[str], known: Iterable[str], *, is_case_sensitive: bool, path: str = "") -> list[str]:
    """The table's spelling of each of `names`. A name without a column in the table is unchanged.

    Raises:
        Invalid: `rows-invalid`, two of them are one column, or one may be two columns.
    """
    if is_case_sensitive:
        return list(names)
    exact, folded = set(known), dict[str, list[str]]()
    for name in exact:
        folded.setdefault(name.lower(), []).append(name)
    found = [name if name in exact else _folded(name, folded.get(name.lower(), ()), path) for name in names]
    places: dict[str, int] = {}
    for at, name in enumerate(found):
        key = name if name in exact else name.lower()
        if key in places and names[places[key]] != names[at]:
            raise Invalid(
                _CODE,
                f"columns {path}{names[places[key]]} and {path}{names[at]} of the rows are one column unless "
                "spark.sql.caseSensitive is true: drop or rename one of them",
            )
        places.setdefault(key, at)
    return found


def _folded(name: str, found: Sequence[str], path: str) -> str:
    if len(found) > 1:
        shown = " and ".join(sorted(found))
        raise Invalid(_CODE, f"column {path}{name} of the rows may be {shown} of the table: spell it as one of them")
    return found[0] if found else name


def as_table_names(batch: pa.RecordBatch, schema: Schema, *, is_case_sensitive: bool) -> pa.RecordBatch:
    """`batch` with its columns and their nested fields renamed to the table's spelling.

    Raises:
        Invalid: `rows-invalid`, two names are one column, or one name may be two columns.

    """
    if is_case_sensitive:
        return batch
    given = list(batch.schema)
    fields = _named_fields(given, schema.as_struct(), "")
    if _is_all(fields, given):
        return batch
    columns = [_labelled(column, field.type) for column, field in zip(batch.columns, fields, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _named_fields(given: Sequence[pa.Field], wanted: IcebergStruct, path: str) -> list[pa.Field]:
    known = {field.name: field.field_type for field in wanted.fields}
    names = resolved([field.name for field in given], known, is_case_sensitive=False, path=path)
    pairs = zip(given, names, strict=True)
    return [_named_field(field, name, known.get(name), f"{path}{name}") for field, name in pairs]


def _named_field(field: pa.Field, name: str, wanted: IcebergType | None, path: str) -> pa.Field:
    kind = field.type if wanted is None else _named_type(field.type, wanted, path)
    return field if kind is field.type and name == field.name else field.with_name(name).with_type(kind)


def _named_type(given: pa.DataType, wanted: IcebergType, path: str) -> pa.DataType:
    """`given` with the table's names of members. The same object if the names are equal."""
    match wanted:
        case IcebergStruct() if pa.types.is_struct(given):
            old = [given.field(at) for at in range(given.num_fields)]
            fields = _named_fields(old, wanted, f"{path}.")
            return given if _is_all(fields, old) else pa.struct(fields)
        case ListType() if pa.types.is_list(given):
            element = _named_field(given.value_field, given.value_field.name, wanted.element_type, f"{path}.element")
            return given if element.equals(given.value_field) else pa.list_(element)
        case MapType() if pa.types.is_map(given):
            key = _named_field(given.key_field, given.key_field.name, wanted.key_type, f"{path}.key")
            item = _named_field(given.item_field, given.item_field.name, wanted.value_type, f"{path}.value")
            return given if _is_all((key, item), (given.key_field, given.item_field)) else pa.map_(key, item)
    return given


def _is_all(fields: Sequence[pa.Field], others: Sequence[pa.Field]) -> bool:
    return all(one.equals(other) for one, other in zip(fields, others, strict=True))


def _labelled(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """`array` with the type `kind`, which differs from its own type only in the names of struct members."""
    if array.type == kind:
        return array
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        members = [_labelled(array.field(at), field.type) for at, field in enumerate(fields)]
        return pa.StructArray.from_arrays(members, fields=fields, mask=mask)
    offsets = array.offsets if mask is None else pa.array(array.offsets.to_numpy(zero_copy_only=False), pa.int32())
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(offsets, _labelled(array.values, kind.value_type), type=kind, mask=mask)
    keys, items = _labelled(array.keys, kind.key_type), _labelled(array.items, kind.item_type)
    return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=mask)
