"""`merge_schema`: rows bring the columns that the table lacks, in the commit that adds them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyiceberg.types import DecimalType, DoubleType, FloatType, IntegerType, LongType

from rootline import Invalid, connect
from rootline.client import merged_rows
from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle

COLUMNS = {"id": "int not null", "price": "float", "at": {"x": "int"}, "name": "string"}
NESTED = pa.schema(
    [
        ("id", pa.int32()),
        ("stops", pa.list_(pa.struct([("code", pa.string())]))),
        ("bags", pa.map_(pa.string(), pa.struct([("kg", pa.int32())]))),
    ]
)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with connect(tmp_path / "lake") as found:
        yield found


@pytest.fixture
def table(lake: Lake) -> TableHandle:
    table = lake.create_table("demo.t", COLUMNS, partition_by=["bucket(4, id)"])
    table.append([{"id": 1, "price": 1.5, "at": {"x": 1}, "name": "a"}])
    return table


def rows(table: TableHandle, **options: Any) -> list[dict[str, Any]]:
    return sorted(table.scan(**options).to_arrow().to_pylist(), key=lambda row: row["id"])


def stored(tmp_path: Path) -> set[str]:
    return {path.name for path in (tmp_path / "lake").rglob("*.parquet")}


def version(table: TableHandle) -> int:
    return table.history(limit=1)[0].version


def test_rows_with_a_new_column_are_refused_unless_that_is_asked_for(table: TableHandle) -> None:
    with pytest.raises(Invalid, match="gate") as refused:
        table.append([{"id": 2, "gate": "B1"}])
    assert refused.value.code == "rows-invalid"


def test_a_new_column_comes_in_the_commit_of_its_rows(table: TableHandle) -> None:
    before = version(table)
    commit = table.append([{"id": 2, "name": "b", "gate": "B1"}], merge_schema=True)
    assert commit.version == before + 1 == version(table)
    assert [(row["id"], row["gate"]) for row in rows(table)] == [(1, None), (2, "B1")]
    assert rows(table, version=before)[0].keys() == COLUMNS.keys()
    assert rows(table, where="gate = 'B1'")[0]["id"] == 2
    fields = {field.name: field for field in table.definition().schema.fields}
    assert (fields["gate"].required, fields["id"].required) == (False, True)


def test_rows_that_need_no_other_column_are_an_append_like_any_other(table: TableHandle) -> None:
    before = table.definition()
    table.append([{"id": 2, "name": "b"}], merge_schema=True)
    table.append(pa.table({"id": pa.array([3], pa.int32()), "at": [{"x": None}]}), merge_schema=True)
    assert table.definition() == before
    assert [row["id"] for row in rows(table)] == [1, 2, 3]


def test_columns_come_at_every_depth(lake: Lake) -> None:
    table = lake.create_table("demo.n", NESTED)
    table.append(pa.table({"id": [1], "stops": [[{"code": "A"}]], "bags": [[("x", {"kg": 1})]]}, schema=NESTED))
    more = pa.schema(
        [
            ("id", pa.int32()),
            ("stops", pa.list_(pa.struct([("code", pa.string()), ("at", pa.struct([("lat", pa.float64())]))]))),
            ("bags", pa.map_(pa.string(), pa.struct([("kg", pa.int64()), ("tag", pa.string())]))),
        ]
    )
    given = {"id": [2], "stops": [[{"code": "B", "at": {"lat": 1.5}}]], "bags": [[("y", {"kg": 2**40, "tag": "t"})]]}
    table.append(pa.table(given, schema=more), merge_schema=True)
    assert rows(table) == [
        {"id": 1, "stops": [{"code": "A", "at": None}], "bags": [("x", {"kg": 1, "tag": None})]},
        {"id": 2, "stops": [{"code": "B", "at": {"lat": 1.5}}], "bags": [("y", {"kg": 2**40, "tag": "t"})]},
    ]
    table.append(
        [{"id": 3, "stops": [{"code": "C", "late": True}], "bags": {"z": {"kg": 3, "by": "me"}}}], merge_schema=True
    )
    assert rows(table)[2] == {
        "id": 3,
        "stops": [{"code": "C", "at": None, "late": True}],
        "bags": [("z", {"kg": 3, "tag": None, "by": "me"})],
    }


def test_a_declared_type_that_is_wider_widens_the_column(lake: Lake) -> None:
    table = lake.create_table("demo.w", {"id": "int", "price": "float", "sum": "decimal(9, 2)", "at": {"x": "int"}})
    wide = pa.schema(
        [
            ("id", pa.int64()),
            ("price", pa.float64()),
            ("sum", pa.decimal128(12, 2)),
            ("at", pa.struct([("x", pa.int64())])),
        ]
    )
    table.append([{"id": 1, "price": 0.5, "sum": Decimal("1.50"), "at": {"x": 1}}])
    table.append(
        pa.table({"id": [2**40], "price": [0.1], "sum": [Decimal("1234567890.25")], "at": [{"x": 2**50}]}, schema=wide),
        merge_schema=True,
    )
    schema = table.definition().schema
    assert schema.find_type("id") == LongType()
    assert schema.find_type("price") == DoubleType()
    assert schema.find_type("sum") == DecimalType(12, 2)
    assert schema.find_type("at.x") == LongType()
    assert [row["id"] for row in rows(table)] == [1, 2**40]
    narrow = pa.table({"id": pa.array([3], pa.int16()), "price": pa.array([1.5], pa.float32())})
    table.append(narrow, merge_schema=True)
    assert table.definition().schema == schema


@pytest.mark.parametrize("frame", [pd.DataFrame({"id": [2]}), {"id": np.array([2])}])
def test_the_types_of_frames_and_arrays_are_declared(table: TableHandle, frame: Any) -> None:
    table.append(frame, merge_schema=True)
    assert table.definition().schema.find_type("id") == LongType()


def test_pythons_own_numbers_widen_a_column_only_if_they_must(table: TableHandle) -> None:
    table.append([{"id": 2, "price": 0.5, "at": {"x": 7}, "gate": 1}], merge_schema=True)
    schema = table.definition().schema
    assert (schema.find_type("id"), schema.find_type("price")) == (IntegerType(), FloatType())
    table.append({"id": [2], "price": [0.1]}, merge_schema=True)
    assert table.definition().schema.find_type("price") == FloatType()
    table.append({"id": [2**31], "price": [1e39], "at": [{"x": 2**31}]}, merge_schema=True)
    schema = table.definition().schema
    assert (schema.find_type("id"), schema.find_type("price")) == (LongType(), DoubleType())
    assert schema.find_type("at.x") == LongType()


@pytest.mark.parametrize(
    ("data", "code", "named"),
    [
        (pa.table({"id": pa.array([2], pa.int32()), "name": [5]}), "rows-invalid", "column name"),
        (pa.table({"id": pa.array([2], pa.int32()), "at": ["x"]}), "rows-invalid", "column at"),
        (pa.table({"id": pa.array([2], pa.int32()), "at": [{"x": 1.5}]}), "rows-invalid", "column at.x"),
        (pa.table({"id": pa.array([2], pa.int32()), "price": [{"eur": 1}]}), "rows-invalid", "column price"),
        (pa.table({"id": pa.array([None], pa.int32()), "gate": ["B"]}), "rows-invalid", "column id"),
        ([{"id": 2, "gate": None}], "definition-invalid", "column gate"),
        (pa.table({"id": pa.array([2], pa.int32()), "": [1]}), "definition-invalid", "name"),
        (pa.table({"id": pa.array([2], pa.int32()), "s": [[{}]]}), "definition-invalid", "s.element: a struct without"),
        (pa.table({"id": pa.array([2], pa.int32()), "at": [{"x": 1, "": 1}]}), "definition-invalid", "name"),
        (pa.table({"id": pa.array([2], pa.int32()), "big": pa.array([1], pa.uint64())}), "definition-invalid", "big"),
        (pa.table({"id": pa.array([2], pa.int32()), "at": [{"x": 1, "y": None}]}), "definition-invalid", "at.y"),
    ],
)
def test_what_is_illegal_is_refused_before_anything_is_stored(
    tmp_path: Path, table: TableHandle, data: Any, code: str, named: str
) -> None:
    before, definition = stored(tmp_path), table.definition()
    for change in (table.append, table.overwrite):
        with pytest.raises(Invalid, match=named) as refused:
            change(data, merge_schema=True)
        assert refused.value.code == code
    assert stored(tmp_path) == before
    assert table.definition() == definition


def test_an_overwrite_brings_columns_too_and_keeps_what_it_does_not_match(table: TableHandle) -> None:
    table.append(pa.table({"id": pa.array([2, 3, 4, 5], pa.int32()), "name": ["b", "c", "d", "e"]}))
    before = version(table)
    table.overwrite([{"id": 3, "name": "C", "gate": "B1"}], where="id = 3", merge_schema=True)
    assert version(table) == before + 1
    assert [(row["id"], row["name"], row["gate"]) for row in rows(table)] == [
        (1, "a", None),
        (2, "b", None),
        (3, "C", "B1"),
        (4, "d", None),
        (5, "e", None),
    ]
    table.overwrite(pa.table({"id": pa.array([2**40], pa.int64()), "seat": ["1A"]}), merge_schema=True)
    assert rows(table) == [{"id": 2**40, "price": None, "at": None, "name": None, "gate": None, "seat": "1A"}]


def test_many_files_go_into_leaves_with_their_new_columns(lake: Lake) -> None:
    table = lake.create_table("demo.many", {"id": "long"}, properties={"rootline.append.leaf-files": "2"})
    table.append(
        pa.table({"id": range(3000), "gate": [f"g{at}" for at in range(3000)]}),
        merge_schema=True,
        target_file_size_bytes=1,
    )
    assert table.scan().count() == 3000
    assert rows(table, where="gate = 'g17'") == [{"id": 17, "gate": "g17"}]


def test_a_handle_that_has_not_heard_of_a_column_takes_the_one_that_is_there(lake: Lake, table: TableHandle) -> None:
    other = lake.table("demo.t")
    other.append([{"id": 2}])
    table.append([{"id": 3, "gate": "A"}], merge_schema=True)
    other.append([{"id": 4, "gate": "B"}], merge_schema=True)
    assert [row["gate"] for row in rows(table)] == [None, None, "A", "B"]
    assert len(table.definition().schemas) == 2


@pytest.mark.parametrize("is_same", [True, False])
def test_of_many_who_bring_a_column_at_once_everyones_rows_get_in_once(
    lake: Lake, table: TableHandle, is_same: bool
) -> None:
    failed: list[BaseException] = []
    writers = 12

    def write(number: int) -> None:
        try:
            name = "gate" if is_same else f"gate{number}"
            lake.table("demo.t").append([{"id": 10 + number, name: number}], merge_schema=True, timeout_s=120)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    found = rows(table)[1:]
    assert [row["id"] for row in found] == [10 + number for number in range(writers)]
    assert [row["gate" if is_same else f"gate{number}"] for number, row in enumerate(found)] == list(range(writers))
    schema = table.definition().schema
    assert len(schema.fields) == len(COLUMNS) + (1 if is_same else writers)
    assert len({field.field_id for field in schema.fields}) == len(schema.fields)


def test_columns_that_no_intent_can_hold_are_refused_before_anything_is_stored(
    tmp_path: Path, table: TableHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merged_rows, "CHANGES_CHARS_MAX", 2_000)
    before = stored(tmp_path)
    with pytest.raises(Invalid, match="remove columns") as refused:
        table.append([{"id": 2, **{f"column_{number}": 1 for number in range(50)}}], merge_schema=True)
    assert refused.value.code == "intent-too-large"
    assert stored(tmp_path) == before


def test_it_is_asked_for_with_true_or_false(table: TableHandle) -> None:
    with pytest.raises(Invalid, match="merge_schema") as refused:
        table.append([{"id": 2}], merge_schema="yes")  # type: ignore[arg-type]
    assert refused.value.code == "setting-invalid"
