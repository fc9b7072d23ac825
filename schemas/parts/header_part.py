"""A part of the root's header as keys of Avro file metadata, and the checked values in them.

Owns: the row of a part (`HeaderPart`), compact JSON, checked numbers, strings and digests. Does not own: the parts (one
file for each beside this one), the order of the keys (`rootline.schemas.bytes.root.header_codec`).
Invariants: Every decoded value has the right type and sign. Any other input raises `ValueError`, or `TypeError` where
the shape is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

_NUMBER_MAX: Final = 2**63 - 1
_DIGEST_BYTES: Final = 32

Part = TypeVar("Part")
Metadata = Mapping[str, bytes]
"""Key → value of a root's Avro file metadata."""


def never(_value: object) -> bool:
    """Return `False`: every software can read a root with this part."""
    return False


@dataclass(frozen=True, slots=True)
class HeaderPart(Generic[Part]):
    """A part of the header. `name` is its field of `RootHeader`.

    * `keys`: key → the function that encodes the key's value. The key is absent from roots for which it returns `None`.
    * `decode`: the part in a root's metadata.
    * `needs_profile_2`: whether software that knows only the lowest profile (version of the format) must refuse a root
    with this value.
    """

    name: str
    keys: Mapping[str, Callable[[Part], bytes | None]]
    decode: Callable[[Metadata], Part]
    needs_profile_2: Callable[[Part], bool] = never


def json_of(value: Any) -> bytes:
    """`value` as compact JSON. It is ASCII, so every string can be encoded."""
    return encode_json(value).encode()


encode_json: Final = json.JSONEncoder(separators=(",", ":")).encode


def number_of(value: int) -> bytes:
    """The value of a key that is one number: its decimal digits."""
    return b"%d" % value


def list_in(metadata: Metadata, key: str) -> list[Any]:
    """The list in a key. Raises `KeyError` if the key is absent, `ValueError` if its value is not a list."""
    value = json.loads(metadata[key])
    if not isinstance(value, list):
        raise ValueError(f"{key} is not a list")
    return value


def object_in(metadata: Metadata, key: str) -> dict[str, Any]:
    """The object in a key. Raises `KeyError` if the key is absent, `ValueError` if its value is not an object."""
    value = json.loads(metadata[key])
    if not isinstance(value, dict):
        raise ValueError(f"{key} is not an object")
    return value


def decimal_of(value: bytes) -> int:
    """The number in plain decimal digits. Raises `ValueError`."""
    if not value.isdigit() or (value[:1] == b"0" and len(value) > 1):
        raise ValueError(f"{value[:30]!r} is not a plain number")
    return count_of(int(value[:30]))


def count_of(value: Any) -> int:
    """`value`, if it is a non-negative integer of at most 63 bits. Raises `ValueError`."""
    if type(value) is not int or not 0 <= value <= _NUMBER_MAX:
        raise ValueError(f"{value!r:.60} is not a number from 0 to 2^63-1")
    return value


def string_of(value: Any) -> str:
    """`value`, if it is a string. Raises `ValueError`."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.60} is not a string")
    return value


def digest_of(value: Any) -> bytes:
    """The SHA-256 in hexadecimal digits. Raises `ValueError`."""
    return checked_digest(bytes.fromhex(string_of(value)))


def checked_digest(digest: bytes) -> bytes:
    """`digest`, if it is as long as a SHA-256. Raises `ValueError`."""
    if len(digest) != _DIGEST_BYTES:
        raise ValueError("a digest is not 32 bytes long")
    return digest
