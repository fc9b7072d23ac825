"""Spark's conditions that mean the same as filters of Rootline.

Owns: which do. Does not own: either language. Invariants: a text is read only where both languages give every row the
same answer; elsewhere nothing is pruned, and every change by others is a conflict.

Theory. Spark says NaN is greater than every number, reads moments in the session's time zone, texts in double quotes,
backslashes and doubled quotes in texts. A number with an exponent is floating to it, and a text beside a number
becomes a number, or the number a text. All this stays Spark's alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from pyiceberg.expressions.literals import StringLiteral
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
)

from rootline.schemas.errors import Invalid
from rootline.tree.filter.filter_syntax import Joined, Name, NamePair, Negation, Test, Tree, read_filter
from rootline.tree.filter.filters import BoundFilter, bind_filter
from rootline.tree.rules.isolation_rules import FILTER_CHARS_MAX

_NUMBERS: Final = (DecimalType, IntegerType, LongType)
_WRITTEN_AS_TEXT: Final = (DateType, StringType)
_SAME: Final = (BooleanType, *_NUMBERS, *_WRITTEN_AS_TEXT)
_OTHER_MEANING: Final = re.compile(r"""["\\`]|--|/\*|''|[0-9.][eE]""")


def read_condition(condition: object, schema: Schema) -> BoundFilter | None:
    """The same condition as a filter; `None`: it is Spark's alone."""
    if not isinstance(condition, str) or len(condition) > FILTER_CHARS_MAX or _OTHER_MEANING.search(condition):
        return None
    try:
        bound, tests = bind_filter(condition, schema), list(_tests(read_filter(condition)))
    except Invalid:
        return None
    types = {field.name: field.field_type for field in schema.fields}
    return bound if all(_is_alike(test, types) for test in tests) else None


def _tests(tree: Tree) -> Iterator[Test | NamePair]:
    match tree:
        case Joined(parts=parts):
            for part in parts:
                yield from _tests(part)
        case Negation(inner=inner):
            yield from _tests(inner)
        case _:
            yield tree


def _is_alike(test: Test | NamePair, types: Mapping[str, IcebergType]) -> bool:
    """Whether Spark compares the two sides as they are."""
    if isinstance(test, NamePair):
        left, right = (_type_of(name, types) for name in (test.left, test.right))
        are_numbers = isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS)
        return are_numbers or (isinstance(left, _SAME) and left == right)
    has_texts = any(isinstance(value.literal, StringLiteral) for value in test.values)
    return isinstance(_type_of(test.column, types), _WRITTEN_AS_TEXT if has_texts else _SAME)


def _type_of(name: Name, types: Mapping[str, IcebergType]) -> IcebergType | None:
    """Of a column, not of what is in one."""
    return types.get(name.parts[0]) if len(name.parts) == 1 else None
