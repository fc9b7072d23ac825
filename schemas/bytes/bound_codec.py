"""The bytes of lower and upper bounds in `content_stats`, for each column type.

Owns: one encoder, decoder and skip pattern for each type. Does not own: the record around the bounds
(`statistics_codec`), the order of bounds, truncation, signed zeros (the code that measures the file).
Invariants: a decoded value encodes to the same bytes. A value that the type cannot store exactly raises `ValueError`.
NaN is refused by default, because only a partition value may have it as a bound.

Source: the Iceberg specification, Appendix A (Avro), and `content_entry` for the physical values.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from typing import Any, Final

from pyiceberg.types import DecimalType, FixedType, PrimitiveType

from rootline.schemas.bytes.avro_encoding import (
    INT_MAX,
    INT_MIN,
    NULL,
    PRESENT,
    Unreadable,
    encode_long,
    long_of_varint,
    optional,
    read_fixed,
    read_optional_bytes,
    read_optional_int,
    read_optional_long,
    read_optional_string,
)
from rootline.schemas.bytes.entry_schema import decimal_size_in_bytes, kind_of

Encode = Callable[[Any], bytes]
"""A bound or `None` → the bytes of `["null", T]`."""
Decode = Callable[[bytes, int], tuple[Any, int]]
"""(buffer, position) → (bound or `None`, position after it)."""

_VARINT: Final = rb"[\x80-\xff]{0,9}+[\x00-\x7f]"
_SHORT_LENGTH_MAX: Final = 32
_ANY_SHORT: Final = (
    b"(?:"
    + b"|".join(b"\\x%02x" % (length << 1) + rb"[\x00-\xff]{%d}" % length for length in range(_SHORT_LENGTH_MAX + 1))
    + b")"
)
_DECIMAL_CONTEXT: Final = Context(prec=80, traps=[Inexact, InvalidOperation, Overflow])


@dataclass(frozen=True, slots=True)
class BoundCodec:
    """The codec of bounds of one type. `pattern` is a regular expression of a bound that is present, and `of_raw`
    converts its match to the bound. It does not match strings and byte strings over 32 bytes. `decode` reads every
    bound.
    """

    encode: Encode
    decode: Decode
    pattern: bytes
    of_raw: Callable[[bytes], Any]


def bound_codec(field_type: PrimitiveType, *, allow_nan: bool = False) -> BoundCodec:
    """The codec of one column's bounds. The type must have bounds: `kind_of` is not `counts`."""
    if isinstance(field_type, DecimalType):
        return _decimal(field_type.precision, field_type.scale)
    if isinstance(field_type, FixedType):
        return _fixed(len(field_type))
    kind = kind_of(field_type)
    if kind in ("float", "double"):
        return _floating("<f" if kind == "float" else "<d", allow_nan)
    return _BY_KIND[kind]


def _encode_long(value: Any) -> bytes:
    if value is None:
        return NULL
    if type(value) is not int:
        raise ValueError(f"{value!r} is not an integer")
    return PRESENT + encode_long(value)


def _encode_int(value: Any) -> bytes:
    if value is None:
        return NULL
    if type(value) is not int or not INT_MIN <= value <= INT_MAX:
        raise ValueError(f"{value!r} is not an integer of 32 bits")
    return PRESENT + encode_long(value)


def _encode_boolean(value: Any) -> bytes:
    if value is None:
        return NULL
    if type(value) is not bool:
        raise ValueError(f"{value!r} is not a boolean")
    return b"\x02\x01" if value else b"\x02\x00"


def _read_boolean(data: bytes, position: int) -> tuple[bool, int]:
    raw, position = read_fixed(data, position, 1)
    if raw > b"\x01":
        raise Unreadable(f"{raw!r} is not a boolean")
    return raw == b"\x01", position


def _encode_string(value: Any) -> bytes:
    if value is None:
        return NULL
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.60} is not a string")
    encoded = value.encode()
    return PRESENT + encode_long(len(encoded)) + encoded


def _encode_binary(value: Any) -> bytes:
    if value is None:
        return NULL
    if not isinstance(value, bytes):
        raise ValueError(f"{value!r:.60} is not a byte string")
    return PRESENT + encode_long(len(value)) + value


def _fixed(size: int) -> BoundCodec:
    def encode(value: Any) -> bytes:
        if value is None:
            return NULL
        if not isinstance(value, bytes) or len(value) != size:
            raise ValueError(f"{value!r:.60} is not a byte string of length {size}")
        return PRESENT + value

    def read(data: bytes, position: int) -> tuple[bytes, int]:
        return read_fixed(data, position, size)

    return BoundCodec(encode, optional(read), rb"[\x00-\xff]{%d}" % size, bytes)


def _floating(layout: str, allow_nan: bool) -> BoundCodec:
    packer = struct.Struct(layout)
    size = packer.size
    unpack = packer.unpack

    def encode(value: Any) -> bytes:
        if value is None:
            return NULL
        if not isinstance(value, float):
            raise ValueError(f"{value!r:.60} is not a floating-point number")
        if value != value and not allow_nan:
            raise ValueError("NaN cannot be a bound")
        try:
            encoded = packer.pack(value)
        except OverflowError:
            raise ValueError(f"{value!r} does not fit {8 * size} bits") from None
        if size == 4 and value == value and packer.unpack(encoded)[0] != value:
            raise ValueError(f"{value!r} is not exact in {8 * size} bits: a rounded bound may exclude rows")
        return PRESENT + encoded

    def read(data: bytes, position: int) -> tuple[float, int]:
        end = position + size
        if end > len(data):
            raise Unreadable("the bytes end inside a floating-point number")
        return of_raw(data[position:end]), end

    def of_raw(raw: bytes) -> float:
        value: float = unpack(raw)[0]
        if value != value and not allow_nan:
            raise Unreadable("NaN cannot be a bound")
        return value

    return BoundCodec(encode, optional(read), rb"[\x00-\xff]{%d}" % size, of_raw)


def _decimal(precision: int, scale: int) -> BoundCodec:
    size = decimal_size_in_bytes(precision)
    limit = 10**precision

    def encode(value: Any) -> bytes:
        if value is None:
            return NULL
        if not isinstance(value, Decimal):
            raise ValueError(f"{value!r:.60} is not a decimal")
        return PRESENT + _unscaled(value, precision, scale).to_bytes(size, "big", signed=True)

    def read(data: bytes, position: int) -> tuple[Decimal, int]:
        raw, position = read_fixed(data, position, size)
        return of_raw(raw), position

    def of_raw(raw: bytes) -> Decimal:
        unscaled = int.from_bytes(raw, "big", signed=True)
        if not -limit < unscaled < limit:
            raise Unreadable(f"a decimal has more than {precision} digits")
        return Decimal(unscaled).scaleb(-scale, _DECIMAL_CONTEXT)

    return BoundCodec(encode, optional(read), rb"[\x00-\xff]{%d}" % size, of_raw)


def _unscaled(value: Decimal, precision: int, scale: int) -> int:
    if not value:
        return 0
    if not value.is_finite() or value.adjusted() >= precision - scale:
        raise ValueError(f"{value!s:.60} does not fit decimal({precision}, {scale})")
    if value.adjusted() < -scale:
        raise ValueError(f"{value!s:.60} has more than {scale} digits after the point")
    try:
        shifted = value.scaleb(scale, _DECIMAL_CONTEXT)
        unscaled = int(shifted)
    except ArithmeticError:
        raise ValueError(f"{value!s:.60} has too many digits") from None
    if unscaled != shifted:
        raise ValueError(f"{value!s:.60} has more than {scale} digits after the point")
    return unscaled


def _int_of_raw(raw: bytes) -> int:
    value = long_of_varint(raw)
    if not INT_MIN <= value <= INT_MAX:
        raise Unreadable(f"{value} does not fit 32 bits")
    return value


def _string_of_raw(raw: bytes) -> str:
    try:
        return raw[1:].decode()
    except UnicodeDecodeError as error:
        raise Unreadable(f"a string is not UTF-8: {error}") from None


def _binary_of_raw(raw: bytes) -> bytes:
    return raw[1:]


def _boolean_of_raw(raw: bytes) -> bool:
    return raw == b"\x01"


_LONG: Final = BoundCodec(_encode_long, read_optional_long, _VARINT, long_of_varint)
_INT: Final = BoundCodec(_encode_int, read_optional_int, _VARINT, _int_of_raw)
_BY_KIND: Final = {
    "boolean": BoundCodec(_encode_boolean, optional(_read_boolean), rb"[\x00\x01]", _boolean_of_raw),
    "int": _INT,
    "date": _INT,
    "long": _LONG,
    "time": _LONG,
    "timestamp": _LONG,
    "timestamptz": _LONG,
    "timestamp_ns": _LONG,
    "timestamptz_ns": _LONG,
    "string": BoundCodec(_encode_string, read_optional_string, _ANY_SHORT, _string_of_raw),
    "binary": BoundCodec(_encode_binary, read_optional_bytes, _ANY_SHORT, _binary_of_raw),
    "uuid": _fixed(16),
}
