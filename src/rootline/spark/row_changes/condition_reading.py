"""Spark's conditions that mean the same as filters of Rootline.

Owns: which do. Does not own: either language. Invariants: a text is read only where both languages give every row the
same answer; elsewhere nothing is pruned, and every change by others is a conflict.

Theory. Spark says NaN is greater than every number, reads moments in the session's time zone, texts in double quotes
and backslashes in texts. So floating and zoned columns, quotes and backslashes stay Spark's alone.
"""

from __future__ import annotations

from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, DateType, DecimalType, IntegerType, LongType, StringType

from rootline.schemas.errors import Invalid
from rootline.tree.filter.filters import BoundFilter, bind_filter

_SAME: Final = (BooleanType, DateType, DecimalType, IntegerType, LongType, StringType)
_OTHER_MEANING: Final = ('"', "\\", "`", "--", "/*")


def read_condition(condition: object, schema: Schema) -> BoundFilter | None:
    """The same condition as a filter; `None`: it is Spark's alone."""
    if not isinstance(condition, str) or any(mark in condition for mark in _OTHER_MEANING):
        return None
    try:
        bound = bind_filter(condition, schema)
    except Invalid:
        return None
    own = {field.field_id: field.field_type for field in schema.fields}
    is_same = all(isinstance(own.get(field_id), _SAME) for field_id in bound.field_ids)
    return bound if is_same else None
