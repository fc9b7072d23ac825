"""The layout of new files: terms such as `month(ts)` or `bucket(8, carrier)`, partition fields, sort orders.

Owns: the grammar of terms and of sort orders, a term's name, the steps that change a partition spec or a sort order.
Does not own: ids (`rootline.tree.evolution`), sorting rows (`partition_split`), the rules for a table's sort orders.
Invariants: a column whose name is not a plain word is in double quotes, as in filters. A transform fits its columns. A
term in a sort order has the grammar of `partition_by`, with an optional sign before it and the place of nulls after it.
Nulls are first ascending and last descending unless the term states otherwise, as in Iceberg. Each step applies to the
result of the steps before it. A partition field that the table once had gets its former name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyiceberg.schema import Schema
from pyiceberg.transforms import Transform, UnknownTransform, parse_transform
from pyiceberg.types import NestedField, PrimitiveType

from rootline.client import checks
from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import LOWER, Function, SortField, TableDefinition, function_of
from rootline.tree.evolution.changes import PartitionField
from rootline.tree.evolution.specs_and_orders import (
    IDENTITY,
    Derivation,
    derivation_of,
    member_of,
    partition_field_names,
)

if TYPE_CHECKING:
    from pyiceberg.table.sorting import SortOrder as IcebergOrder

_COLUMN: Final = r"[^\W\d][\w.]*"
_SOURCE: Final = rf'{_COLUMN}|"[^"]+"'
_TERM: Final = re.compile(
    rf"\s*(?:(?P<plain>{_SOURCE})|(?P<function>[A-Za-z]+)\(\s*(?:(?P<width>[0-9]+)\s*,\s*)?"
    rf"(?P<columns>(?:{_SOURCE})(?:\s*,\s*(?:{_SOURCE}))*)\s*\))"
    rf"(?:\s+as\s+(?P<alias>{_COLUMN}))?\s*\Z"
)
_SOURCES: Final = re.compile(_SOURCE)
_PLURALS: Final = {"years": "year", "months": "month", "days": "day", "hours": "hour"}
_WITH_WIDTH: Final = {"bucket", "truncate"}
_WITHOUT_LOWER: Final = ("partition_by", "sort_by")


@dataclass(frozen=True, slots=True)
class Term:
    """A parsed term: column ids, a transform, and its given or default name."""

    source_ids: tuple[int, ...]
    transform: str
    name: str
    is_named: bool = False
    """Whether the term contains the name (`as name`)."""


def parsed_term(argument: str, term: str, schema: Schema) -> Term:
    """`term`, parsed over the columns of `schema`. `argument` is the argument that contains the term, such as
    `partition_by`, and is named in errors.

    Raises:
        Invalid: `definition-invalid`, naming the term.
    """
    where = f"{argument} {term!r}"
    match = _TERM.match(term)
    if match is None:
        raise Invalid("definition-invalid", f"{where}: write column, month(column) or bucket(8, column)")
    columns = [column.strip('"') for column in _SOURCES.findall(match["plain"] or match["columns"])]
    function = (match["function"] or "identity").lower()
    function = _PLURALS.get(function, function)
    if (match["width"] is not None) != (function in _WITH_WIDTH):
        needs = "needs a width first, as in bucket(8, column)" if function in _WITH_WIDTH else "accepts a column only"
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
        raise Invalid("definition-invalid", f"{where}: there is no column {column!r}; name one of {known}") from error


def _check_transform(where: str, text: str, sources: Sequence[NestedField], argument: str) -> None:
    try:
        transform = parse_transform(text)
    except ValueError as error:
        raise Invalid("definition-invalid", f"{where}: {error}") from error
    if isinstance(transform, UnknownTransform) and text != LOWER:
        raise Invalid("definition-invalid", f"{where}: there is no transform {text!r}; use one such as month or bucket")
    if text == LOWER and argument in _WITHOUT_LOWER:
        cannot = "partition" if argument == "partition_by" else "sort"
        raise Invalid("definition-invalid", f"{where}: lower cannot {cannot}; it can be one of `expressions`")
    if len({source.field_id for source in sources}) != len(sources):
        raise Invalid("definition-invalid", f"{where}: {text} names a column twice; name each once")
    types = [source.field_type if isinstance(source.field_type, PrimitiveType) else None for source in sources]
    if function_of(text, transform, types) is Function.UNKNOWN:
        taken = ", ".join(str(source.field_type) for source in sources)
        raise Invalid("definition-invalid", f"{where}: {text} does not accept {taken}; use another transform")


SortBy: TypeAlias = "Sequence[str] | IcebergOrder"
_SORT_TERM: Final = re.compile(r"\s*(?P<sign>[-+]?)(?P<term>.*?)(?:\s+nulls\s+(?P<nulls>first|last))?\s*\Z", re.DOTALL)


def given_order(sort_by: SortBy) -> SortBy:
    """A user's `sort_by`, after a check of its type. Raises `Invalid`."""
    return sort_by if _is_icebergs(sort_by) else checks.texts(sort_by, "sort_by")


def _is_icebergs(sort_by: SortBy) -> bool:
    if isinstance(sort_by, str | list | tuple):
        return False
    from pyiceberg.table.sorting import (
        SortOrder,
    )  # imported late: this takes as long as all other imports of this library

    return isinstance(sort_by, SortOrder)


def split_terms(text: str) -> list[str]:
    """The terms of a comma-separated text, such as `city, -bucket(16, id)`. An empty text has none."""
    terms, depth, start, is_quoted = [], 0, 0, False
    for place, char in enumerate(f"{text},"):
        is_quoted ^= char == '"'
        depth += 0 if is_quoted else (char == "(") - (char == ")")
        if char == "," and depth <= 0 and not is_quoted:
            terms.append(f"{text},"[start:place])
            start = place + 1
    return terms if text.strip() else []


def sort_fields(sort_by: SortBy, schema: Schema) -> tuple[SortField, ...]:
    """The fields of a sort order over the columns of `schema`, empty for an empty list.

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
    match = _SORT_TERM.match(term)
    assert match is not None, "it matches any text"
    parsed = parsed_term("sort_by", match["term"], schema)
    if len(parsed.source_ids) != 1:
        raise Invalid("definition-invalid", f"sort_by {term!r}: a sort field has one column; name one")
    if parsed.is_named:
        raise Invalid("definition-invalid", f"sort_by {term!r}: a sort field has no name; leave out `as {parsed.name}`")
    is_down = match["sign"] == "-"
    nulls = match["nulls"] or ("last" if is_down else "first")
    return SortField(parsed.source_ids[0], parsed.transform, "desc" if is_down else "asc", f"nulls-{nulls}")


def term_text(transform: str, columns: Sequence[str]) -> str:
    """A transform over columns as a term: `city`, `month(ts)`, `bucket(8, id)`."""
    function, _, width = transform.partition("[")
    names = [name if re.fullmatch(_COLUMN, name) else f'"{name}"' for name in columns]
    return names[0] if function == "identity" else f"{function}({', '.join([*filter(None, [width[:-1]]), *names])})"


def sort_term(field: SortField, name: str) -> str:
    """`field` over the column `name`, in the grammar of `sort_by`. The place of nulls is written unless it is the
    default.
    """
    of = term_text(field.transform, [name])
    usual = "nulls-last" if field.direction == "desc" else "nulls-first"
    nulls = "" if field.null_order == usual else f" {field.null_order.replace('-', ' ')}"
    return f"{'-' if field.direction == 'desc' else ''}{of}{nulls}"


PartitionTransform = str | Transform[Any, Any]


@dataclass(frozen=True, slots=True)
class Layout:
    """The state that a step changes: columns, fields of the partition spec, and fields of the sort order."""

    definition: TableDefinition
    schema: Schema
    spec: tuple[PartitionField, ...]
    order: tuple[SortField, ...]

    @staticmethod
    def of(definition: TableDefinition) -> Layout:
        """The current layout of a table."""
        spec = definition.spec_by_id(definition.default_spec_id)
        names = partition_field_names(definition, spec)
        fields = tuple(
            PartitionField(*derivation_of(definition, member), name)
            for member, name in zip(spec.expr_ids, names, strict=True)
        )
        orders = {order.order_id: order.fields for order in definition.sort_orders}
        return Layout(definition, definition.schema, fields, orders.get(definition.default_sort_order_id, ()))

    def with_field(self, term: str, transform: PartitionTransform | None, name: str | None) -> Layout:
        """The layout with one more partition field.

        Raises:
            Invalid: `definition-invalid`, naming the term.
        """
        parsed = self._term(term, transform)
        derivation = parsed.source_ids, parsed.transform
        if any((field.source_ids, field.transform) == derivation for field in self.spec):
            raise Invalid("definition-invalid", f"{term!r}: the table is partitioned by it already; leave it out")
        found = name or (parsed.name if parsed.is_named else self._known_name(derivation) or self._free_name(parsed))
        if any(field.name == found for field in self.spec):
            raise Invalid(
                "definition-invalid", f"partition field {term!r}: there is one named {found!r}; give another name"
            )
        return replace(self, spec=(*self.spec, PartitionField(*derivation, found)))

    def without_field(self, name: str) -> Layout:
        """The layout without the partition field that has this name, or whose term is `name`.

        Raises:
            Invalid: `definition-invalid`, there is no such field.
        """
        place = self._place_of(name)
        return replace(self, spec=(*self.spec[:place], *self.spec[place + 1 :]))

    def with_name(self, name: str, new: str) -> Layout:
        """The layout with a renamed partition field. Raises the errors of `without_field`, and if the new name is
        taken.
        """
        place = self._place_of(name)
        if any(field.name == new for field in self.spec):
            raise Invalid("definition-invalid", f"partition field {name!r}: {new!r} is taken; choose another name")
        renamed = replace(self.spec[place], name=new)
        return replace(self, spec=(*self.spec[:place], renamed, *self.spec[place + 1 :]))

    def _place_of(self, name: str) -> int:
        for place, field in enumerate(self.spec):
            if field.name == name:
                return place
        try:
            parsed = parsed_term("partition_by", name, self.schema)
        except Invalid:
            parsed = None
        for place, field in enumerate(self.spec):
            if parsed is not None and (field.source_ids, field.transform) == (parsed.source_ids, parsed.transform):
                return place
        known = ", ".join(field.name for field in self.spec) or "none"
        raise Invalid("definition-invalid", f"there is no partition field {name!r}; the table has: {known}")

    def _term(self, term: str, transform: PartitionTransform | None) -> Term:
        if transform is None:
            return parsed_term("partition_by", term, self.schema)
        function, _, width = str(transform).strip().removesuffix("]").removesuffix(")").replace("(", "[").partition("[")
        column = f'"{term}"' if '"' not in term else term
        return parsed_term("partition_by", f"{function}({f'{width}, ' if width else ''}{column})", self.schema)

    def _known_name(self, derivation: Derivation) -> str | None:
        """The name of this partition field in the newest spec that has the field. `None` if no spec has it, or if
        another field or column has the name.
        """
        member = member_of(self.definition, derivation)
        for spec in reversed(self.definition.partition_specs):
            if member in spec.expr_ids:
                name = partition_field_names(self.definition, spec)[spec.expr_ids.index(member)]
                owner = self.schema.find_field(name).field_id if name in self.schema.column_names else None
                is_free = owner is None or (derivation[1] == IDENTITY and derivation[0] == (owner,))
                return name if is_free and all(field.name != name for field in self.spec) else None
        return None

    def _free_name(self, parsed: Term) -> str:
        if parsed.transform == IDENTITY:
            return self.schema.find_column_name(parsed.source_ids[0]) or parsed.name
        taken = {field.name for field in self.spec} | set(self.schema.column_names)
        wider = parsed.transform.replace("[", "_").removesuffix("]")
        return parsed.name if parsed.name not in taken else f"{parsed.name.rpartition('_')[0]}_{wider}"
