"""Rows are in order within a part and from part to part, whatever their values are."""

from __future__ import annotations

import math
import uuid
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rootline.client.column_statistics import column_paths
from rootline.client.create_drop import build_definition
from rootline.schemas.errors import Invalid
from rootline.schemas.table_definition import TableDefinition
from rootline.spark.rewrite_jobs import Curve, Cuts, RowOrder, in_order, sampled

SCHEMA = pa.schema(
    [("x", pa.float64()), ("name", pa.string()), ("codes", pa.list_(pa.int64())), ("number", pa.int64())]
)


def definition_of(schema: pa.Schema, *sort_by: str) -> TableDefinition:
    return build_definition(schema, sort_by=sort_by, table_uuid=uuid.uuid4())


def some(count: int, **columns: Any) -> pa.Table:
    given = {
        "x": [None] * count,
        "name": [None] * count,
        "codes": [[1]] * count,
        "number": list(range(count)),
        **columns,
    }
    return pa.table(given, SCHEMA)


def parts_of(tables: list[pa.Table], order: RowOrder, parts: int, share: float = 1.0) -> list[pa.Table]:
    """What each part gets of several tasks' rows, in order, cut by a sample of them."""
    paths = column_paths(definition_of(SCHEMA).schema)
    keys = [order.keys(table, paths, number) for number, table in enumerate(tables)]
    chosen = pa.concat_tables([sampled(of_task, share, number) for number, of_task in enumerate(keys)])
    cuts = order.cuts(type(keys[0])(chosen, keys[0].directions), parts)
    found: list[list[pa.Table]] = [[] for _ in range(parts)]
    for table, of_task in zip(tables, keys, strict=True):
        places = cuts.parts(order.on_curve(of_task, cuts))
        for part in range(parts):
            found[part].append(table.filter(pa.array(places == part)))
    return [in_order(pa.concat_tables(of_part), order, paths, cuts) for of_part in found]


def test_a_sort_is_global_nulls_and_nan_included_and_rows_of_equal_values_keep_their_order() -> None:
    values = [3.0, None, math.nan, 1.0, -0.0, 0.0, 2.0, 1.0, math.inf, 1.0]
    tables = [some(10, x=values), some(10, x=values[::-1], number=list(range(10, 20)))]
    order = RowOrder.of(("-x nulls first", "name"), Curve.LINEAR, definition_of(SCHEMA))
    found = pa.concat_tables(parts_of(tables, order, 4))
    assert found.column("number").to_pylist()[:8] == [1, 18, 2, 17, 8, 11, 0, 19]
    assert [row["number"] for row in found.to_pylist() if row["x"] == 1.0] == [3, 7, 9, 10, 12, 16]


def test_rows_of_one_value_are_spread_evenly_over_the_parts() -> None:
    order = RowOrder.of(("name",), Curve.LINEAR, definition_of(SCHEMA))
    found = parts_of([some(500, name=["same"] * 500), some(500, name=["same"] * 500)], order, 4)
    assert [part.num_rows for part in found] == [250] * 4


def test_each_part_of_a_z_order_is_narrow_in_every_column() -> None:
    rng = np.random.default_rng(1)
    count, parts = 40_000, 16
    numbers = rng.permutation(count)
    names = [f"{value:05}" for value in rng.permutation(count)]
    table = some(count, name=names, number=numbers)
    order = RowOrder.of(("name", "number"), Curve.Z, definition_of(SCHEMA))
    found = parts_of([table.slice(0, 15_000), table.slice(15_000)], order, parts, share=0.1)
    assert sorted(pa.concat_tables(found).column("number").to_pylist()) == list(range(count))
    for column, value in (("number", 12_345), ("name", "12345")):
        extremes = [pc.min_max(part.column(column)) for part in found]
        opened = sum(one["min"].as_py() <= value <= one["max"].as_py() for one in extremes)
        assert 1 <= opened <= parts // 2, column
    linear = parts_of([table], RowOrder.of(("name", "number"), Curve.LINEAR, definition_of(SCHEMA)), parts)
    extremes = [pc.min_max(part.column("number")) for part in linear]
    assert all(one["min"].as_py() <= 12_345 <= one["max"].as_py() for one in extremes), "only the first column counts"


def test_parts_follow_each_other_whatever_the_sample_was() -> None:
    table = some(1_000, x=np.random.default_rng(2).random(1_000))
    order = RowOrder.of(("x",), Curve.LINEAR, definition_of(SCHEMA))
    for share in (0.0, 0.01, 1.0):
        found = [part.column("x").to_pylist() for part in parts_of([table], order, 5, share) if part.num_rows]
        assert all(part == sorted(part) for part in found)
        assert all(before[-1] <= after[0] for before, after in pairwise(found))
        assert sum(map(len, found)) == 1_000


def test_files_are_said_to_be_in_the_tables_order_only_if_they_are() -> None:
    definition = definition_of(SCHEMA, "-x")
    assert RowOrder.of(None, Curve.LINEAR, definition).sort_order_id == definition.default_sort_order_id
    assert RowOrder.of(("-x",), Curve.LINEAR, definition).sort_order_id == definition.default_sort_order_id
    assert RowOrder.of(("x",), Curve.LINEAR, definition).sort_order_id is None
    assert RowOrder.of(None, Curve.Z, definition).sort_order_id is None


def test_what_cannot_be_sorted_by_is_refused_before_anything_is_read() -> None:
    definition = definition_of(SCHEMA)
    with pytest.raises(Invalid, match=r"sort_by=\[") as nothing:
        RowOrder.of(None, Curve.LINEAR, definition)
    assert nothing.value.code == "setting-invalid"
    for term in ("codes", "unknown"):
        with pytest.raises(Invalid) as error:
            RowOrder.of((term,), Curve.LINEAR, definition)
        assert error.value.code == "definition-invalid"
    with pytest.raises(Invalid, match="name 8 or fewer"):
        RowOrder.of(("x",) * 9, Curve.Z, definition)


def test_no_rows_have_no_parts() -> None:
    order = RowOrder.of(("x",), Curve.Z, definition_of(SCHEMA))
    keys = order.keys(some(0), column_paths(definition_of(SCHEMA).schema))
    cuts = order.cuts(keys, 3)
    assert isinstance(cuts, Cuts)
    assert len(cuts.parts(order.on_curve(keys, cuts))) == 0
