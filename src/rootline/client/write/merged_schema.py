"""Which schema a table needs so that given rows fit: the table's, with the columns that it lacks and wider types.

Owns: the comparison, at every depth. Does not own: ids of what comes (`alter_table`), which steps are legal
(`rootline.tree.evolution`), casting rows (`row_projection`).
Invariants: pure; only what must change does: no column is dropped, reordered or made optional, and a type that is
neither the table's nor a legal promotion of it stays for the cast to judge, which refuses values that it would change;
new columns are optional, whatever the rows say; keys of maps stay.

Theory. A type that a user declared (Arrow, NumPy, a data frame) says what the column is meant to be. Python's own
numbers have one width each, so they say nothing: there a column becomes wider only if a value needs it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import count
from typing import Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

from rootline.client import checks
from rootline.client.write.arrow_schema import iceberg_type
from rootline.schemas.errors import Invalid
from rootline.storage.rows.arrow_types import arrow_type_of, exactly
from rootline.tree.evolution.evolution_rules import may_become

_CODE: Final = "definition-invalid"
_MISFITS: Final = (pa.ArrowInvalid, pa.ArrowNotImplementedError)


def merged_schema(schema: Schema, rows: pa.Table, of_values: Collection[str] = ()) -> Schema | None:
    """The schema that a table of `schema` needs for `rows`; `None` when it needs no other one.

    Args:
        schema: the table's current one.
        rows: to be written.
        of_values: columns whose types follow from Python's own values.

    Raises:
        Invalid: `definition-invalid`, a new column has a type that no table has, or only nulls; the message names it.

    """
    known = {field.name: field.field_type for field in schema.fields}
    if all(field.name in known and field.type == _plain_of(known[field.name]) for field in rows.schema):
        return None
    merge = _Merge(count(schema.highest_field_id + 1))
    arrays = (_whole(rows.column(at)) if name in of_values else None for at, name in enumerate(rows.column_names))
    columns = [(given.name, given.type, array) for given, array in zip(rows.schema, arrays, strict=True)]
    struct = schema.as_struct()
    merged = merge.struct(struct, columns, "")
    return None if merged is struct else Schema(*merged.fields)


_Member = tuple[str, pa.DataType, pa.Array | None]
"""Name, type, and the values where the type follows from them."""


class _Merge:
    """Makes fields with `ids`, which are only placeholders."""

    def __init__(self, ids: Iterator[int]) -> None:
        self._ids = ids

    def struct(self, wanted: StructType, members: Collection[_Member], path: str) -> StructType:
        """`wanted` itself when it needs nothing more."""
        given = {name: (kind, values) for name, kind, values in members}
        found: list[NestedField] = []
        for member in wanted.fields:
            kind, values = given.pop(member.name, (None, None))
            merged = member.field_type
            if kind is not None:
                merged = self._type(member.field_type, kind, values, f"{path}{member.name}")
            found.append(member if merged is member.field_type else member.model_copy(update={"field_type": merged}))
        for name, (kind, _) in given.items():
            where = f"{path}{checks.column_name(name, _CODE)}"
            new = iceberg_type(kind, where, self._ids)
            found.append(NestedField(next(self._ids), name, new, required=False))
        is_same = len(found) == len(wanted.fields) and all(map(_is, found, wanted.fields))
        return wanted if is_same else StructType(*found)

    def _type(self, wanted: IcebergType, given: pa.DataType, values: pa.Array | None, where: str) -> IcebergType:
        types = pa.types
        if isinstance(wanted, PrimitiveType):
            return _primitive(wanted, given, values, where)
        if isinstance(wanted, StructType) and types.is_struct(given):
            parts = [None] * given.num_fields if values is None else values.flatten()
            members = [(field.name, field.type, part) for field, part in zip(given, parts, strict=True)]
            return self.struct(wanted, members, f"{where}.")
        if isinstance(wanted, ListType) and _is_list(given):
            inner = None if values is None else values.flatten()
            element = self._type(wanted.element_type, given.value_type, inner, f"{where}.element")
            if element is wanted.element_type:
                return wanted
            return ListType(wanted.element_id, element, element_required=wanted.element_required)
        if isinstance(wanted, MapType) and types.is_map(given):
            inner = None if values is None else values.items
            value = self._type(wanted.value_type, given.item_type, inner, f"{where}.value")
            if value is wanted.value_type:
                return wanted
            return MapType(wanted.key_id, wanted.key_type, wanted.value_id, value, value_required=wanted.value_required)
        return wanted


def _primitive(wanted: PrimitiveType, given: pa.DataType, values: pa.Array | None, where: str) -> PrimitiveType:
    try:
        found = iceberg_type(given, where, count(1))
    except Invalid:  # of a type that no column has: the cast decides
        return wanted
    if found == wanted or not isinstance(found, PrimitiveType) or not may_become(wanted, found):
        return wanted
    return wanted if values is not None and _fit(values, wanted) else found


def _fit(values: pa.Array, wanted: PrimitiveType) -> bool:
    try:
        exactly(values, arrow_type_of(wanted))
    except _MISFITS:
        return False
    return True


def _is_list(given: pa.DataType) -> bool:
    return bool(pa.types.is_list(given) or pa.types.is_large_list(given) or pa.types.is_fixed_size_list(given))


def _plain_of(wanted: IcebergType) -> pa.DataType | None:
    """The Arrow type of a primitive, which needs no second look."""
    return arrow_type_of(wanted) if isinstance(wanted, PrimitiveType) else None


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _is(one: object, other: object) -> bool:
    return one is other
