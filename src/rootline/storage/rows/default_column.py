"""A default as a column of one row.

Owns: the value, at every depth. Does not own: which default it is, and when (`row_projection`), what a default may be
(`rootline.tree.proof.default_rules`).
Invariants: a field that the default of a struct lacks has its own default; one that the struct does not have any more
is left out.

Source: the table specification, "Schema Evolution"; Appendix D of the Iceberg specification, "JSON single-value
serialization".
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.conversions import from_json
from pyiceberg.types import (
    DoubleType,
    FloatType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
    UUIDType,
)

from rootline.schemas.default_values import nested_default
from rootline.storage.rows.arrow_types import arrow_field_of, arrow_type_of, as_type


@dataclass(frozen=True, slots=True)
class DefaultColumn:
    """`default_of`: the default that a field has of its own, of the kind that is wanted; `None`: it has none."""

    default_of: Callable[[NestedField], Any]

    def of(self, of_type: IcebergType, default: Any) -> pa.Array:
        """The default of a column of that type, as the schema's model keeps it, as an array of one.

        Raises:
            ValueError, TypeError, ArithmeticError, pa.ArrowException: it is no value of that type.

        """
        if isinstance(of_type, StructType | ListType | MapType):
            return self._array(of_type, json.loads(nested_default(of_type, default)))
        return _primitive(of_type, default)

    def _array(self, of_type: IcebergType, value: Any) -> pa.Array:
        """`value` is in JSON form."""
        if value is None:
            return pa.nulls(1, arrow_type_of(of_type))
        match of_type:
            case StructType() if not of_type.fields:  # all were dropped; Arrow takes the length from the first one
                return pa.array([{}], arrow_type_of(of_type))
            case StructType():
                members = [self._member(member, value) for member in of_type.fields]
                return pa.StructArray.from_arrays(members, fields=[arrow_field_of(member) for member in of_type.fields])
            case ListType():
                items = self._items(of_type.element_type, value)
                return pa.ListArray.from_arrays(_bounds(value), items, type=arrow_type_of(of_type))
            case MapType():
                keys, items = value["keys"], value["values"]
                return pa.MapArray.from_arrays(
                    _bounds(keys),
                    self._items(of_type.key_type, keys),
                    self._items(of_type.value_type, items),
                    type=arrow_type_of(of_type),
                )
        return _primitive(of_type, value)

    def _member(self, member: NestedField, values: dict[str, Any]) -> pa.Array:
        key = str(member.field_id)
        if key in values:
            return self._array(member.field_type, values[key])
        own = self.default_of(member)
        if own is None and member.required:
            raise ValueError(f"{member.name} is required, and has no value")
        return pa.nulls(1, arrow_type_of(member.field_type)) if own is None else self.of(member.field_type, own)

    def _items(self, of_type: IcebergType, values: list[Any]) -> pa.Array:
        arrays = [self._array(of_type, value) for value in values]
        return pa.concat_arrays(arrays) if arrays else pa.nulls(0, arrow_type_of(of_type))


def _bounds(values: list[Any]) -> pa.Array:
    return pa.array([0, len(values)], pa.int32())


def _primitive(of_type: IcebergType, default: Any) -> pa.Array:
    if not isinstance(of_type, PrimitiveType):
        raise TypeError(f"{of_type} has no values")
    value, arrow_type = from_json(of_type, default), arrow_type_of(of_type)
    plain = value.bytes if isinstance(of_type, UUIDType) and hasattr(value, "bytes") else value
    if isinstance(of_type, FloatType | DoubleType) and isinstance(plain, int):
        plain = float(plain)  # JSON's 9007199254740993 is rounded; Arrow refuses whole numbers that it must round
    storage = arrow_type.storage_type if isinstance(arrow_type, pa.BaseExtensionType) else arrow_type
    return as_type(pa.array([plain], storage), arrow_type)
