"""Maps as other libraries write them: structs whose members are the keys, and lists of pairs.

Owns: their form. Does not own: keys and values, which the caller casts (`row_projection`).
Invariants: rows stay in order; a member that is null is no entry of the map, because that is how a struct says that a
row does not have it.

Source: docs/decisions/0058.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

_PAIR = ("key", "value")


def is_list_of_pairs(arrow: pa.DataType) -> bool:
    """Whether it is a list of structs of `key` and `value`."""
    if not pa.types.is_list(arrow):
        return False
    pair = arrow.value_type
    return bool(pa.types.is_struct(pair)) and tuple(pair.field(at).name for at in range(pair.num_fields)) == _PAIR


def pairs_as_map(array: pa.ListArray) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Offsets (null for a row without a map), keys and values of a list of pairs."""
    entries = array.flatten()
    keys, values = entries.flatten()
    lengths = np.asarray(array.value_lengths().fill_null(0), dtype=np.int64)
    return _offsets(lengths, array), keys, values


def struct_as_map(
    array: pa.StructArray, names: Sequence[str], members: Sequence[pa.Array], value_type: pa.DataType
) -> tuple[pa.Array, pa.Array, pa.Array]:
    """The same of a struct, whose `members` are of `value_type` and null where the struct is."""
    rows, width = len(array), len(members)
    if not width:
        return _offsets(np.zeros(rows, dtype=np.int64), array), pa.array([], pa.string()), pa.nulls(0, value_type)
    held = np.stack([member.is_valid().to_numpy(zero_copy_only=False) for member in members], axis=1)
    row, member = np.nonzero(held)  # row by row, and in a row by member
    values = pa.concat_arrays(members).take(pa.array(member * rows + row))
    return _offsets(held.sum(axis=1), array), pa.array(list(names), pa.string()).take(pa.array(member)), values


def _offsets(lengths: np.ndarray[tuple[int], np.dtype[np.int64]], array: pa.Array) -> pa.Array:
    ends = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
    missing = np.concatenate([array.is_null().to_numpy(zero_copy_only=False), np.zeros(1, dtype=np.bool_)])
    return pa.array(ends, pa.int32(), mask=missing)
