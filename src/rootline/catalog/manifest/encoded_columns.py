"""Columns of Avro encodings: for each row the bytes of one value, made for all rows at once.

Owns: numbers, texts and fixed-size values as columns of bytes, and joining them into rows. Does not own: which values
a row has (`leaf_chunk_encoder`).
Invariants: each row has the same bytes that `rootline.schemas.bytes.avro_encoding` makes.

Source: the Avro 1.12 specification, "Binary encoding".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask = npt.NDArray[np.bool_]
Piece: TypeAlias = "pa.Array | pa.Scalar"
"""A column of bytes, or the same bytes in every row; null stands for no byte."""

_VARINT_BYTES_MAX: Final = 10
_LONG_BYTES: Final = 8


def constant(data: bytes) -> Piece:
    """The same bytes in every row."""
    found: Piece = pa.scalar(data, pa.binary())
    return found


def validity(column: pa.Array) -> Mask:
    """Which rows have a value."""
    found: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def longs(column: pa.Array, *, prefix: bytes = b"", null: bytes = b"", where: Mask | None = None) -> pa.Array:
    """Varints of an integer column, each after `prefix`; `null` if there is no value, or where `where` is false."""
    valid = validity(column) if where is None else where
    values = _numbers(column).astype(np.int64, copy=False)
    zigzag = ((values << 1) ^ (values >> 63)).view(np.uint64)
    sizes = np.ones(len(values), np.int64)
    for place in range(1, _VARINT_BYTES_MAX):
        longer = zigzag >= np.uint64(1 << (7 * place))
        if not longer.any():
            break
        sizes += longer
    widest = int(sizes.max(initial=1))
    start = len(prefix)
    matrix = np.empty((len(values), max(start + widest, len(null))), np.uint8)
    matrix[:, :start] = np.frombuffer(prefix, np.uint8)
    for place in range(widest):
        low = (zigzag >> np.uint64(7 * place)).astype(np.uint8) & np.uint8(0x7F)
        matrix[:, start + place] = low | ((sizes > place + 1).astype(np.uint8) << 7)
    return _rows_of(matrix, sizes + start, valid, null)


def fixed(values: npt.NDArray[Any], prefix: bytes, where: Mask) -> pa.Array:
    """The little-endian bytes of each number after `prefix`; none where `where` is false."""
    size = values.dtype.itemsize
    plain = values.view(np.uint8).reshape(len(values), size)
    matrix = np.empty((len(values), len(prefix) + size), np.uint8)
    matrix[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
    matrix[:, len(prefix) :] = plain
    return _rows_of(matrix, np.full(len(values), matrix.shape[1], np.int64), where, b"")


def short_decimals(unscaled: npt.NDArray[np.int64], prefix: bytes, where: Mask) -> pa.Array:
    """Length and fewest big-endian bytes of each unscaled value after `prefix`; none where `where` is false."""
    magnitude = np.where(unscaled < 0, ~unscaled, unscaled)
    sizes = np.ones(len(unscaled), np.int64)
    for place in range(1, _LONG_BYTES):
        sizes += magnitude >= np.int64(1) << np.int64(8 * place - 1)
    start = len(prefix) + 1
    matrix = np.zeros((len(unscaled), start + _LONG_BYTES), np.uint8)
    matrix[:, : start - 1] = np.frombuffer(prefix, np.uint8)
    matrix[:, start - 1] = sizes * 2  # a length below 64 as a varint
    for place in range(_LONG_BYTES):
        matrix[:, start + place] = unscaled >> np.maximum(8 * (sizes - 1 - place), 0) & 0xFF
    return _rows_of(matrix, sizes + start, where, b"")


def texts(column: pa.Array, *, prefix: bytes = b"", null: bytes = b"", where: Mask | None = None) -> list[Piece]:
    """Two columns that follow each other: lengths, each after `prefix`, and bytes of a text or binary column."""
    if pa.types.is_fixed_size_binary(column.type):
        column = column.cast(pa.binary())
    plain = column.view(pa.binary()) if pa.types.is_string(column.type) else column
    if where is not None:
        plain = pc.if_else(pa.array(where), plain, pa.scalar(None, pa.binary()))
    return [longs(pc.binary_length(plain), prefix=prefix, null=null), plain]


def looked_up(column: pa.Array, encode: Callable[[Any], bytes | None]) -> pa.Array:
    """The result of `encode` for each value; it is called once for each different value, null included."""
    coded = column.dictionary_encode(null_encoding="encode")
    made = [encode(value) for value in coded.dictionary.to_pylist()]
    return pa.array(made, pa.binary()).take(coded.indices)


def joined(pieces: Sequence[Piece]) -> list[bytes]:
    """The rows: their pieces in order."""
    rows = pc.binary_join_element_wise(*pieces, constant(b""), null_handling="replace", null_replacement=b"")
    found: list[bytes] = rows.to_pylist()
    return found


def _numbers(column: pa.Array) -> npt.NDArray[Any]:
    plain = pc.fill_null(column, 0) if column.null_count else column
    found: npt.NDArray[Any] = plain.to_numpy(zero_copy_only=False)
    return found


def _rows_of(matrix: npt.NDArray[np.uint8], sizes: npt.NDArray[np.int64], valid: Mask, null: bytes) -> pa.Array:
    """A column of the first `sizes` bytes of each row of the matrix, `null` for those that are not valid."""
    if not valid.all():
        matrix[~valid, : len(null)] = np.frombuffer(null, np.uint8)
        sizes = np.where(valid, sizes, len(null))
    width = matrix.shape[1]
    if len(sizes) and int(sizes.min()) < width:
        data = matrix[np.arange(width) < sizes[:, np.newaxis]]
    else:
        data = np.ascontiguousarray(matrix).reshape(-1)
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), len(sizes), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


__all__ = ["Mask", "Piece", "constant", "fixed", "joined", "longs", "looked_up", "short_decimals", "texts", "validity"]
