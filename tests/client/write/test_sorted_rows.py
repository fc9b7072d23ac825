"""Rows are found to be in a sort order exactly if sorting them moves none."""

from __future__ import annotations

import datetime as dt
import math
import random
import uuid

import pyarrow as pa
import pytest

from rootline.client.column_statistics import column_paths
from rootline.client.create_drop import build_definition
from rootline.client.partition_split import are_sorted, sorted_rows

SCHEMA = pa.schema(
    [("x", pa.float64()), ("name", pa.string()), ("yes", pa.bool_()), ("in", pa.struct([("day", pa.date32())]))]
)


def drawn(draw: random.Random, count: int) -> pa.Table:
    rows = [
        {
            "x": draw.choice([None, 0.0, -0.0, math.nan, -math.inf, 1.5]),
            "name": draw.choice([None, "", "a", "é", "\U0001f600"]),
            "yes": draw.choice([None, True, False]),
            "in": draw.choice([None, {"day": None}, {"day": dt.date(1970, 1, 1)}, {"day": dt.date(1969, 1, 1)}]),
        }
        for _ in range(count)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


@pytest.mark.parametrize(
    "terms", [["x"], ["-x nulls last", "name"], ["yes", "-year(in.day)"], ["bucket(2, name)", "-yes"]]
)
def test_rows_are_in_order_if_sorting_them_moves_none(terms: list[str]) -> None:
    definition = build_definition(SCHEMA, sort_by=terms, table_uuid=uuid.UUID(int=3))
    order, paths = definition.default_sort_order, column_paths(definition.schema)
    assert order is not None
    draw = random.Random(len(terms))
    found = {True: 0, False: 0}
    for _ in range(300):
        rows = drawn(draw, draw.randrange(1, 6))
        ordered = sorted_rows(rows, order, paths)
        assert ordered is not None
        cut = draw.randrange(1, rows.num_rows + 1)
        for some in (rows, ordered):
            pieces = [piece for piece in (some[:cut], some[cut:]) if piece.num_rows]
            is_in_order = are_sorted(pieces, order, paths)
            assert is_in_order == (repr(some.to_pylist()) == repr(sorted_rows(some, order, paths).to_pylist()))
            found[is_in_order] += 1
    assert min(found.values()) > 50
