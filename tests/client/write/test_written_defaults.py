"""What a writer puts into columns that it was not given."""

from __future__ import annotations

import datetime as dt
import uuid

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)

from rootline.client.create_drop import build_definition
from rootline.client.data_file_writer import checked_rows
from rootline.client.given_rows import GivenRows
from rootline.schemas.errors import Invalid
from rootline.storage.rows.row_projection import RowProjection, find_by_name, initial_default

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "kind", StringType(), required=True, initial_default="old", write_default="new"),
    NestedField(3, "note", StringType(), required=False, initial_default="old"),
    NestedField(
        4, "pair", StructType(NestedField(5, "x", LongType()), NestedField(6, "y", IntegerType(), write_default=7))
    ),
)
DEFINITION = build_definition(SCHEMA, table_uuid=uuid.UUID(int=3))


def test_a_column_that_is_not_given_is_written_with_its_write_default_and_never_with_the_initial_one() -> None:
    rows = checked_rows(pa.table({"id": [1, 2]}), DEFINITION)
    assert rows.to_pydict() == {"id": [1, 2], "kind": ["new"] * 2, "note": [None] * 2, "pair": [None] * 2}


def test_a_member_of_a_struct_that_is_not_given_has_the_members_own_default() -> None:
    rows = checked_rows(pa.table({"id": [1], "pair": pa.array([{"x": 3}])}), DEFINITION)
    assert rows.column("pair").to_pylist() == [{"x": 3, "y": 7}]


def test_each_row_that_lacks_a_field_has_its_write_default_and_none_is_null() -> None:
    pairs = [{"x": 1}, {"x": 2, "y": None}, {"x": 3, "y": 4}, None]
    rows = [{"id": 1}, {"id": 2, "kind": "k", "note": "n"}, {"id": 3, "kind": "k"}, {"id": 4}]
    together = [row | ({} if pair is None else {"pair": pair}) for row, pair in zip(rows, pairs, strict=True)]
    found = checked_rows(GivenRows.of(together).for_schema(SCHEMA), DEFINITION)
    assert found.column("kind").to_pylist() == ["new", "k", "k", "new"]
    assert found.column("note").to_pylist() == [None, "n", None, None]
    assert found.column("pair").to_pylist() == [{"x": 1, "y": 7}, {"x": 2, "y": None}, {"x": 3, "y": 4}, None]
    with pytest.raises(Invalid, match="column kind is required, but 1 of 2 rows have none"):
        checked_rows(GivenRows.of([{"id": 1, "kind": None}, {"id": 2}]).for_schema(SCHEMA), DEFINITION)
    with pytest.raises(Invalid, match=r"column kind is a string, not int64"):
        checked_rows(GivenRows.of([{"id": 1, "kind": 5}, {"id": 2}]).for_schema(SCHEMA), DEFINITION)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"id": st.integers(0, 9)},
            optional={
                "days": st.none() | st.just([dt.date(2020, 1, 2)]),
                "sizes": st.none() | st.dictionaries(st.sampled_from("ab"), st.integers(0, 9), max_size=2),
                "place": st.fixed_dictionaries(
                    {},
                    optional={
                        "city": st.just("there"),
                        "day": st.none() | st.just(dt.date(2020, 1, 2)),
                        "of": st.none() | st.just(uuid.UUID(int=9)),
                    },
                ),
            },
        ),
        min_size=1,
        max_size=4,
    )
)
def test_rows_given_together_are_written_as_if_each_were_given_alone(rows: list[dict[str, object]]) -> None:
    definition = build_definition(NESTED, table_uuid=uuid.UUID(int=3))

    def written(some: list[dict[str, object]]) -> list[dict[str, object]]:
        return checked_rows(GivenRows.of(some).for_schema(NESTED), definition).to_pylist()

    assert written(rows) == [found for row in rows for found in written([row])]


NESTED = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(
        2,
        "place",
        StructType(
            NestedField(3, "city", StringType(), required=True, initial_default="none", write_default="here"),
            NestedField(4, "day", DateType(), initial_default="2020-01-01"),
            NestedField(5, "of", UUIDType()),
        ),
        required=True,
        initial_default={"3": "there", "5": str(uuid.UUID(int=7))},
        write_default={"4": "2021-02-03"},
    ),
    NestedField(6, "days", ListType(7, DateType()), write_default=["2021-02-03", "2021-02-04"]),
    NestedField(8, "sizes", MapType(9, StringType(), 10, IntegerType()), write_default={"keys": ["a"], "values": [1]}),
)


def test_structs_lists_and_maps_that_are_not_given_are_written_with_their_write_defaults() -> None:
    rows = checked_rows(pa.table({"id": [1, 2]}), build_definition(NESTED, table_uuid=uuid.UUID(int=3)))
    days = [dt.date(2021, 2, 3), dt.date(2021, 2, 4)]
    row = {"place": {"city": "here", "day": days[0], "of": None}, "days": days, "sizes": [("a", 1)]}
    assert rows.to_pylist() == [{"id": 1, **row}, {"id": 2, **row}]


def test_rows_of_before_have_the_initial_default_of_a_struct_and_its_fields_own_where_it_lacks_them() -> None:
    batch = pa.RecordBatch.from_pydict({"id": [1, 2]})
    projection = RowProjection(find_by_name, initial_default, "file-unreadable", "data/a.parquet")
    place = {"city": "there", "day": dt.date(2020, 1, 1), "of": uuid.UUID(int=7)}
    row = {"place": place, "days": None, "sizes": None}
    assert projection.columns(batch, NESTED.fields).to_pylist() == [{"id": 1, **row}, {"id": 2, **row}]


def test_a_whole_number_that_no_float_or_double_has_exactly_is_rounded_as_in_their_columns() -> None:
    struct = StructType(NestedField(3, "x", DoubleType()))
    schema = Schema(
        NestedField(1, "double", DoubleType(), initial_default=2**53 + 1),
        NestedField(2, "struct", struct, initial_default={"3": -(2**63)}),
        NestedField(4, "float", FloatType(), initial_default=2**24 + 1),
        NestedField(5, "great", DoubleType(), initial_default=10**30),
    )
    batch = pa.RecordBatch.from_pydict({"other": [1]})
    [row] = (
        RowProjection(find_by_name, initial_default, "file-unreadable", "a").columns(batch, schema.fields).to_pylist()
    )
    assert row == {"double": 2.0**53, "struct": {"x": -(2.0**63)}, "float": 2.0**24, "great": 1e30}


@pytest.mark.parametrize("default", [{}, {"3": 7}])
def test_a_struct_whose_last_field_was_dropped_still_has_a_default(default: dict[str, int]) -> None:
    outer = StructType(NestedField(4, "x", LongType()), NestedField(5, "inner", StructType(), initial_default={}))
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "empty", StructType(), initial_default=default),
        NestedField(6, "outer", outer, initial_default={"4": 1}),
    )
    batch = pa.RecordBatch.from_pydict({"id": [1, 2]})
    rows = RowProjection(find_by_name, initial_default, "file-unreadable", "a").columns(batch, schema.fields)
    rest = {"empty": {}, "outer": {"x": 1, "inner": {}}}
    assert rows.to_pylist() == [{"id": 1, **rest}, {"id": 2, **rest}]


def test_files_of_before_a_structs_last_field_was_dropped_can_be_read() -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "pair", StructType()))
    given = [{"x": 1}, None, {"x": 2}]
    batch = pa.RecordBatch.from_pydict({"id": [1, 2, 3], "pair": pa.array(given)}).slice(1)
    stored = RowProjection(find_by_name, initial_default, "file-unreadable", "a")
    assert stored.columns(batch, schema.fields).to_pylist() == [{"id": 2, "pair": None}, {"id": 3, "pair": {}}]
    assert stored.columns(batch.slice(1), schema.fields).to_pylist() == [{"id": 3, "pair": {}}], "none of them is null"


def test_a_required_column_without_a_write_default_must_be_given() -> None:
    with pytest.raises(Invalid, match="column id is required, but missing"):
        checked_rows(pa.table({"kind": ["x"]}), DEFINITION)
