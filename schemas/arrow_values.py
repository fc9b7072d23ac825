"""Arrow arrays and scalars of plain values, made from their bytes.

pyarrow's own conversions of Python values import pandas where it is installed, which takes longer than a large plan.
What every scan needs is therefore made here. pyarrow converts rare values.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

_INTEGERS: Final = {pa.int32(): ("<i", 2**31), pa.int64(): ("<q", 2**63)}
_DTYPES: Final[dict[pa.DataType, np.dtype[Any]]] = {
    pa.int32(): np.dtype(np.int32),
    pa.int64(): np.dtype(np.int64),
    pa.float64(): np.dtype(np.float64),
}


def scalar_from(value: Any, kind: pa.DataType) -> pa.Scalar:
    """`value` as a scalar of type `kind`. Raises Arrow's errors if it does not fit."""
    if value is None:
        return pa.nulls(1, kind)[0]
    if isinstance(value, bool) and kind == pa.bool_():
        return _first(kind, bytes([value]))
    if isinstance(value, int) and kind in _INTEGERS:
        form, end = _INTEGERS[kind]
        if -end <= value < end:
            return _first(kind, struct.pack(form, value))
    if isinstance(value, float) and kind == pa.float64():
        return _first(kind, struct.pack("<d", value))
    if isinstance(value, str) and kind == pa.string():
        return _texts([value])[0]
    return pa.scalar(value, kind)


def values_from(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """`values`, none of them null, as an array of type `kind`. Raises Arrow's errors if one does not fit."""
    if kind in _INTEGERS and all(isinstance(value, int) for value in values):
        return array_from(values).cast(kind)
    if kind == pa.string() and all(isinstance(value, str) for value in values):
        return _texts(values)
    return pa.array(values, kind)


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


def _first(kind: pa.DataType, data: bytes) -> pa.Scalar:
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(data)])[0]


def _texts(texts: Sequence[str]) -> pa.Array:
    data = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, data)], dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(data), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(data))])


TRUE: Final = scalar_from(True, pa.bool_())
FALSE: Final = scalar_from(False, pa.bool_())
ZERO: Final = scalar_from(0, pa.int64())
