"""What an expression of a table definition is a function of, and the type of its values.

Owns: which functions this version knows, over which columns. Does not own: their values (`expression_values`), the
expression itself (`table_definition`).
Invariants: what is unknown, or does not go with its columns, is UNKNOWN and has no type; it is kept and never prunes.

Source: the Iceberg specification, "Partition Transforms"; the Single File Commits proposal, "Why and how do we address
having a global field ID space"; docs/decisions/0028.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from pyiceberg.transforms import BucketTransform, Transform, UnknownTransform
from pyiceberg.types import IntegerType, PrimitiveType, StringType

LOWER = "lower"


class Function(Enum):
    """How the values of an expression are made."""

    TRANSFORM = "transform"
    """One of the specification's partition transforms, over one column."""
    BUCKET_OF_SEVERAL = "bucket of several columns"
    LOWER = "lower"
    """A text in lower case."""
    UNKNOWN = "unknown"


def function_of(text: str, transform: Transform[Any, Any], sources: Sequence[PrimitiveType | None]) -> Function:
    """Which function `text`, parsed as `transform`, is over columns of these types (`None`: no primitive column)."""
    known = [source for source in sources if source is not None]
    if not known or len(known) != len(sources):
        return Function.UNKNOWN
    if text == LOWER:
        return Function.LOWER if len(known) == 1 and isinstance(known[0], StringType) else Function.UNKNOWN
    if isinstance(transform, UnknownTransform) or not all(transform.can_transform(source) for source in known):
        return Function.UNKNOWN
    if len(known) == 1:
        return Function.TRANSFORM
    return Function.BUCKET_OF_SEVERAL if isinstance(transform, BucketTransform) else Function.UNKNOWN


def result_type_of(
    function: Function, transform: Transform[Any, Any], sources: Sequence[PrimitiveType | None]
) -> PrimitiveType | None:
    """The type of the function's values; `None` when they have none that can be stored."""
    if function is Function.LOWER:
        return StringType()
    if function is Function.BUCKET_OF_SEVERAL:
        return IntegerType()
    if function is Function.UNKNOWN or sources[0] is None:
        return None
    result = transform.result_type(sources[0])
    return result if isinstance(result, PrimitiveType) else None
