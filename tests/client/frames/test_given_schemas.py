"""A new table's schema, in every form that a user has it in."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from rootline.client.given_schema import given_schema
from rootline.client.lake import Lake
from rootline.schemas.errors import Invalid

FLIGHTS = Schema(
    NestedField(1, "flight", LongType(), required=False),
    NestedField(2, "carrier", StringType(), required=False),
    NestedField(3, "delay", DoubleType(), required=False),
    NestedField(4, "is_late", BooleanType(), required=False),
)
COLUMNS: dict[str, Any] = {"flight": [1, 2], "carrier": ["UA", None], "delay": [0.5, None], "is_late": [True, False]}


@pytest.mark.parametrize(
    "given",
    [
        FLIGHTS,
        FLIGHTS.as_struct(),
        pa.table(COLUMNS).schema,
        pa.table(COLUMNS),
        pa.table(COLUMNS).to_batches()[0],
        pa.table(COLUMNS).to_reader(),
        pd.DataFrame(COLUMNS),
        pd.DataFrame(COLUMNS).set_index("flight"),
        pd.DataFrame(COLUMNS)[lambda frame: frame.flight > 0],
        pd.DataFrame(COLUMNS).convert_dtypes(convert_floating=False),
        pl.DataFrame(COLUMNS),
        pl.DataFrame(COLUMNS).lazy(),
        pl.DataFrame(COLUMNS).schema,
        pl.DataFrame(COLUMNS).with_columns(pl.col("carrier").cast(pl.Categorical)),
        {"flight": "long", "carrier": "string", "delay": "double", "is_late": "boolean"},
        {"flight": "int64", "carrier": "utf8", "delay": "float64", "is_late": "bool"},
        {"flight": int, "carrier": str, "delay": float, "is_late": bool},
        {"flight": pa.int64(), "carrier": pa.large_string(), "delay": pa.float64(), "is_late": pa.bool_()},
        {"flight": LongType(), "carrier": pa.field("x", pa.string()), "delay": " DOUBLE ", "is_late": BooleanType()},
    ],
    ids=lambda given: f"{type(given).__module__.split('.')[0]}-{type(given).__name__}",
)
def test_every_form_of_a_schema_gives_the_same_columns(given: Any) -> None:
    assert given_schema(given).fields == FLIGHTS.fields


def test_a_dict_may_nest_and_say_not_null() -> None:
    schema = given_schema(
        {
            "id": "long not null",
            "price": "decimal(9, 2)",
            "day": dt.date,
            "at": "timestamp[us, tz=UTC]",
            "route": {"origin": "string not null", "stops": ["string"]},
            "counts": "map<string, list<int>>",
            "pairs": [MapType(7, StringType(), 7, LongType())],
        }
    )
    kinds = {field.name: field.field_type for field in schema.fields}
    assert [field.required for field in schema.fields] == [True] + [False] * 6
    assert kinds["price"] == DecimalType(9, 2)
    assert kinds["day"] == DateType()
    assert kinds["at"] == TimestamptzType()
    route, counts = kinds["route"], kinds["counts"]
    assert isinstance(route, StructType)
    assert [(field.name, field.required) for field in route.fields] == [("origin", True), ("stops", False)]
    assert isinstance(counts, MapType)
    assert isinstance(counts.value_type, ListType)
    assert counts.value_type.element_type == IntegerType()
    assert isinstance(kinds["pairs"], ListType)
    assert sorted(schema.field_ids) == list(range(1, 17))


@pytest.mark.parametrize(
    ("words", "form"),
    [
        ("struct<a: int, b: list<string>>", {"a": "int", "b": ["string"]}),
        ("List< struct<x:double not null> >", [{"x": "double not null"}]),
        ("struct<a: struct<b: struct<c: long not null>>>", {"a": {"b": {"c": "long not null"}}}),
    ],
)
def test_words_may_name_structs_and_lists(words: str, form: Any) -> None:
    assert given_schema({"c": words}).fields == given_schema({"c": form}).fields
    assert given_schema({"c": f"{words} not null"}).fields[0].required


def test_members_in_words_keep_their_case_and_may_be_required() -> None:
    kind = (
        given_schema({"c": 'STRUCT < Ab :decimal(9, 2) NOT NULL,"odd, <name>": map<string,double> >'})
        .fields[0]
        .field_type
    )
    assert isinstance(kind, StructType)
    assert [(field.name, field.required) for field in kind.fields] == [("Ab", True), ("odd, <name>", False)]
    assert kind.fields[0].field_type == DecimalType(9, 2)
    listed = given_schema({"c": "list<struct<x: double not null> not null>"}).fields[0].field_type
    assert isinstance(listed, ListType)
    assert listed.element_required
    assert isinstance(listed.element_type, StructType)
    assert listed.element_type.fields[0].required


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (5, "is a int, not a schema; give"),
        (None, "is a NoneType"),
        ("id long", "is a str"),
        ([("id", "long")], "is a list"),
        ({"id": "longish"}, "column id: 'longish': there is no type 'longish'; write string"),
        ({"id": "decimal(50,2)"}, r"column id: 'decimal\(50,2\)': .*precision must be between 1 and 38"),
        ({"id": [1, 2]}, r"column id: \[1, 2\] is not a type"),
        ({"id": ["long", "int"]}, "column id: .* is not a type"),
        ({"id": 5}, "column id: 5 is not a type"),
        ({"id": None}, "column id: None is not a type"),
        ({"id": object}, "column id: .* is not a type"),
        ({"m": "map<string>"}, "map<string, long>, with two"),
        ({"m": "list<int, int>"}, "list<long>, with one type"),
        ({"m": "struct<>"}, "'' is not a new member of a struct"),
        ({"m": "struct<a int>"}, "'a int' is not a new member of a struct: write struct<x: double"),
        ({"m": "struct<a: int, a: long>"}, "'a: long' is not a new member"),
        ({"m": "struct<a: int"}, "there is no type 'struct<a: int'"),
        ({"m": "struct<a: longish>"}, "there is no type 'longish'"),
        ({"m": "struct<\ud800: long>"}, "has a lone surrogate at character 1"),
        ({"m": "list<" * 100 + "int" + ">" * 100}, "nested more than 32 deep"),
        ({5: "long"}, "5 is not a column name"),
        ({"": "long"}, "is not a column name"),
        ({"r": {"\ud800": "long"}}, "has a lone surrogate at character 1"),
        ({"r": {"a": "nothing"}}, "column r.a: 'nothing'"),
        ({"n": pa.uint64()}, "column n: Arrow type uint64 cannot be stored; cast"),
        (pd.DataFrame({"x": [None, None]}), "column x: it has only nulls"),
        (pd.DataFrame({"x": [1, "a"]}), "column x: its values have different types"),
        (pd.DataFrame([[1, 2]], columns=["x", "x"]), "column 'x' more than once"),
        (pd.DataFrame([[1]]), "column 0 has a name that is not text"),
        (pd.DataFrame({"x": [1]}, index=pd.Index([1], name="x")), "index cannot become a column"),
        (pd.Series([1]), "is a Series, not a schema"),
        (pl.DataFrame({"x": [object()]}), "column x is a Polars Object"),
        (pl.DataFrame({"x": [1]}, schema={"x": pl.Int128}), "column x is a Polars Int128"),
        (pl.DataFrame({"x": [None]}), "column x: it has only nulls"),
    ],
)
def test_what_is_no_schema_is_refused_with_its_column(given: Any, reason: str) -> None:
    with pytest.raises(Invalid, match=reason) as caught:
        given_schema(given)
    assert caught.value.code == "definition-invalid"


def test_a_dict_or_a_list_that_contains_itself_is_refused() -> None:
    endless: dict[str, Any] = {}
    endless["x"] = endless
    listed: list[Any] = []
    listed.append(listed)
    for given in (endless, {"x": listed}):
        with pytest.raises(Invalid, match="more than 64 levels of nesting") as caught:
            given_schema(given)
        assert caught.value.code == "definition-invalid"


def test_a_table_is_made_from_a_frame_and_takes_its_rows(lake: Lake) -> None:
    frame = pd.DataFrame(COLUMNS)
    table = lake.create_table("demo.flights", frame)
    assert lake.create_table("demo.flights", pl.DataFrame(COLUMNS), if_not_exists=True).name == table.name
    assert table.scan().count() == 0
    table.append(frame)
    assert table.scan().to_arrow().to_pydict() == COLUMNS
