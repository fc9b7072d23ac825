"""Rows that are in two tables alike, and therefore in neither of the results.

Owns: telling equal rows, each as often as it is there. Does not own: which rows are compared (`change_rows`).
Invariants: of n equal rows on one side and m on the other, the smaller number goes from both; order is kept; null is
equal to null, and NaN to NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rootline.storage.rows.arrow_types import storage_of

_Numbers = np.ndarray[Any, np.dtype[np.int64]]


def without_equal_rows(left: pa.Table, right: pa.Table, compared: Sequence[int]) -> tuple[pa.Table, pa.Table]:
    """What is left of two tables of one schema when rows that are equal in the columns at `compared` cancel out."""
    if not len(left) or not len(right):
        return left, right
    codes = _codes(pa.concat_tables([left, right]), compared)
    ours, theirs = codes[: len(left)], codes[len(left) :]
    kinds = int(codes.max(initial=-1)) + 1
    pairs = np.minimum(np.bincount(ours, minlength=kinds), np.bincount(theirs, minlength=kinds))
    if not pairs.any():
        return left, right
    return (
        left.filter(pa.array(_occurrences(ours) >= pairs[ours])),
        right.filter(pa.array(_occurrences(theirs) >= pairs[theirs])),
    )


def _codes(rows: pa.Table, compared: Sequence[int]) -> _Numbers:
    """A number for each row, equal for equal rows and less than the number of rows."""
    codes: _Numbers = np.zeros(len(rows), np.int64)
    for place in compared:
        more = _codes_of(rows.column(place))
        codes = codes * (int(more.max(initial=0)) + 1) + more  # less than the square of the number of rows
        codes = np.unique(codes, return_inverse=True)[1].reshape(-1).astype(np.int64, copy=False)
    return codes


def _codes_of(column: pa.ChunkedArray) -> _Numbers:
    if pa.types.is_nested(column.type):
        column = pa.chunked_array([pa.array(list(map(repr, column.to_pylist())), pa.large_string())])
    plain = pa.chunked_array([storage_of(chunk) for chunk in column.chunks])
    chunks = plain.dictionary_encode().unify_dictionaries().chunks
    places = (chunk.indices.cast(pa.int64()).fill_null(-1) for chunk in chunks)
    return np.concatenate([array.to_numpy(zero_copy_only=False) + 1 for array in places])


def _occurrences(codes: _Numbers) -> _Numbers:
    """For each row how many equal ones are before it."""
    order = np.argsort(codes, kind="stable")
    ascending = codes[order]
    found = np.empty(len(codes), np.int64)
    found[order] = np.arange(len(codes)) - np.searchsorted(ascending, ascending, "left")
    return found
