"""Types as people write them: `long`, `string not null`, `list<int>`, `map<string, double>`, `timestamp[us]`.

Owns: the words. Does not own: Arrow types (`arrow_schema`), whole schemas (`given_schema`).
Invariants: a word means one Iceberg type; Arrow's words mean what `arrow_schema` makes of the type.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pydantic import TypeAdapter, ValidationError
from pyiceberg.exceptions import ValidationError as PyIcebergValidationError
from pyiceberg.types import IcebergType, ListType, MapType, PrimitiveType

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
_DEPTH_MAX: Final = 32


def type_of_words(text: str, ids: Iterator[int]) -> tuple[IcebergType, bool]:
    """The type that `text` names, and whether it says `not null`; `ids` are for the fields of nested types.

    Raises:
        ValueError: there is no such type.

    """
    words = " ".join(text.lower().split())
    return _type(words.removesuffix(_NOT_NULL), ids, _DEPTH_MAX), words.endswith(_NOT_NULL)


def _type(words: str, ids: Iterator[int], depth: int) -> IcebergType:
    words = words.strip()
    if depth == 0:
        raise ValueError(f"types are nested more than {_DEPTH_MAX} deep")
    if words.startswith("list<") and words.endswith(">"):
        return ListType(next(ids), _type(words[5:-1], ids, depth - 1), element_required=False)
    if words.startswith("map<") and words.endswith(">"):
        key, value = _halves(words[4:-1])
        key_type = _type(key, ids, depth - 1)
        return MapType(next(ids), key_type, next(ids), _type(value, ids, depth - 1), value_required=False)
    try:
        return _PRIMITIVE.validate_python(_OTHER_NAMES.get(words, words))
    except PyIcebergValidationError as error:
        raise ValueError(str(error)) from error
    except (ValidationError, ValueError, TypeError) as error:
        raise ValueError(f"there is no type {words!r}") from error


def _halves(words: str) -> tuple[str, str]:
    """What is before and after the first comma that is in no brackets."""
    depth = 0
    for at, char in enumerate(words):
        depth += (char in "<([") - (char in ">)]")
        if char == "," and depth == 0:
            return words[:at], words[at + 1 :]
    raise ValueError("a map has two types, as in map<string, long>")
