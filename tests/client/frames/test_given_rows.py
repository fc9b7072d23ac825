"""Rows in every form that a user has them in, cast where nothing is lost and refused where something would be."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from rootline.client.create_drop import build_definition
from rootline.client.data_file_writer import checked_rows
from rootline.client.given_rows import GivenRows
from rootline.client.given_schema import given_schema
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.schemas.errors import Invalid

COLUMNS: dict[str, Any] = {"id": [1, 2, 3], "carrier": ["UA", "AA", None], "delay": [5.0, None, -1.0]}
ROWS = [dict(zip(COLUMNS, values, strict=True)) for values in zip(*COLUMNS.values(), strict=True)]
DAY = dt.date(2013, 1, 31)
NOON = dt.datetime(2013, 1, 31, 12)
MIDNIGHT = dt.datetime(2013, 1, 31)


def kept(kind: Any, data: Any, column: str = "x") -> list[Any]:
    """What a table with one column (of this type, or of this schema) makes of `data`."""
    schema = given_schema(kind if isinstance(kind, dict) else {column: kind})
    definition = build_definition(schema, table_uuid=uuid.UUID(int=1))
    return list(checked_rows(GivenRows.of(data).for_schema(definition.schema), definition).column(column).to_pylist())


ENDLESS: dict[str, Any] = {"a": 1}
ENDLESS["b"] = [ENDLESS, ENDLESS]


class Stream:
    """Nothing but the protocol."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "data",
    [
        pa.table(COLUMNS),
        pa.record_batch(COLUMNS),
        pa.table(COLUMNS).to_batches(max_chunksize=1),
        iter(pa.table(COLUMNS).to_batches(max_chunksize=2)),
        pa.table(COLUMNS).to_reader(),
        Stream(pa.table(COLUMNS)),
        duckdb.from_arrow(pa.table(COLUMNS)),
        pd.DataFrame(COLUMNS),
        pd.DataFrame(COLUMNS).convert_dtypes(),
        pd.DataFrame(COLUMNS).convert_dtypes(dtype_backend="pyarrow"),
        pd.DataFrame(COLUMNS).astype({"carrier": "category"}),
        pd.DataFrame(COLUMNS).set_index("id"),
        pd.DataFrame(COLUMNS).set_index(["carrier", "id"]),
        pd.DataFrame({**COLUMNS, "junk": 0})[["id", "carrier", "delay"]],
        pl.DataFrame(COLUMNS),
        pl.DataFrame(COLUMNS).lazy().filter(pl.col("id") > 0),
        pl.DataFrame(COLUMNS).with_columns(pl.col("carrier").cast(pl.Categorical)),
        ROWS,
        tuple(ROWS),
        iter(ROWS),
        [{"id": 1, "delay": 5.0}, {"id": 2, "carrier": "AA"}, {"delay": -1.0, "id": 3}],
        COLUMNS,
        {"id": np.array([1, 2, 3], np.int16), "carrier": pl.Series(["UA", "AA", None]), "delay": COLUMNS["delay"]},
        {"id": range(1, 4), "carrier": pd.Series(["UA", "AA", None]), "delay": pd.Series([5.0, None, -1.0])},
        {"id": pa.array([1, 2, 3]), "carrier": pa.chunked_array([["UA", "AA"], [None]]), "delay": (5.0, None, -1.0)},
    ],
    ids=lambda data: f"{type(data).__module__.split('.')[0]}-{type(data).__name__}",
)
def test_rows_are_taken_in_every_form(data: Any) -> None:
    given = GivenRows.of(data)
    assert given.num_rows == 3
    schema = given_schema({"id": "long not null", "carrier": "string", "delay": "double"})
    definition = build_definition(schema, table_uuid=uuid.UUID(int=1))
    found = checked_rows(given.for_schema(schema), definition).to_pydict()
    assert found["id"] == [1, 2, 3]
    assert found["delay"] == COLUMNS["delay"]
    assert found["carrier"] in (COLUMNS["carrier"], [None, "AA", None])


@pytest.mark.parametrize(
    ("kind", "values", "found"),
    [
        ("long", pd.Series([1, None, 3]), [1, None, 3]),
        ("int", pd.Series([1, None, 3]), [1, None, 3]),
        ("long", pd.Series([1, None], dtype="Int64"), [1, None]),
        ("long", [1.0, None, -0.0], [1, None, 0]),
        ("long", pa.array([2.0**53], pa.float64()), [2**53]),
        ("int", pa.array([7], pa.int64()), [7]),
        ("int", pa.array([7], pa.uint64()), [7]),
        ("long", [Decimal("7.00"), None], [7, None]),
        ("float", [0.5, None, float("inf")], [0.5, None, float("inf")]),
        ("float", [3, 4], [3.0, 4.0]),
        ("double", [3, None], [3.0, None]),
        ("decimal(9, 2)", [1, None, 3], [Decimal("1.00"), None, Decimal("3.00")]),
        ("decimal(9, 2)", [Decimal("1.5"), 2], [Decimal("1.50"), Decimal("2.00")]),
        ("decimal(9, 2)", pa.array([Decimal("1.500")], pa.decimal256(60, 3)), [Decimal("1.50")]),
        ("decimal(38, 0)", [2**70, None], [Decimal(2**70), None]),
        ("string", pa.array(["a", None], pa.large_string()), ["a", None]),
        ("string", pa.array(["a", None], pa.string_view()), ["a", None]),
        ("string", pa.array(["a", None]).dictionary_encode(), ["a", None]),
        ("string", pa.RunEndEncodedArray.from_arrays([2, 3], ["a", None]), ["a", "a", None]),
        ("string", pd.Series(["a", float("nan")]), ["a", None]),
        ("string", pd.Series([None, pd.NA], dtype="object"), [None, None]),
        ("binary", pa.array([b"a"], pa.binary_view()), [b"a"]),
        ("list<long>", pa.array([[1], None], pa.large_list(pa.int16())), [[1], None]),
        ("list<long>", pa.array([[1, 2], None], pa.list_(pa.int16(), 2)), [[1, 2], None]),
        ("list<long>", pa.array([[1], None], pa.list_view(pa.int64())), [[1], None]),
        ("list<long>", pa.array([[5], None, [1, 2], [], [3]], pa.list_view(pa.int64()))[1:], [None, [1, 2], [], [3]]),
        ("list<long>", pa.array([[1, 2], None], pa.large_list_view(pa.int16())), [[1, 2], None]),
        ("list<string>", pd.Series([np.array(["a"], dtype=object), None]), [["a"], None]),
        ("timestamp", pa.array([NOON], pa.timestamp("ns")), [NOON]),
        ("timestamp", pa.array([NOON], pa.timestamp("s")), [NOON]),
        ("timestamp", pd.Series([NOON, pd.NaT]), [NOON, None]),
        ("timestamptz", pd.Series([pd.Timestamp(NOON, tz="Europe/Berlin")]), [NOON.replace(hour=11, tzinfo=dt.UTC)]),
        ("date", pd.Series([MIDNIGHT, None]), [DAY, None]),
        ("date", [DAY, None], [DAY, None]),
        ("uuid", [uuid.UUID(int=5), None], [uuid.UUID(int=5), None]),
        ("long", [None, None], [None, None]),
        ("list<long>", [None, []], [None, []]),
        ("float", [0.5, 0.1, None, float("inf")], [0.5, float(np.float32(0.1)), None, float("inf")]),
        ("list<float>", [[0.1], None, []], [[float(np.float32(0.1))], None, []]),
        ({"x": {"a": "float", "b": "date"}}, [{"a": 0.5, "b": "2013-01-31"}, None], [{"a": 0.5, "b": DAY}, None]),
        ("map<date, float>", [{"2013-01-31": 0.5}], [[(DAY, 0.5)]]),
        ("date", ["2013-01-31", None], [DAY, None]),
        ("time", ["12:00", "12:00:00.5"], [dt.time(12), dt.time(12, 0, 0, 500_000)]),
        ("timestamp", ["2013-01-31T12:00", "2013-01-31"], [NOON, MIDNIGHT]),
        ("timestamptz", ["2013-01-31T13:00:00+01:00", "2013-01-31 12:00:00Z"], [NOON.replace(tzinfo=dt.UTC)] * 2),
        ("map<string, long>", [None, None], [None, None]),
        ({"x": {"a": "long"}}, [None, {}], [None, {"a": None}]),
    ],
)  # fmt: skip
def test_what_loses_nothing_is_cast(kind: Any, values: Any, found: list[Any]) -> None:
    assert kept(kind, {"x": values}) == found
    if isinstance(values, pd.Series):
        assert kept(kind, pd.DataFrame({"x": values})) == found
    if isinstance(values, list):
        assert kept(kind, [{"x": value} for value in values]) == found
    if isinstance(values, pa.Array):
        assert kept(kind, pa.table({"x": values})) == found


@pytest.mark.parametrize(
    ("kind", "values", "reason"),
    [
        ("long", pd.Series([1, None, 2.5]), r"column x is a long, and row 2 \(the first is 0\) is 2.5, which"),
        ("long", [1.0, 2.0**54], r"row 1 .* is 1.8014398509481984e\+16"),
        ("long", [1.0, float("nan")], "row 1 .* is nan"),
        ("int", [1] * 9 + [2**31], "column x is a int, and row 9 .* is 2147483648"),
        ("long", pa.array([2**64 - 1], pa.uint64()), "row 0 .* is 18446744073709551615"),
        ("long", [1, 2**70], "column x: row 1 .* is 1180591620717411303424, whose type differs"),
        ("float", [0.5, 1e39], "column x is a float, and row 1 .* is 1e\\+39"),
        ("float", np.array([0.5, 0.1]), "column x is a float, and row 1 .* is 0.1"),
        ("date", ["2024-01-31", "31.1.2024"], "column x is a date, and row 1 .* is '31.1.2024', .* as in 2024-01-31"),
        ("date", ["2024-01-31T12:00"], "column x is a date, and row 0 "),
        ("time", ["25:00"], "column x is a time, and row 0 .* is '25:00'"),
        ("timestamp", ["2024-01-31T12:00:00Z"], "column x is a timestamp, and row 0 .* without an offset"),
        ("timestamptz", ["2024-01-31T12:00:00"], "column x is a timestamptz, and row 0 .* with its offset or Z"),
        ("list<date>", [["2024-01-31", "no"]], "column x.element is a date, and a value is 'no'"),
        ("date", pa.array(["2024-01-31"]), "is a date, not string; cast it first"),
        ("double", [2**53 + 1], "row 0 .* is 9007199254740993"),
        ("decimal(4, 2)", [Decimal("1.25"), Decimal("100.00")], "row 1 .* is Decimal"),
        ("decimal(9, 1)", [Decimal("1.25")], "row 0 .* is Decimal"),
        ("decimal(9, 2)", [0.5], "is a decimal.* not double; cast it first"),
        ("long", [Decimal("1.5")], "row 0 .* is Decimal"),
        ("long", ["1"], "is a long, not string; cast it first"),
        ("string", [1], "is a string, not int64; cast it first"),
        ("boolean", [1], "is a boolean, not int64"),
        ("string", ["a", 1], "column x: row 1 .* is 1, whose type differs"),
        ("string", pd.Series(["a", 5]), "column x: row 1 .* is 5"),
        ("timestamp", pa.array([0, 1], pa.timestamp("ns")), "column x is a timestamp, and row 1 "),
        ("timestamp", pa.array([2**62], pa.timestamp("s")), "row 0 "),
        ("timestamp", [NOON.replace(tzinfo=dt.UTC)], "is a timestamp, not timestamp"),
        ("timestamptz", [NOON], "is a timestamptz, not timestamp"),
        ("date", [MIDNIGHT, NOON], "column x is a date, and row 1 "),
        ("list<int>", [[1], [2**31]], "column x.element is a int, and a value is 2147483648"),
        ({"x": {"a": "int"}}, [{"a": 1}, {"a": 2**31}], "column x.a is a int, and row 1 "),
        ({"x": {"a": "int"}}, [{"a": 1, "b": 2}], "column x has no member 'b', only a; leave it out"),
        ("map<string, int>", [{"a": 1}, 7], "column x: row 1 .* is 7, and not a dict"),
        ("map<string, int>", [{"a": 2**31}], "column x.value is a int, and a value is 2147483648"),
        ("map<string, int>", [{None: 1}], "has the key None"),
        ("map<string, int>", [{"a": 1, 2: 2}], "column x.key: row 1 "),
        ({"x": {"m": "map<string, int>"}}, [5], "column x: row 0 .* is 5, and not a dict"),
        ("list<map<string, int>>", ["ab"], "column x: row 0 .* and not a list"),
        ("string", ["a", "\ud800"], "column x: row 1 .* contains a lone surrogate; correct the text"),
        ({"x": {"a": "string"}}, [{"a": "\ud800"}], "column x: row 0 .* contains a lone surrogate"),
        ("long", [object()], "column x: row 0 "),
        ({"x": {"a": "long"}}, [ENDLESS], "column x: a value contains itself, or nests more than 100 deep"),
        ("map<string, long>", [ENDLESS], "column x: a value contains itself"),
    ],
)  # fmt: skip
def test_what_would_lose_something_is_refused_by_column_and_row(kind: Any, values: Any, reason: str) -> None:
    with pytest.raises(Invalid, match=reason) as caught:
        kept(kind, {"x": values})
    assert caught.value.code == "rows-invalid"


def test_bytes_that_are_not_utf8_are_refused_by_column_and_row(flights: TableHandle) -> None:
    offsets, text = pa.py_buffer(np.array([0, 1, 3], np.int32)), pa.py_buffer(b"a\xff\xfe")
    bad = pa.StringArray.from_buffers(2, offsets, text)
    data = pa.table({"id": [1, 2, 3], "carrier": pa.chunked_array([pa.array(["UA"]), bad])})
    with pytest.raises(Invalid, match=r"column carrier: row 2 \(the first is 0\) has bytes that are not UTF-8"):
        flights.append(data)


def test_a_row_is_counted_over_all_batches() -> None:
    batches = [pa.record_batch({"x": [1, 2]}), pa.record_batch({"x": [3, 2**40]})]
    with pytest.raises(Invalid, match=r"row 3 .* is 1099511627776"):
        kept("int", batches)


MAPS = [{"a": 1, "b": None}, None, {}, {"c": 3, "a": 4}]
AS_PAIRS = [[("a", 1), ("b", None)], None, [], [("c", 3), ("a", 4)]]


@pytest.mark.parametrize(
    "values",
    [MAPS, AS_PAIRS, pd.Series(MAPS), pa.array(AS_PAIRS, pa.map_(pa.large_string(), pa.int16()))],
    ids=["dicts", "pairs", "pandas", "arrow"],
)
def test_dicts_become_maps_with_the_entries_that_they_have(values: Any) -> None:
    assert kept("map<string, long>", {"x": values}) == AS_PAIRS


def test_dicts_become_maps_at_every_depth() -> None:
    assert kept({"x": {"m": "map<string, int>"}}, {"x": [{"m": MAPS[0]}, None]}) == [{"m": AS_PAIRS[0]}, None]
    assert kept("list<map<string, int>>", {"x": [[MAPS[0], None], None]}) == [[AS_PAIRS[0], None], None]
    assert kept("map<string, map<string, int>>", {"x": [{"k": MAPS[3]}]}) == [[("k", AS_PAIRS[3])]]


def test_structs_and_lists_of_pairs_become_maps() -> None:
    structs = pl.DataFrame({"x": [{"a": 1, "b": None}, None, {"a": None, "b": 2}]})
    assert kept("map<string, int>", structs) == [[("a", 1)], None, [("b", 2)]]
    pairs = pa.array([[{"key": "a", "value": 1}], None, []])
    assert kept("map<string, int>", {"x": pairs}) == [[("a", 1)], None, []]
    assert kept("map<string, int>", pa.table({"x": pairs}).slice(1)) == [None, []]
    with pytest.raises(Invalid, match=r"column x.b is a int, not string"):
        kept("map<string, int>", {"x": pa.array([{"a": 1, "b": "2"}])})
    with pytest.raises(Invalid, match=r"column x.key is null"):
        kept("map<string, int>", {"x": pa.array([[{"key": None, "value": 1}]], pairs.type)})


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (5, "a int contains no rows; give an Arrow table"),
        (None, "a NoneType contains no rows"),
        ("rows", "a str contains no rows"),
        (pd.Series([1]), "a Series contains no rows"),
        (pl.Series([1]), "a Series contains no rows"),
        (pa.array([{"id": 1}]), "a StructArray contains no rows"),
        ([1], r"row 0 \(the first is 0\) is a int, not a dict"),
        ([{"id": 1}, None], "row 1 .* is a NoneType"),
        ([{}], "the rows have no columns"),
        ([{1: 2}], "1 is not a column name"),
        ([pa.table({"id": [1]}), pa.table({"idd": [1]})], "the batches differ"),
        ({"id": 5}, "column id: a int is not a column"),
        ({"id": "abc"}, "column id: a str is not a column"),
        ({"id": {1, 2}}, "column id: a set is not a column"),
        ({"id": pd.DataFrame({"id": [1]})}, "column id: a DataFrame is not a column"),
        ({"id": np.array(5)}, "column id: a ndarray is not a column"),
        ({"\ud800": [1]}, "a column's name has a lone surrogate at character 1"),
        ([{"": 1}], "'' is not a column name"),
        ({"id": [1], "carrier": ["a", "b"]}, "the columns differ in length: id 1, carrier 2"),
        ({"id": np.array([1 + 2j])}, "column id: NumPy's complex128 has no Arrow type"),
        ({5: [1]}, "5 is not a column name"),
        (pd.DataFrame([[1, 2]], columns=["id", "id"]), "column 'id' more than once"),
        (pd.DataFrame({"id": [1]}, index=pd.Index([5], name="id")), "index cannot become a column"),
        (pl.DataFrame({"id": [object()]}), "column id is a Polars Object"),
    ],
)
def test_what_holds_no_rows_is_refused(data: Any, reason: str) -> None:
    with pytest.raises(Invalid, match=reason) as caught:
        kept({"id": "long", "carrier": "string"}, data, "id")
    assert caught.value.code == "rows-invalid"


def test_appends_and_overwrites_take_frames(lake: Lake) -> None:
    schema = {"id": "long not null", "seats": "int", "tags": "map<string, string>"}
    table = lake.create_table("demo.planes", schema)
    table.append(pd.DataFrame({"id": [1, 2], "seats": [100, None], "tags": [{"a": "b"}, None]}))
    table.append(pl.DataFrame({"id": [3], "seats": [7]}))
    table.overwrite([{"id": 4, "tags": {"c": "d"}}], where="id = 3")
    table.overwrite(pd.DataFrame({"id": []}), where="id = 2")
    assert table.scan().to_arrow().sort_by("id").to_pylist() == [
        {"id": 1, "seats": 100, "tags": [("a", "b")]},
        {"id": 4, "seats": None, "tags": [("c", "d")]},
    ]
    with pytest.raises(Invalid, match=r"row 1 .* is 1.5"):
        table.append(pd.DataFrame({"id": [1, 1.5]}))


def test_a_later_row_may_have_columns_that_the_first_one_lacks(flights: TableHandle) -> None:
    flights.append([{"id": 1}, {"id": 2, "carrier": "AA"}])
    assert flights.scan(columns=["carrier"]).to_arrow().column(0).to_pylist().count("AA") == 1
    with pytest.raises(Invalid, match="no column 'carier'"):
        flights.append([{"id": 1}, {"id": 2, "carier": "AA"}])


WITHOUT_FRAMES = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pandas", "polars"):
            raise ModuleNotFoundError(f"there is no {name}", name=name)
sys.meta_path.insert(0, Absent())
import rootline
with rootline.connect(sys.argv[1]) as lake:
    table = lake.create_table("demo.t", {"id": "long", "tags": "map<string, int>"})
    table.append([{"id": 1, "tags": {"a": 1}}, {"id": 2, "tags": None}])
    table.append({"id": [3]})
    table.overwrite([{"id": 4}], where="id = 3")
    print(sorted(table.scan().to_arrow().column("id").to_pylist()))
"""


@pytest.mark.slow
def test_everything_else_works_without_pandas_and_polars(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_FRAMES, str(tmp_path / "lake")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[1, 2, 4]\n", "")
