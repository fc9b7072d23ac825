"""Terms such as `month(ts)` or `bucket(8, carrier)`, of which partitioning, expressions and sort orders are made.

Owns: their grammar, what a term is of, and its name. Does not own: ids of expressions (`definition_builder`), the signs
of sort orders (`sort_terms`).
Invariants: a column whose name is no word is in double quotes, as in filters; a transform fits its columns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.transforms import UnknownTransform, parse_transform
from pyiceberg.types import NestedField, PrimitiveType

from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import LOWER, Function, function_of

_COLUMN: Final = r"[^\W\d][\w.]*"
_SOURCE: Final = rf'{_COLUMN}|"[^"]+"'
_TERM: Final = re.compile(
    rf"\s*(?:(?P<plain>{_SOURCE})|(?P<function>[a-z]+)\(\s*(?:(?P<width>[0-9]+)\s*,\s*)?"
    rf"(?P<columns>(?:{_SOURCE})(?:\s*,\s*(?:{_SOURCE}))*)\s*\))"
    rf"(?:\s+as\s+(?P<alias>{_COLUMN}))?\s*\Z"
)
_SOURCES: Final = re.compile(_SOURCE)
_PLURALS: Final = {"years": "year", "months": "month", "days": "day", "hours": "hour"}
_WITH_WIDTH: Final = {"bucket", "truncate"}
_WITHOUT_LOWER: Final = ("partition_by", "sort_by")


@dataclass(frozen=True, slots=True)
class Term:
    """What a term is of: columns by id, a transform, and the name that it has or would be given."""

    source_ids: tuple[int, ...]
    transform: str
    name: str
    is_named: bool = False
    """Whether the term itself gives the name."""


def parsed_term(argument: str, term: str, schema: Schema) -> Term:
    """`term` over the columns of `schema`; `argument` is what an error calls the list that it is in.

    Raises:
        Invalid: `definition-invalid`, naming the term.

    """
    where = f"{argument} {term!r}"
    match = _TERM.match(term)
    if match is None:
        raise Invalid("definition-invalid", f"{where}: write column, month(column) or bucket(8, column)")
    columns = [column.strip('"') for column in _SOURCES.findall(match["plain"] or match["columns"])]
    function = _PLURALS.get(match["function"] or "identity", match["function"] or "identity")
    if (match["width"] is not None) != (function in _WITH_WIDTH):
        needs = "needs a width first, as in bucket(8, column)" if function in _WITH_WIDTH else "takes a column only"
        raise Invalid("definition-invalid", f"{where}: {function} {needs}")
    text = f"{function}[{match['width']}]" if match["width"] else function
    sources = [_column(where, column, schema) for column in columns]
    _check_transform(where, text, sources, argument)
    if function == "identity" and match["alias"]:
        raise Invalid(
            "definition-invalid", f"{where}: a plain column keeps its own name; leave out `as {match['alias']}`"
        )
    names = "_".join(column.replace(".", "_") for column in columns)
    return Term(
        tuple(source.field_id for source in sources),
        text,
        match["alias"] or f"{names}_{function}",
        bool(match["alias"]),
    )


def _column(where: str, column: str, schema: Schema) -> NestedField:
    try:
        return schema.find_field(column)
    except ValueError as error:
        known = ", ".join(field.name for field in schema.fields)
        raise Invalid(
            "definition-invalid", f"{where}: there is no column {column!r}; the columns are {known}"
        ) from error


def _check_transform(where: str, text: str, sources: Sequence[NestedField], argument: str) -> None:
    try:
        transform = parse_transform(text)
    except ValueError as error:
        raise Invalid("definition-invalid", f"{where}: {error}") from error
    if isinstance(transform, UnknownTransform) and text != LOWER:
        raise Invalid("definition-invalid", f"{where}: there is no transform {text!r}")
    if text == LOWER and argument in _WITHOUT_LOWER:
        cannot = "partition" if argument == "partition_by" else "sort"
        raise Invalid("definition-invalid", f"{where}: lower cannot {cannot}; it can be one of `expressions`")
    if len({source.field_id for source in sources}) != len(sources):
        raise Invalid("definition-invalid", f"{where}: {text} names a column twice; name each once")
    types = [source.field_type if isinstance(source.field_type, PrimitiveType) else None for source in sources]
    if function_of(text, transform, types) is Function.UNKNOWN:
        taken = ", ".join(str(source.field_type) for source in sources)
        raise Invalid("definition-invalid", f"{where}: {text} does not take {taken}")
