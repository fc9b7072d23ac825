"""Steps over Arrow columns that all readers of leaves take: one chunk of several, and a mask for NumPy."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
"""One flag an entry."""


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """The values of `column` as one array; copied only where there are several chunks. A filter may leave none."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def mask_of(flags: pa.Array) -> Mask:
    """Flags without nulls, for NumPy."""
    found: Mask = flags.to_numpy(zero_copy_only=False)
    return found
