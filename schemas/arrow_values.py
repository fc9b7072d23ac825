"""Arrow arrays and scalars of plain values, made from their bytes.

pyarrow's own conversions of Python values import pandas where it is installed, which takes longer than a large plan.
What every scan needs is therefore made here. pyarrow converts rare values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

_DTYPES: Final[dict[pa.DataType, np.dtype[Any]]] = {
    pa.int32(): np.dtype(np.int32),
    pa.int64(): np.dtype(np.int64),
    pa.float32(): np.dtype(np.float32),
    pa.float64(): np.dtype(np.float64),
}


def scalar_from(value: Any, kind: pa.DataType) -> pa.Scalar:
    """`value` as a scalar of type `kind`. Raises Arrow's errors if it does not fit."""
    return pa.nulls(1, kind)[0] if value is None else values_from([value], kind)[0]


def values_from(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """`values`, none of them null, as an array of type `kind`. Raises Arrow's errors if one does not fit.

    Dates, times and timestamps may be whole numbers of the type's unit.
    """
    made = _made(values, kind)
    return pa.array(values, kind) if made is None else made


def _made(values: Sequence[Any], kind: pa.DataType) -> pa.Array | None:
    """The array, or `None` if pyarrow must convert or refuse the values."""
    types = {type(value) for value in values}
    if pa.types.is_boolean(kind) and types <= {bool}:
        return array_from(np.array(values, np.bool_))
    if kind in _DTYPES and pa.types.is_integer(kind) and types <= {int, bool}:
        return array_from(values).cast(kind)
    if kind in _DTYPES and pa.types.is_floating(kind) and types <= {float}:
        return array_from(np.array(values, np.float64)).cast(kind)
    if pa.types.is_temporal(kind) and types <= {int}:
        return array_from(values).cast(pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
    if kind == pa.string() and types <= {str}:
        return _of_any_length([text.encode() for text in values], kind)
    if kind == pa.binary() and types <= {bytes}:
        return _of_any_length(values, kind)
    fitting: Sequence[bytes] = ()
    if pa.types.is_fixed_size_binary(kind) and types <= {bytes}:
        fitting = [value for value in values if len(value) == kind.byte_width]
    elif pa.types.is_decimal128(kind) and types <= {Decimal}:
        fitting = [found for value in values if (found := _unscaled(value, kind)) is not None]
    if len(fitting) < len(values):
        return None
    return pa.Array.from_buffers(kind, len(fitting), [None, pa.py_buffer(b"".join(fitting))])


def array_from(values: np.ndarray[Any, Any] | Iterable[int]) -> pa.Array:
    """Numbers or booleans from numpy as an array. Integers from Python become `int64`."""
    found = values if isinstance(values, np.ndarray) else np.fromiter(values, np.int64)
    kind = pa.from_numpy_dtype(found.dtype)
    if found.dtype == np.bool_:
        return pa.Array.from_buffers(kind, len(found), [None, pa.py_buffer(np.packbits(found, bitorder="little"))])
    return pa.Array.from_buffers(kind, len(found), [None, pa.py_buffer(np.ascontiguousarray(found))])


def numpy_from(array: pa.Array) -> np.ndarray[Any, Any]:
    """Numbers or booleans without nulls as an array of numpy. Numbers are not copied."""
    if array.null_count:
        return array.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
    if array.type == pa.bool_():
        return _view(array.cast(pa.uint8()), np.dtype(np.uint8)).astype(np.bool_)
    dtype = _DTYPES.get(array.type)
    return array.to_numpy(zero_copy_only=False) if dtype is None else _view(array, dtype)


def _view(array: pa.Array, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    return np.frombuffer(array.buffers()[1] or b"", dtype, len(array), array.offset * dtype.itemsize)


def _of_any_length(data: Sequence[bytes], kind: pa.DataType) -> pa.Array:
    ends = np.cumsum([0, *map(len, data)], dtype=np.int32)
    return pa.Array.from_buffers(kind, len(data), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(data))])


def _unscaled(value: Decimal, kind: pa.DataType) -> bytes | None:
    """The bytes of `value` in a column of type `kind`, or `None` if it does not fit."""
    if not value.is_finite():
        return None
    numerator, denominator = value.as_integer_ratio()
    number, rest = divmod(numerator * 10**kind.scale, denominator)
    return None if rest or abs(number) >= 10**kind.precision else number.to_bytes(16, "little", signed=True)


TRUE: Final = scalar_from(True, pa.bool_())
FALSE: Final = scalar_from(False, pa.bool_())
ZERO: Final = scalar_from(0, pa.int64())
