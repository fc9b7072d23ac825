"""The schema of a new table, in whichever form the user has it.

Owns: which forms there are. Does not own: Arrow types (`arrow_schema`), words for types (`type_words`), partitioning
(`definition_builder`).
Invariants: an Iceberg schema keeps its ids; every other form gets fresh ones; no type is narrowed; pandas and Polars
are imported only by the user.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, Final

import pyarrow as pa
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    IcebergType,
    ListType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
)

from rootline.client import checks
from rootline.client.write.arrow_schema import iceberg_schema, iceberg_type
from rootline.client.write.given_rows import check_polars, is_lazy, is_pandas_frame, pandas_columns
from rootline.client.write.type_words import type_of_words
from rootline.schemas.errors import Invalid
from rootline.schemas.schema_rules import NESTING_MAX
from rootline.storage.rows.arrow_types import arrow_type_of

_CODE: Final = "definition-invalid"
_FORMS: Final = "give an Arrow or Iceberg schema, a dict of names and types, or a data frame"
_WORDS: Final = "write string, long, double, timestamptz, …, or give an Arrow type"
_PYTHON_TYPES: Final[dict[object, PrimitiveType]] = {
    bool: BooleanType(),
    int: LongType(),
    float: DoubleType(),
    str: StringType(),
    bytes: BinaryType(),
    dt.date: DateType(),
}


def given_schema(given: Any) -> Schema:
    """The Iceberg schema of what a user gives: a schema, a dict of names and types, or data.

    Raises:
        Invalid: `definition-invalid`, it is nothing of this; a column has no name, no type, or one that no table has.

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
        return given.schema  # its stream stays the caller's
    if is_pandas_frame(given):  # through its series, for the reasons that `given_rows` has
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
    raise Invalid(_CODE, f"schema: {given!r:.80} is a {type(given).__name__}, which is no schema; {_FORMS}")


def _field_of_series(name: str, series: Any) -> pa.Field:
    try:
        return pa.field(name, pa.Array.from_pandas(series).type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        reason = error.args[0] if error.args else error
        raise Invalid(_CODE, f"column {name}: its values are of no one type: {reason}; convert the column") from error


def _struct(given: Mapping[Any, Any], path: str, ids: Iterator[int]) -> StructType:
    _check_depth(path)
    fields: list[NestedField] = []
    for name, kind in given.items():
        checks.column_name(name, _CODE)
        found, required = _column(kind, f"{path}{name}", ids)
        fields.append(NestedField(next(ids), name, found, required=required))
    return StructType(*fields)


def _check_depth(path: str) -> None:
    """A dict or a list that contains itself has no end."""
    if path.count(".") > NESTING_MAX:
        raise Invalid(_CODE, f"column {path[:60]}…: more than {NESTING_MAX} levels of nesting: flatten the type")


def _column(kind: Any, where: str, ids: Iterator[int]) -> tuple[IcebergType, bool]:
    """The type, and whether the column must have a value."""
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
        return iceberg_type(arrow_type_of(kind), where, ids), False  # with ids of this schema
    if isinstance(kind, Mapping):
        return _struct(kind, f"{where}.", ids), False
    if isinstance(kind, list) and len(kind) == 1:
        _check_depth(f"{where}.")
        element, required = _column(kind[0], f"{where}.element", ids)
        return ListType(next(ids), element, element_required=required), False
    found = _PYTHON_TYPES.get(kind) if isinstance(kind, type) else None
    if found is None:
        raise Invalid(_CODE, f"column {where}: {kind!r:.80} is no type; {_WORDS}")
    return found, False
