"""Bounds and partition values as Iceberg V2 and V3 store them.

Owns: physical value → single-value bytes, and → Avro value of a partition tuple. Does not own: reading them back
(`rootline.schemas.bytes.single_values`), which values an entry has.
Invariants: NaN is never a bound; a zero that is a bound has the sign with which it bounds both zeros; UUIDs have
no bounds.

Source: the Iceberg specification, Appendix D (binary single-value serialization), Appendix A (Avro) and "Bounds".
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any, Final, NamedTuple

from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from rootline.schemas.bytes.bound_codec import Encode, bound_codec
from rootline.schemas.bytes.entry_schema import COUNTS_ONLY, kind_of

_EXACT: Final = Context(prec=80)
LAYOUTS: Final[dict[type[PrimitiveType], str]] = {
    IntegerType: "<i", DateType: "<i", FloatType: "<f", DoubleType: "<d", LongType: "<q", TimeType: "<q",
    TimestampType: "<q", TimestamptzType: "<q", TimestampNanoType: "<q", TimestamptzNanoType: "<q",
}  # fmt: skip
"""Of numbers of a fixed size."""


class BoundBytes(NamedTuple):
    """Encoders of a type's lower and upper bounds: single-value bytes, `None` for a value that cannot be a bound."""

    lower: Callable[[Any], bytes | None]
    upper: Callable[[Any], bytes | None]


@lru_cache(maxsize=1024)
def bound_bytes(kind: PrimitiveType) -> BoundBytes:
    """The encoders for bounds of a column of type `kind`; they take physical values."""
    if isinstance(kind, FloatType | DoubleType):
        pack = struct.Struct(LAYOUTS[type(kind)]).pack
        return BoundBytes(
            lambda value: pack(value or -0.0) if value == value else None,
            lambda value: pack(value or 0.0) if value == value else None,
        )
    encode = _encoder(kind)
    return BoundBytes(encode, encode)


def has_bounds(kind: PrimitiveType) -> bool:
    """Whether bounds of the type are written. Iceberg's Java misreads those of UUIDs, as signed numbers or as texts."""
    return kind_of(kind) != COUNTS_ONLY and not isinstance(kind, UUIDType)


@lru_cache(maxsize=1024)
def partition_encoder(kind: PrimitiveType) -> Encode:
    """The encoder of a partition value, or `None`, as Avro's `["null", T]`; NaN is a value like any other."""
    return bound_codec(kind, allow_nan=True).encode


def _encoder(kind: PrimitiveType) -> Callable[[Any], bytes]:
    layout = LAYOUTS.get(type(kind))
    if layout is not None:
        return struct.Struct(layout).pack
    if isinstance(kind, BooleanType):
        return lambda value: b"\x01" if value else b"\x00"
    if isinstance(kind, StringType):
        return str.encode
    if isinstance(kind, DecimalType):
        return _decimal(kind.scale)
    return bytes


def _decimal(scale: int) -> Callable[[Decimal], bytes]:
    def encode(value: Decimal) -> bytes:
        unscaled = int(_EXACT.scaleb(value, scale))
        magnitude = unscaled if unscaled >= 0 else ~unscaled
        return unscaled.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)

    return encode


__all__ = ["LAYOUTS", "BoundBytes", "bound_bytes", "has_bounds", "partition_encoder"]
