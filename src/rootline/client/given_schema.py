"""The schema of a new table, in every form that a user gives: Arrow, Iceberg, words such as `list<int>`, data frames.

Owns: the forms, the mapping of Arrow types and of words to Iceberg types for a schema without ids. Does not own: the
mapping from Iceberg to Arrow (`arrow_types`), rows (`given_rows`), partitioning (`layout_terms`).
Invariants: an Iceberg schema keeps its ids. Every other form gets fresh ids from 1, columns of the top level first. No
type is narrowed: a type that would lose values is refused, and the error names the column. A word that names both an
Iceberg type and an Arrow type means the Iceberg type. A word that names only an Arrow type means the Iceberg type that
this Arrow type is stored as. pandas and Polars are imported only by the user.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import Any, Final

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError
from pyiceberg.exceptions import ValidationError as PyIcebergValidationError
from pyiceberg.schema import Schema, assign_fresh_schema_ids
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
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from rootline.client import checks
from rootline.client.given_rows import check_polars, is_lazy, is_pandas_frame, pandas_columns
from rootline.schemas.errors import Invalid
from rootline.schemas.schema_rules import NESTING_MAX
from rootline.storage.rows.arrow_types import arrow_type_of

_UTC: Final = {"UTC", "utc", "Etc/UTC", "+00:00", "Z", "GMT"}


def iceberg_schema(schema: pa.Schema) -> Schema:
    """The Iceberg schema (id 0) of an Arrow schema, with fresh field ids. Ids in its metadata are ignored.

    Raises:
        Invalid: `definition-invalid`, a column's type cannot be stored, or two columns share a name.
    """
    struct = StructType(*_fields(schema, "", count(1)))
    return assign_fresh_schema_ids(Schema(*struct.fields, schema_id=0))


def _fields(fields: Iterable[pa.Field], path: str, ids: Iterator[int]) -> list[NestedField]:
    found: dict[str, NestedField] = {}
    for field in fields:
        where = f"{path}{field.name}"
        if not field.name or field.name in found:
            raise Invalid("definition-invalid", f"column {where!r}: every column needs a name, and names must differ")
        field_type = iceberg_type(field.type, where, ids)
        found[field.name] = NestedField(next(ids), field.name, field_type, required=not field.nullable)
    return list(found.values())


def iceberg_type(arrow: pa.DataType, where: str, ids: Iterator[int]) -> IcebergType:
    """The Iceberg type of column `where`. `ids` are for the fields of nested types. Raises the errors of
    `iceberg_schema`.
    """
    types = pa.types
    if types.is_dictionary(arrow):
        return iceberg_type(arrow.value_type, where, ids)
    if types.is_struct(arrow):
        if not arrow.num_fields:
            reason = "a struct without members cannot be stored; leave it out until it has some"
            raise Invalid("definition-invalid", f"column {where}: {reason}")
        return StructType(*_fields([arrow.field(at) for at in range(arrow.num_fields)], f"{where}.", ids))
    if types.is_list(arrow) or types.is_large_list(arrow) or types.is_fixed_size_list(arrow):
        element = iceberg_type(arrow.value_type, f"{where}.element", ids)
        return ListType(next(ids), element, element_required=not arrow.value_field.nullable)
    if types.is_map(arrow):
        key, value = (
            iceberg_type(arrow.key_type, f"{where}.key", ids),
            iceberg_type(arrow.item_type, f"{where}.value", ids),
        )
        return MapType(next(ids), key, next(ids), value, value_required=not arrow.item_field.nullable)
    return _primitive(arrow, where)


def _primitive(arrow: pa.DataType, where: str) -> IcebergType:
    types = pa.types
    if isinstance(arrow, pa.BaseExtensionType):
        if arrow.extension_name == "arrow.uuid":
            return UUIDType()
    elif types.is_decimal(arrow) and arrow.precision <= 38 and 0 <= arrow.scale <= arrow.precision:
        return DecimalType(arrow.precision, arrow.scale)
    elif types.is_timestamp(arrow):
        return _timestamp(arrow, where)
    elif types.is_fixed_size_binary(arrow):
        return FixedType(arrow.byte_width)
    for accepts, iceberg in _SIMPLE:
        if accepts(arrow):
            return iceberg
    if types.is_null(arrow):
        raise Invalid(
            "definition-invalid", f"column {where}: it has only nulls, so its type is not known; give the column a type"
        )
    raise Invalid("definition-invalid", f"column {where}: Arrow type {arrow} cannot be stored; cast the column first")


def _timestamp(arrow: pa.TimestampType, where: str) -> IcebergType:
    if arrow.tz is not None and arrow.tz not in _UTC:
        raise Invalid(
            "definition-invalid", f"column {where}: time zone {arrow.tz} cannot be stored; cast the column to UTC"
        )
    if arrow.unit == "ns":
        return TimestampNanoType() if arrow.tz is None else TimestamptzNanoType()
    return TimestampType() if arrow.tz is None else TimestamptzType()


def _is_int32(arrow: pa.DataType) -> bool:
    width = 32 if pa.types.is_signed_integer(arrow) else 16
    return bool(pa.types.is_integer(arrow)) and arrow.bit_width <= width


def _is_int64(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_integer(arrow)) and not pa.types.is_uint64(arrow)


def _is_micro_time(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_time32(arrow)) or (bool(pa.types.is_time64(arrow)) and arrow.unit == "us")


def _is_text(arrow: pa.DataType) -> bool:
    return any(accepts(arrow) for accepts in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def _is_bytes(arrow: pa.DataType) -> bool:
    return any(accepts(arrow) for accepts in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view))


_SIMPLE: Final = (
    (pa.types.is_boolean, BooleanType()),
    (_is_int32, IntegerType()),
    (_is_int64, LongType()),
    (pa.types.is_float16, FloatType()),
    (pa.types.is_float32, FloatType()),
    (pa.types.is_float64, DoubleType()),
    (pa.types.is_date, DateType()),
    (_is_micro_time, TimeType()),
    (_is_text, StringType()),
    (_is_bytes, BinaryType()),
)


_OTHER_NAMES: Final = {
    "bool": "boolean",
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "integer": "int",
    "uint8": "int",
    "uint16": "int",
    "uint32": "long",
    "int64": "long",
    "bigint": "long",
    "float32": "float",
    "float64": "double",
    "str": "string",
    "utf8": "string",
    "large_string": "string",
    "bytes": "binary",
    "large_binary": "binary",
    "date32": "date",
    "time64[us]": "time",
    "timestamp[us]": "timestamp",
    "timestamp[ns]": "timestamp_ns",
    "timestamp[us, tz=utc]": "timestamptz",
    "timestamp[ns, tz=utc]": "timestamptz_ns",
}
_NOT_NULL: Final = " not null"
_PRIMITIVE: Final[TypeAdapter[PrimitiveType]] = TypeAdapter(PrimitiveType)
_MEMBER: Final = re.compile(r'\s*(?:"(?P<quoted>[^"]+)"|(?P<plain>[^:<>"]*?))\s*:(?P<type>.+)\Z')
_DEPTH_MAX: Final = 32


def type_of_words(text: str, ids: Iterator[int]) -> tuple[IcebergType, bool]:
    """The type that `text` names, and whether it ends with `not null`. `ids` are for the fields of nested types.

    Nested types are `list<long>`, `map<string, long>` and `struct<x: double not null, "odd name": list<string>>`. Words
    are in any case, names are not.

    Raises:
        ValueError: there is no such type.
    """
    return _type(" ".join(text.split()), ids, _DEPTH_MAX)


def _type(words: str, ids: Iterator[int], depth: int) -> tuple[IcebergType, bool]:
    words = words.strip()
    if depth == 0:
        raise ValueError(f"types are nested more than {_DEPTH_MAX} deep")
    if is_required := words.lower().endswith(_NOT_NULL):
        words = words[: -len(_NOT_NULL)].rstrip()
    form, _, inner = words.partition("<")
    form = form.rstrip().lower() if inner.endswith(">") else ""
    parts = _parts(inner[:-1]) if form in ("list", "map", "struct") else []
    match form, parts:
        case "list", [element]:
            kind, element_required = _type(element, ids, depth - 1)
            return ListType(next(ids), kind, element_required=element_required), is_required
        case "map", [key, value]:
            of_key, _ = _type(key, ids, depth - 1)
            key_id = next(ids)
            of_value, value_required = _type(value, ids, depth - 1)
            return MapType(key_id, of_key, next(ids), of_value, value_required=value_required), is_required
        case "struct", _:
            return StructType(*_members(parts, ids, depth)), is_required
        case (("list" | "map"), _):
            raise ValueError(f"{words!r}: write list<long>, with one type, or map<string, long>, with two")
    word = words.lower()
    try:
        return _PRIMITIVE.validate_python(_OTHER_NAMES.get(word, word)), is_required
    except PyIcebergValidationError as error:
        raise ValueError(str(error)) from error
    except (ValidationError, ValueError, TypeError) as error:
        raise ValueError(f"there is no type {words!r}") from error


def _members(parts: list[str], ids: Iterator[int], depth: int) -> list[NestedField]:
    fields: dict[str, NestedField] = {}
    for part in parts:
        match = _MEMBER.match(part)
        name = "" if match is None else match["quoted"] or match["plain"]
        if match is None or not name or name in fields:
            raise ValueError(f"{part.strip()!r} is not a new member of a struct: write struct<x: double, y: double>")
        kind, required = _type(match["type"], ids, depth - 1)
        fields[name] = NestedField(next(ids), checks.column_name(name, _CODE), kind, required=required)
    return list(fields.values())


def _parts(words: str) -> list[str]:
    """The parts between the commas outside of brackets and quotes."""
    parts, depth, is_quoted = [""], 0, False
    for char in words:
        is_quoted ^= char == '"'
        depth += 0 if is_quoted else (char in "<([") - (char in ">)]")
        if char == "," and depth == 0 and not is_quoted:
            parts.append("")
        else:
            parts[-1] += char
    return parts


_CODE: Final = "definition-invalid"
_FORMS: Final = "give an Arrow or Iceberg schema, a dict of names and types, or a data frame"
_WORDS: Final = "write string, long, list<string>, struct<x: double>, …, or give an Arrow type"
_PYTHON_TYPES: Final[dict[object, PrimitiveType]] = {
    bool: BooleanType(),
    int: LongType(),
    float: DoubleType(),
    str: StringType(),
    bytes: BinaryType(),
    dt.date: DateType(),
}


def given_schema(given: Any) -> Schema:
    """The Iceberg schema of a user's schema, dict of names and types, or data.

    Raises:
        Invalid: `definition-invalid`, it has none of these forms; a column has no name, no type, or a type that no
            table can have.
    """
    if isinstance(given, Schema):
        return given
    if isinstance(given, StructType):
        return Schema(*given.fields)
    if isinstance(given, pa.Schema):
        return iceberg_schema(given)
    if isinstance(given, Mapping) and not hasattr(given, "__arrow_c_schema__"):  # a schema of Polars is both
        return assign_fresh_schema_ids(Schema(*_struct(given, "", count(1)).fields, schema_id=0))
    return iceberg_schema(_arrow_schema(given))


def _arrow_schema(given: Any) -> pa.Schema:
    if isinstance(given, pa.RecordBatchReader):
        return given.schema  # its stream is not consumed: it belongs to the caller
    if is_pandas_frame(given):  # through its series, for the reasons in the header of `given_rows`
        return pa.schema([_field_of_series(name, series) for name, series in pandas_columns(given, _CODE).items()])
    if is_lazy(given):
        given = given.head(0).collect()
    check_polars(given, _CODE)
    try:
        if hasattr(given, "__arrow_c_schema__"):
            return pa.schema(given)
        if hasattr(given, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(given).schema
        if hasattr(given, "__arrow_c_array__"):
            return pa.record_batch(given).schema
    except (pa.ArrowException, TypeError, ValueError, NotImplementedError) as error:
        raise Invalid(
            _CODE, f"a {type(given).__name__} cannot be read as an Arrow schema: {error}; {_FORMS}"
        ) from error
    raise Invalid(_CODE, f"schema: {given!r:.80} is a {type(given).__name__}, not a schema; {_FORMS}")


def _field_of_series(name: str, series: Any) -> pa.Field:
    try:
        return pa.field(name, pa.Array.from_pandas(series).type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        reason = error.args[0] if error.args else error
        raise Invalid(_CODE, f"column {name}: its values have different types: {reason}; convert the column") from error


def _struct(given: Mapping[Any, Any], path: str, ids: Iterator[int]) -> StructType:
    _check_depth(path)
    fields: list[NestedField] = []
    for name, kind in given.items():
        checks.column_name(name, _CODE)
        found, required = _column(kind, f"{path}{name}", ids)
        fields.append(NestedField(next(ids), name, found, required=required))
    return StructType(*fields)


def _check_depth(path: str) -> None:
    """Limit the nesting, because a dict or a list may contain itself."""
    if path.count(".") > NESTING_MAX:
        raise Invalid(_CODE, f"column {path[:60]}…: more than {NESTING_MAX} levels of nesting: flatten the type")


def _column(kind: Any, where: str, ids: Iterator[int]) -> tuple[IcebergType, bool]:
    """The type, and whether the column is required."""
    if isinstance(kind, str):
        try:
            return type_of_words(kind, ids)
        except ValueError as error:
            raise Invalid(_CODE, f"column {where}: {kind!r}: {error}; {_WORDS}") from error
    if isinstance(kind, pa.Field):
        return iceberg_type(kind.type, where, ids), not kind.nullable
    if isinstance(kind, pa.DataType):
        return iceberg_type(kind, where, ids), False
    if isinstance(kind, PrimitiveType):
        return kind, False
    if isinstance(kind, IcebergType):
        return iceberg_type(arrow_type_of(kind), where, ids), False  # with ids from this schema's counter
    if isinstance(kind, Mapping):
        return _struct(kind, f"{where}.", ids), False
    if isinstance(kind, list) and len(kind) == 1:
        _check_depth(f"{where}.")
        element, required = _column(kind[0], f"{where}.element", ids)
        return ListType(next(ids), element, element_required=required), False
    found = _PYTHON_TYPES.get(kind) if isinstance(kind, type) else None
    if found is None:
        raise Invalid(_CODE, f"column {where}: {kind!r:.80} is not a type; {_WORDS}")
    return found, False
