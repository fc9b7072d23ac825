"""Rules for the default of a column: it must be a value of the column's type.

Owns: the rule for every type.
Does not own: the JSON form of a default (`default_values`), filling in defaults
(`rootline.storage.rows.row_projection`).
Invariants: A default that passes can be written into a column of its type unchanged. The default of a struct may omit
fields, which then use their own defaults, and may contain fields that have since been dropped.

Source: the table specification, "Default Values" and Appendix D of the Iceberg specification, "JSON single-value
serialization".
"""

from __future__ import annotations

import datetime as dt
import json
import math
import struct
import uuid
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from decimal import Decimal
from operator import attrgetter
from typing import Any, Final

from pyiceberg.conversions import from_json
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
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from rootline.schemas.default_values import nested_default

_SHOWN_CHARS_MAX: Final = 80
_GREATEST_FLOAT: Final = (2 - 2**-23) * 2.0**127
_KINDS: Final[tuple[tuple[str, Callable[[NestedField], object]], ...]] = (
    ("initial-default", attrgetter("initial_default")),
    ("write-default", attrgetter("write_default")),
)


def default_fault(field: NestedField, was_dropped: Callable[[str], bool] = lambda _: False) -> str | None:
    """The first fault of the defaults of `field`, as the end of an error message about it, or `None`.

    `was_dropped` decides whether a field id (as text) may belong to a field that is no longer in the schema.
    """
    for kind, default_of in _KINDS:
        value = default_of(field)
        if value is None:
            continue
        shown = f"has {kind} {value!r:.{_SHOWN_CHARS_MAX}}"
        of_type = field.field_type
        if isinstance(of_type, PrimitiveType):
            fits = _FITS.get(type(of_type))
            if fits is None:
                return f"{shown}: {_not_kept(of_type)}"
            if not fits(of_type, value):
                return f"{shown}, which is not of type {of_type}: write it in the JSON single-value form"
            continue
        try:
            found = json.loads(nested_default(of_type, value))
        except (ValueError, RecursionError):
            return f"{shown}, which is not of type {of_type}"
        fault = _Nested(default_of, was_dropped).fault(of_type, found, "")
        if fault is not None:
            return f"{shown}, which is not of type {of_type}: {fault}"
    return None


def _not_kept(of_type: IcebergType) -> str:
    return f"a default of type {of_type} cannot be stored; omit it"


@dataclass(frozen=True, slots=True)
class _Nested:
    """The rules for default values in JSON.

    `default_of` gives a field's own default of the same kind, for fields that the value of a struct omits.
    """

    default_of: Callable[[NestedField], object]
    was_dropped: Callable[[str], bool]

    def fault(self, of_type: IcebergType, value: object, name: str) -> str | None:
        """The first fault of `value`, or `None`. `name` is its path in the message."""
        match of_type:
            case StructType():
                return self._of_struct(of_type, value, name)
            case ListType():
                return self._of_list(of_type.element_field, value, name)
            case MapType():
                return self._of_map(of_type, value, name)
        rule = _FITS.get(type(of_type))
        if rule is None or not isinstance(of_type, PrimitiveType):
            return f"{name or 'it'}: {_not_kept(of_type)}"
        try:
            fits = rule(of_type, from_json(of_type, value))
        except Exception:  # the parser raises different errors for different types
            fits = False
        return None if fits else f"{name or 'it'} is {value!r:.{_SHOWN_CHARS_MAX}}, which is not of type {of_type}"

    def _of_struct(self, of_type: StructType, value: object, name: str) -> str | None:
        if not isinstance(value, dict):
            return f"{name or 'it'} is not an object of field ids and values"
        members = {str(member.field_id): member for member in of_type.fields}
        for field_id in value:
            if field_id not in members and not self.was_dropped(field_id):
                shown = f"{field_id!r:.{_SHOWN_CHARS_MAX}}"
                return f"{name or 'it'} has a value of {shown}, which is not the id of one of its fields"
        for field_id, member in members.items():
            where = f"{name}.{member.name}" if name else member.name
            if field_id in value:
                fault = self._of_member(member, value[field_id], where)
            else:
                lacks = member.required and self.default_of(member) is None
                fault = f"{where} is required, has no default, and is missing" if lacks else None
            if fault is not None:
                return fault
        return None

    def _of_list(self, element: NestedField, value: object, name: str) -> str | None:
        if not isinstance(value, list):
            return f"{name or 'it'} is not an array"
        found = (self._of_member(element, item, f"{name}[{at}]") for at, item in enumerate(value))
        return next((fault for fault in found if fault is not None), None)

    def _of_map(self, of_type: MapType, value: object, name: str) -> str | None:
        if not isinstance(value, dict) or value.keys() != {"keys", "values"}:
            return f"{name or 'it'} is not an object of two arrays, keys and values"
        keys, values = value["keys"], value["values"]
        if not isinstance(keys, list) or not isinstance(values, list) or len(keys) != len(values):
            return f"{name or 'it'} does not have one value for each key"
        fault = self._of_list(of_type.key_field, keys, f"{name}.key" if name else "key")
        if fault is None and len({self._stored(of_type.key_type, key) for key in keys}) != len(keys):
            return f"{name or 'it'} has a key twice"
        return fault or self._of_list(of_type.value_field, values, f"{name}.value" if name else "value")

    def _stored(self, of_type: IcebergType, value: Any) -> Hashable:
        """The value as stored in a row. Different spellings of one value (1 and 1.0 of a double) become equal."""
        if value is None:
            return None
        match of_type:
            case StructType():
                return tuple(self._stored_member(member, value) for member in of_type.fields)
            case ListType():
                return tuple(self._stored(of_type.element_type, item) for item in value)
            case MapType():
                pairs = zip(value["keys"], value["values"], strict=True)
                return frozenset(
                    (self._stored(of_type.key_type, key), self._stored(of_type.value_type, item)) for key, item in pairs
                )
            case FloatType():
                return struct.pack("<f", value)
            case DoubleType():
                return struct.pack("<d", value)
        assert isinstance(of_type, PrimitiveType), "nested types are handled above"
        found: Hashable = from_json(of_type, value)
        return found

    def _stored_member(self, member: NestedField, values: dict[str, Any]) -> Hashable:
        own = self.default_of(member)
        if str(member.field_id) in values or own is None:
            return self._stored(member.field_type, values.get(str(member.field_id)))
        is_primitive = isinstance(member.field_type, PrimitiveType)
        return self._stored(
            member.field_type, own if is_primitive else json.loads(nested_default(member.field_type, own))
        )

    def _of_member(self, member: NestedField, value: object, name: str) -> str | None:
        if value is None:
            return f"{name} is required, but null" if member.required else None
        return self.fault(member.field_type, value, name)


def _is_integer(value: object, bits: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)


def _is_number(value: object, greatest: float) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return (isinstance(value, int) or math.isfinite(value)) and -greatest <= value <= greatest


def _is_decimal(of_type: IcebergType, value: object) -> bool:
    if not isinstance(of_type, DecimalType) or not isinstance(value, Decimal) or not value.is_finite():
        return False
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)  # the value is finite
    whole_digits = max(len(digits) + exponent, 0)
    return -exponent <= of_type.scale and whole_digits <= of_type.precision - of_type.scale


def _is_text(value: object) -> bool:
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


_FITS: Final[dict[type[IcebergType], Callable[[IcebergType, object], bool]]] = {
    BooleanType: lambda _, value: isinstance(value, bool),
    IntegerType: lambda _, value: _is_integer(value, 32),
    LongType: lambda _, value: _is_integer(value, 64),
    FloatType: lambda _, value: _is_number(value, _GREATEST_FLOAT),
    DoubleType: lambda _, value: _is_number(value, math.nextafter(math.inf, 0)),
    DecimalType: _is_decimal,
    DateType: lambda _, value: isinstance(value, dt.date) and not isinstance(value, dt.datetime),
    TimeType: lambda _, value: isinstance(value, dt.time) and value.tzinfo is None,
    TimestampType: lambda _, value: isinstance(value, dt.datetime) and value.tzinfo is None,
    TimestamptzType: lambda _, value: isinstance(value, dt.datetime) and value.tzinfo is not None,
    StringType: lambda _, value: _is_text(value),
    UUIDType: lambda _, value: isinstance(value, uuid.UUID),
    FixedType: lambda of_type, value: (
        isinstance(of_type, FixedType) and isinstance(value, bytes) and len(value) == len(of_type)
    ),
    BinaryType: lambda _, value: isinstance(value, bytes),
}
"""The check of each primitive type that can have a default. Nanosecond timestamps cannot."""
