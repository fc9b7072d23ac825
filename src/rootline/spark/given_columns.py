"""Columns of a DataFrame to write: whether a table can store their types, and which column of the table each one is.

Owns: both checks, at every depth, and the table's names for Arrow batches of Spark's. Does not own: whether values fit
(`rootline.client.data_file_writer`), new columns (`merged_write`), types of tables as Spark's (`spark_types`).
Invariants: a type is refused before anything exists, because Spark gives VARIANT, GEOMETRY and user-defined types to
its tasks as structs of their bytes; a column that has the name of a column exactly is that column; otherwise
`spark.sql.caseSensitive` decides; two columns are never one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType
from pyiceberg.types import StructType as IcebergStruct
from pyspark.sql import types as spark

from rootline.client.data_file_writer import checked_rows
from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import TableDefinition
from rootline.spark.spark_types import arrow_schema_for_spark, batch_from_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
"""By the names of types: not every version of Spark has all of them."""


def check_types(rows: spark.StructType, table: str) -> None:
    """Check that a table can store the types of the columns of a DataFrame.

    Raises:
        Invalid: `rows-invalid`, naming the column, its type, and what to write instead.

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
    """Check, before a job runs, that a DataFrame has columns of the table, with types that may become the table's.

    Raises:
        Invalid: `rows-invalid`, naming the column.

    """
    empty = pa.RecordBatch.from_pylist([], arrow_schema_for_spark(rows))
    named = as_table_names(empty, definition.schema, is_case_sensitive=is_case_sensitive)
    checked_rows(batch_from_spark(named, definition.schema), definition)
    for field in definition.schema.fields:
        if field.required and field.write_default is None and field.name not in named.schema.names:
            raise Invalid(_CODE, f"{table}: column {field.name} is required, but missing: add it to the rows")


def renamed(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """`rows` with these names, or the same object if it has them, so that columns taken from it stay its own."""
    return rows if list(rows.columns) == list(names) else rows.toDF(*names)


def resolved(names: Sequence[str], known: Iterable[str], *, is_case_sensitive: bool, path: str = "") -> list[str]:
    """The table's spelling of each of `names`, or the name unchanged where the table has no such column.

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
    """`batch` with the table's spelling of the names of its columns, and of their members.

    Raises:
        Invalid: `rows-invalid`, as `resolved`.

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
    """`given` itself where its names are the table's."""
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
    """The same values as `kind`, which differs from their type in names of members only."""
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
