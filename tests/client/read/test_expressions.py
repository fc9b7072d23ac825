"""Tables partitioned by every transform, and with expressions: written, pruned and read from end to end."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle

pytestmark = pytest.mark.slow

START = dt.datetime(2025, 6, 20, 10, tzinfo=dt.UTC)
ROWS = [
    {"a": number % 5, "b": f"text {number % 3}", "at": START + dt.timedelta(hours=7 * number), "name": name}
    for number, name in enumerate(["Apple", "apricot", "BANANA", "cherry", None, "Zebra", "mango", "Quince"] * 4)
]
SCHEMA = pa.schema([("a", pa.int32()), ("b", pa.string()), ("at", pa.timestamp("us", "UTC")), ("name", pa.string())])
TRANSFORMS = [
    "a",
    "identity(b)",
    "bucket(4, a)",
    "bucket(8, a, b)",
    "bucket(3, a, b, at)",
    "truncate(2, b)",
    "truncate(2, a)",
    "year(at)",
    "month(at)",
    "day(at)",
    "hour(at)",
    "void(name)",
]
FILTERS: list[tuple[str, Any]] = [
    ("a = 3 and b = 'text 1'", lambda row: row["a"] == 3 and row["b"] == "text 1"),
    ("a in (1, 2) and b = 'text 0'", lambda row: row["a"] in (1, 2) and row["b"] == "text 0"),
    ("at >= '2025-06-25T00:00:00+00:00'", lambda row: row["at"] >= dt.datetime(2025, 6, 25, tzinfo=dt.UTC)),
    ("name = 'BANANA'", lambda row: row["name"] == "BANANA"),
    ("name is null", lambda row: row["name"] is None),
    ("a = 3 or name = 'mango'", lambda row: row["a"] == 3 or row["name"] == "mango"),
]


def written(lake: Lake, name: str, **how: Any) -> TableHandle:
    table = lake.create_table(f"demo.{name}", SCHEMA, **how)
    table.append(pa.Table.from_pylist(ROWS, SCHEMA))
    return table


def test_filters_give_the_same_rows_under_every_transform(lake: Lake) -> None:
    for number, term in enumerate(TRANSFORMS):
        table = written(lake, f"by_{number}", partition_by=[term])
        for where, matches in FILTERS:
            found = table.scan(where).to_arrow().to_pylist()
            expected = [row for row in ROWS if matches(row)]
            assert sorted(found, key=str) == sorted(expected, key=str), (term, where)


def test_a_filter_on_both_columns_of_a_bucket_reads_one_of_its_partitions(lake: Lake) -> None:
    table = written(lake, "both", partition_by=["bucket(64, a, b)"])
    every, some = len(table.scan().plan()), len(table.scan("a = 3 and b = 'text 1'").plan())
    assert every > 8
    assert some == 1
    assert len(table.scan("a = 3").plan()) < every  # by the column's own bounds


def test_files_have_statistics_of_expressions_that_do_not_partition(lake: Lake) -> None:
    table = written(lake, "lowered", partition_by=["void(a)"], expressions=["lower(name)", "day(at)"])
    lower, day = table.definition().expressions[1:]
    [task] = table.scan().plan()
    stats = task.data.content_stats
    assert (stats[lower.expr_id].lower_bound, stats[lower.expr_id].upper_bound) == ("apple", "zebra")
    assert stats[lower.expr_id].null_value_count == 4
    assert stats[lower.expr_id].value_count == len(ROWS)
    assert stats[day.expr_id].lower_bound == (START.date() - dt.date(1970, 1, 1)).days
    assert len(table.scan("name = 'ZZZ'").plan()) == 0
    assert len(table.scan("name = 'Quince'").plan()) == 1
