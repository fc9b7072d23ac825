"""How a user says a sort order: `["city", "-ts", "bucket(16, id)"]`, or PyIceberg's `SortOrder`.

Owns: the grammar, and the order of nulls that follows from the direction. Does not own: what sorting by it means
(`partition_split`), which orders a table may have (`definition_rules`).
Invariants: a term is that of `partition_by`, with a sign before it and the place of nulls behind it; nulls are first
ascending and last descending unless it says otherwise, as in Iceberg.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from pyiceberg.schema import Schema

from rootline.client import checks
from rootline.client.write.definition_terms import parsed_term
from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import SortField

if TYPE_CHECKING:
    from pyiceberg.table.sorting import SortOrder as IcebergOrder

SortBy: TypeAlias = "Sequence[str] | IcebergOrder"
_TERM: Final = re.compile(r"\s*(?P<sign>[-+]?)(?P<term>.*?)(?:\s+nulls\s+(?P<nulls>first|last))?\s*\Z", re.DOTALL)


def given_order(sort_by: SortBy) -> SortBy:
    """`sort_by` as a user gave it, checked for its type. Raises `Invalid`."""
    return sort_by if _is_icebergs(sort_by) else checks.texts(sort_by, "sort_by")


def _is_icebergs(sort_by: SortBy) -> bool:
    if isinstance(sort_by, str | list | tuple):
        return False
    from pyiceberg.table.sorting import SortOrder  # takes as long as the rest of this library

    return isinstance(sort_by, SortOrder)


def split_terms(text: str) -> list[str]:
    """Terms that are written with commas between them, such as `city, -bucket(16, id)`; none of an empty text."""
    terms, depth, start, is_quoted = [], 0, 0, False
    for place, char in enumerate(f"{text},"):
        is_quoted ^= char == '"'
        depth += 0 if is_quoted else (char == "(") - (char == ")")
        if char == "," and depth <= 0 and not is_quoted:
            terms.append(f"{text},"[start:place])
            start = place + 1
    return terms if text.strip() else []


def sort_fields(sort_by: SortBy, schema: Schema) -> tuple[SortField, ...]:
    """The fields of an order over the columns of `schema`; none for an empty list.

    Raises:
        Invalid: `definition-invalid`, naming the term.

    """
    if not isinstance(sort_by, Sequence):
        return tuple(
            SortField(field.source_id, str(field.transform), field.direction.value, field.null_order.value)
            for field in sort_by.fields
        )
    return tuple(_field(term, schema) for term in sort_by)


def _field(term: str, schema: Schema) -> SortField:
    match = _TERM.match(term)
    assert match is not None, "it matches any text"
    parsed = parsed_term("sort_by", match["term"], schema)
    if len(parsed.source_ids) != 1:
        raise Invalid("definition-invalid", f"sort_by {term!r}: a sort field has one column")
    if parsed.is_named:
        raise Invalid("definition-invalid", f"sort_by {term!r}: a sort field has no name; leave out `as {parsed.name}`")
    is_down = match["sign"] == "-"
    nulls = match["nulls"] or ("last" if is_down else "first")
    return SortField(parsed.source_ids[0], parsed.transform, "desc" if is_down else "asc", f"nulls-{nulls}")


def sort_term(field: SortField, name: str) -> str:
    """`field` over the column called `name`, as `sort_by` takes it; the place of nulls where it is not the usual."""
    transform, _, width = field.transform.partition("[")
    quoted = name if re.fullmatch(r"[^\W\d][\w.]*", name) else f'"{name}"'
    of = quoted if transform == "identity" else f"{transform}({f'{width[:-1]}, ' if width else ''}{quoted})"
    usual = "nulls-last" if field.direction == "desc" else "nulls-first"
    nulls = "" if field.null_order == usual else f" {field.null_order.replace('-', ' ')}"
    return f"{'-' if field.direction == 'desc' else ''}{of}{nulls}"
