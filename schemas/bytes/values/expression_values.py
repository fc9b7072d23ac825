"""The values of an expression over one or several columns, in physical values.

Owns: functions that are more than one partition transform. Does not own: the transforms (`transform_values`), which
functions there are (`expression_types`), what filters say about them (`rootline.tree`).
Invariants: a value and a column of it give the same result; null in any column makes null.

Source: docs/decisions/0028.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import xor
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform
from pyiceberg.types import PrimitiveType

from rootline.schemas.bytes.values.transform_values import partition_column, partition_value
from rootline.schemas.errors import Invalid
from rootline.schemas.expression_types import Function, function_of
from rootline.schemas.statistics import Bound

_WHOLE_HASH: Final[BucketTransform[Any]] = BucketTransform(2**31)
"""The specification's hash without its sign bit."""


def expression_value(
    text: str, transform: Transform[Any, Any], sources: Sequence[PrimitiveType], values: Sequence[Bound | None]
) -> Bound | None:
    """What the expression makes of one row's `values` of its columns, which have the types `sources`.

    Raises:
        Invalid: `definition-invalid`, the function is unknown or does not go with the types.

    """
    function = _known(text, transform, sources)
    if function is Function.TRANSFORM:
        return partition_value(transform, sources[0], values[0])
    if any(value is None for value in values):
        return None
    if function is Function.LOWER:
        return str(values[0]).lower()
    hashes = (partition_value(_WHOLE_HASH, source, value) for source, value in zip(sources, values, strict=True))
    return reduce(xor, (int(one) for one in hashes if one is not None)) % _buckets(transform)


def expression_column(
    text: str,
    transform: Transform[Any, Any],
    sources: Sequence[PrimitiveType],
    columns: Sequence[pa.Array | pa.ChunkedArray],
) -> pa.Array:
    """What the expression makes of whole columns (of the Arrow types that data files have), as physical values.

    Arguments and `Raises` as `expression_value`.
    """
    function = _known(text, transform, sources)
    if function is Function.TRANSFORM:
        return partition_column(transform, sources[0], columns[0])
    if function is Function.LOWER:
        distinct = partition_column(IdentityTransform(), sources[0], columns[0]).dictionary_encode()
        lowered = pa.array([value.lower() for value in distinct.dictionary.to_pylist()], pa.string())
        return lowered.take(distinct.indices)
    hashes = [partition_column(_WHOLE_HASH, source, column) for source, column in zip(sources, columns, strict=True)]
    whole = pc.cast(reduce(pc.bit_wise_xor, hashes), pa.int64())
    buckets = pa.scalar(_buckets(transform), pa.int64())
    return pc.cast(pc.subtract(whole, pc.multiply(pc.divide(whole, buckets), buckets)), pa.int32())


def _known(text: str, transform: Transform[Any, Any], sources: Sequence[PrimitiveType]) -> Function:
    function = function_of(text, transform, sources)
    if function is Function.UNKNOWN:
        types = ", ".join(str(source) for source in sources)
        raise Invalid("definition-invalid", f"transform {text} cannot be applied to a column of type {types}")
    return function


def _buckets(transform: Transform[Any, Any]) -> int:
    if not isinstance(transform, BucketTransform):
        raise Invalid("definition-invalid", f"transform {transform} does not take several columns")
    return transform.num_buckets
