"""Values of kinds that must not be mixed are refused, and not made into one kind in silence."""

from __future__ import annotations

import datetime as dt
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rootline import Invalid, connect

PLAIN = dt.datetime(2020, 1, 1, 12)
ZONED = PLAIN.replace(tzinfo=dt.timezone(dt.timedelta(hours=5)))
SCHEMA = {
    "at": "timestamp",
    "zoned": "timestamptz",
    "day": "date",
    "clock": "time",
    "ratio": "double",
    "many": pa.list_(pa.timestamp("us")),
    "in_": {"at": "timestamp"},
    "by": pa.map_(pa.string(), pa.timestamp("us")),
}


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("at", [PLAIN, ZONED]),
        ("zoned", [ZONED, PLAIN]),
        ("day", [PLAIN.date(), PLAIN]),
        ("clock", [dt.time(1), dt.time(1, tzinfo=dt.UTC)]),
        ("ratio", [1.5, True]),
        ("many", [[PLAIN], [ZONED]]),
        ("in_", [{"at": PLAIN}, {"at": ZONED}]),
        ("by", [{"a": PLAIN}, {"a": ZONED}]),
    ],
)
def test_kinds_that_do_not_mix_are_refused(tmp_path: Path, column: str, values: list[Any]) -> None:
    with connect(tmp_path / "lake") as lake:
        table = lake.create_table("demo.t", SCHEMA)
        with pytest.raises(Invalid, match=f"column {column}.*must not be mixed") as raised:
            table.append({column: values})
        assert raised.value.code == "rows-invalid"
        table.append({column: [values[0], None]})
        assert table.scan(columns=[column]).to_arrow().num_rows == 2


def test_zones_mix_with_each_other(tmp_path: Path) -> None:
    with connect(tmp_path / "lake") as lake:
        table = lake.create_table("demo.t", SCHEMA)
        table.append({"zoned": [ZONED, PLAIN.replace(tzinfo=dt.UTC), None]})
        assert table.scan(columns=["zoned"]).to_arrow().column(0).to_pylist() == [
            ZONED.astimezone(dt.UTC),
            PLAIN.replace(tzinfo=dt.UTC),
            None,
        ]


def test_uuids_of_python_are_taken_at_every_depth(tmp_path: Path) -> None:
    one = uuid.UUID(int=1)
    schema = {"id": "uuid", "in_": "struct<id: uuid>", "many": "list<uuid>", "each": "list<struct<id: uuid>>"}
    rows = [
        {"id": one, "in_": {"id": one}, "many": [one, None], "each": [{"id": one}, None]},
        {"id": None, "in_": None, "many": [], "each": None},
    ]
    with connect(tmp_path / "lake") as lake:
        table = lake.create_table("demo.t", schema)
        table.append(rows)
        assert table.scan().to_arrow().to_pylist() == rows
        with pytest.raises(Invalid, match=r"column many\.element: row 1"):
            table.append({"many": [[one, 7]]})
