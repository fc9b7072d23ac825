"""Casts of a writer's values that lose nothing, and which value it is that does not fit.

Owns: what Arrow's own safe cast would round or refuse without need. Does not own: which types may become which
(`type_promotion`), names in messages (`row_projection`).
Invariants: the result holds the same values, or `pa.ArrowInvalid` is raised; a float is an integer only below the size
at which floats begin to skip integers, because a greater one may have been rounded before it came here.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from rootline.storage.rows.arrow_types import as_type

_WHOLE_UP_TO: Final = {16: 2**11, 32: 2**24, 64: 2**53}
_DECIMAL_DIGITS: Final = 76


def exactly(array: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    """`array` as `arrow_type`. Raises `pa.ArrowInvalid` or `pa.ArrowNotImplementedError` where a value would change."""
    source, types = array.type, pa.types
    if types.is_floating(source) and types.is_integer(arrow_type):
        return _whole(array, arrow_type)
    if types.is_floating(source) and types.is_floating(arrow_type):
        return _unless_changed(array, array.cast(arrow_type))
    if types.is_integer(source) and types.is_decimal(arrow_type):
        return array.cast(pa.decimal256(_DECIMAL_DIGITS, arrow_type.scale)).cast(arrow_type)
    if types.is_timestamp(source) and types.is_date(arrow_type):
        return _unless_changed(array, array.cast(arrow_type))
    if types.is_float16(source):
        return exactly(array.cast(pa.float32()), arrow_type)
    return as_type(array, arrow_type)


def first_misfit(array: pa.Array, arrow_type: pa.DataType) -> int:
    """The place of the first value that `exactly` refuses; there is one."""
    low, high = 0, len(array)  # all before `low` fit, and one before `high` does not
    while high - low > 1:
        middle = (low + high) // 2
        try:
            exactly(array.slice(low, middle - low), arrow_type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            high = middle
        else:
            low = middle
    return low


def _whole(array: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    limit = _WHOLE_UP_TO[array.type.bit_width]
    wide = array.cast(pa.float64())
    cast = wide.cast(arrow_type)
    if pc.any(pc.greater(pc.abs(wide), limit)).as_py():
        raise pa.ArrowInvalid(f"above {limit}, a {array.type} may have been rounded")
    return cast


def _unless_changed(array: pa.Array, cast: pa.Array) -> pa.Array:
    again = cast.cast(array.type)
    same = pc.equal(array, again)
    if pa.types.is_floating(array.type):
        same = pc.or_(same, pc.and_(pc.is_nan(array), pc.is_nan(again)))
    if pc.all(same).as_py() is False:
        raise pa.ArrowInvalid(f"a {array.type} would be rounded to a {cast.type}")
    return cast
