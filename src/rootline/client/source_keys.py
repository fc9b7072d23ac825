"""The keys of a merge's source: finding the source row of a table's row, and a filter that all their matches satisfy.

Owns: equality of keys, repeated keys, the filter. Does not own: reading the table (`row_updates`), the grammar of
filters (`rootline.tree.filter`).
Invariants: a null in a key equals nothing. NaN equals NaN, and -0.0 equals 0.0. A row of the table that has a key of
the source satisfies the filter. If a type or a number of keys has no short filter, the filter is wider: more files are
read, and more concurrent changes are conflicts.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType, TimestampNanoType, TimestamptzNanoType

from rootline.client.row_changes import EVERY_ROW
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.storage.rows.arrow_types import storage_of
from rootline.storage.rows.row_deletes import EqualityKeys

Numbers = np.ndarray[Any, np.dtype[np.int64]]
ABSENT: Final = -1
NO_ROW: Final = "false"
"""The filter that no row satisfies."""
_LISTED_MAX: Final = 200
_CHARS_MAX: Final = 8_192
"""The most characters of values in one test."""
_FILTER_CHARS_MAX: Final = 32_768
"""The most characters of a filter, half of what an intent may have. Further columns of the key are not tested."""
_NO_TEXT: Final = (TimestampNanoType, TimestamptzNanoType)
"""Types whose values a filter's text cannot state."""


@dataclass(frozen=True, slots=True)
class KeyField:
    """A column of a key, and the names from its top-level column to it. In a null struct, it is null."""

    path: tuple[str, ...]
    field: NestedField

    @property
    def name(self) -> str:
        """Its name in `on` and in messages."""
        return ".".join(self.path)

    @property
    def term(self) -> str:
        """Its name in a filter."""
        return ".".join('"' + name.replace('"', '""') + '"' for name in self.path)

    def of(self, columns: Mapping[str, pa.Array]) -> pa.Array:
        """Its values in the top-level `columns`."""
        found = columns[self.path[0]]
        for name in self.path[1:]:
            found = pc.struct_field(found, [found.type.get_field_index(name)])
        return found


def _key_fields(fields: Sequence[NestedField], outside: tuple[str, ...] = ()) -> Iterator[KeyField]:
    for field in fields:
        yield KeyField((*outside, field.name), field)
        if isinstance(field.field_type, StructType):
            yield from _key_fields(field.field_type.fields, (*outside, field.name))


def key_fields(table: TableName, schema: Schema, on: Sequence[str] | None) -> tuple[KeyField, ...]:
    """The columns `on`, such as `id` and `route.id`, or the schema's identifier fields.

    Raises:
        Invalid: `setting-invalid`, there are no such columns, or their type has no equality; `column-unknown`.
    """
    fields: dict[str, KeyField] = {}
    for field in sorted(_key_fields(schema.fields), key=lambda each: len(each.path)):
        fields.setdefault(field.name, field)
    names = list(on or ())
    if on is None:
        names = [schema.find_column_name(field_id) or "" for field_id in schema.identifier_field_ids]
    if not names:
        raise Invalid(
            "setting-invalid",
            f"{table}: the table has no identifier fields, so a row has no key: name its columns, as in on=['id']",
        )
    for name in names:
        if name not in fields:
            raise Invalid(
                "column-unknown", f"{table}: on: there is no column {name!r}; there is {', '.join(list(fields)[:40])}"
            )
        kind = fields[name].field.field_type
        if not kind.is_primitive:
            raise Invalid("setting-invalid", f"{table}: on: column {name!r} is a {kind}: name others")
    return tuple(fields[name] for name in dict.fromkeys(names))


@dataclass(frozen=True, slots=True)
class SourceKeys:
    """The distinct keys of a source's rows, numbered from 0.

    `numbers`: the key of each source row, or -1 for a row that has none because of a null. `first_rows`: the first row
    of each key. `counts`: its number of rows.
    """

    fields: tuple[KeyField, ...]
    columns: tuple[pa.Array, ...]
    keyed: EqualityKeys
    numbers: Numbers
    first_rows: Numbers
    counts: Numbers

    @staticmethod
    def of(fields: tuple[KeyField, ...], typed: Mapping[str, pa.Array]) -> SourceKeys:
        """The keys in the top-level columns `typed`, which have the table's types."""
        columns = [field.of(typed) for field in fields]
        has_key = np.ones(len(columns[0]), dtype=np.bool_)
        for column in columns:
            has_key &= column.is_valid().to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(has_key)
        own = tuple(column.take(pa.array(rows)) for column in columns)
        keyed = EqualityKeys.of(tuple(key.field.field_id for key in fields), own)
        found = _numbers(keyed.places(own))
        numbers = np.full(len(has_key), ABSENT, dtype=np.int64)
        numbers[rows] = found
        counts = np.bincount(found).astype(np.int64)
        first_rows = np.zeros(len(counts), dtype=np.int64)
        first_rows[found[::-1]] = rows[::-1]
        return SourceKeys(fields, own, keyed, numbers, first_rows, counts)

    def __len__(self) -> int:
        return len(self.counts)

    def numbers_of(self, rows: pa.RecordBatch) -> Numbers:
        """The number of the key of each row in `rows`, or -1 if the source does not have it.

        A call costs at least one pass over the keys, so look up at least as many rows as there are keys.
        """
        if not len(self):
            return np.full(len(rows), ABSENT, dtype=np.int64)
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        return _numbers(self.keyed.places([key.of(columns) for key in self.fields]))

    def filter(self, chosen: np.ndarray[Any, np.dtype[np.bool_]] | None = None) -> str:
        """A filter that every row with one of the keys satisfies, or with one of those that are flagged in `chosen`."""
        columns = self.columns
        if chosen is not None:
            flags = pa.array(chosen[self.numbers[self.numbers != ABSENT]])
            columns = tuple(column.filter(flags) for column in columns)
        if not len(columns[0]):
            return NO_ROW
        found = (_test_of(field, column) for field, column in zip(self.fields, columns, strict=True))
        tests = [test for test in found if test is not None]
        lengths = accumulate(len(test) for test in tests)
        kept = [test for test, length in zip(tests, lengths, strict=True) if length <= _FILTER_CHARS_MAX]
        return " and ".join(kept) or EVERY_ROW

    def shown(self, number: int) -> str:
        """The key of this number, for messages."""
        row = int(self.first_rows[number] - np.count_nonzero(self.numbers[: self.first_rows[number]] == ABSENT))
        pairs = zip(self.fields, self.columns, strict=True)
        return ", ".join(f"{field.name}={column[row]}" for field, column in pairs)[:200]


def _numbers(places: pa.Array) -> Numbers:
    found: Numbers = places.cast(pa.int64()).fill_null(ABSENT).to_numpy(zero_copy_only=False)
    return found


def _test_of(key: KeyField, column: pa.Array) -> str | None:
    """A test that every value of `column` satisfies, or `None` if there is no short one."""
    if isinstance(key.field.field_type, _NO_TEXT) or pa.types.is_floating(column.type):
        return None
    values = pc.unique(storage_of(column))
    if len(values) <= _LISTED_MAX:
        texts = _literals(values, column.type)
        if texts is not None and sum(map(len, texts)) <= _CHARS_MAX:
            return f"{key.term} in ({', '.join(texts)})"
    try:
        bounds = pc.min_max(values)
    except pa.ArrowException:  # a type without an order
        return None
    ends = _literals(pa.array([bounds["min"], bounds["max"]], values.type), column.type)
    if ends is None or sum(map(len, ends)) > _CHARS_MAX:
        return None
    return f"{key.term} between {ends[0]} and {ends[1]}"


def _literals(values: pa.Array, kind: pa.DataType) -> list[str] | None:
    """Values of type `kind`, given as storage, in a filter's text, or `None` if they have none."""
    array = pa.ExtensionArray.from_storage(kind, values) if isinstance(kind, pa.BaseExtensionType) else values
    try:
        texts = [_literal(value) for value in array.to_pylist()]
    except (ValueError, OverflowError):  # a moment outside of Python's range
        return None
    return [text for text in texts if text is not None] if None not in texts else None


def _literal(value: object) -> str | None:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case Decimal():
            return f"{value:f}"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case dt.date() | dt.time():
            return f"'{value.isoformat()}'"
        case uuid.UUID():
            return f"'{value}'"
    return None
