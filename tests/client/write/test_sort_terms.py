"""Sort orders as users write them."""

from __future__ import annotations

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType

from rootline.client.layout_terms import sort_fields, sort_term, split_terms
from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import SortField

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "nulls", StringType()),
    NestedField(3, "at", StructType(NestedField(4, "x", LongType()))),
    NestedField(5, "a b", StringType()),
)
TERMS = {
    "id": SortField(1),
    "-id": SortField(1, "identity", "desc", "nulls-last"),
    "id nulls last": SortField(1, "identity", "asc", "nulls-last"),
    "-nulls nulls first": SortField(2, "identity", "desc", "nulls-first"),
    "at.x": SortField(4),
    "-bucket(16, at.x)": SortField(4, "bucket[16]", "desc", "nulls-last"),
    '"a b" nulls last': SortField(5, "identity", "asc", "nulls-last"),
    'truncate(4, "a b")': SortField(5, "truncate[4]"),
}


@pytest.mark.parametrize("term", TERMS)
def test_a_term_is_a_field_and_is_written_again_as_it_was(term: str) -> None:
    [field] = sort_fields([term], SCHEMA)
    assert field == TERMS[term]
    assert sort_term(field, SCHEMA.find_column_name(field.source_id) or "") == term


@pytest.mark.parametrize(
    "term", ["", "-", "--id", "id desc", "id nulls", "nulls first first", "bucket(4, id) as b", "lower(nulls)", "at"]
)
def test_what_is_no_term_is_refused(term: str) -> None:
    with pytest.raises(Invalid, match="sort_by") as raised:
        sort_fields([term], SCHEMA)
    assert raised.value.code == "definition-invalid"


def test_a_list_is_split_at_commas_that_are_not_in_brackets_or_quotes() -> None:
    assert split_terms("id, -bucket(16, id) nulls first,nulls") == ["id", " -bucket(16, id) nulls first", "nulls"]
    assert split_terms('-"a, b(", id') == ['-"a, b("', " id"]
    assert split_terms("  ") == []
    assert split_terms("id,") == ["id", ""], "which is refused, as a term"
