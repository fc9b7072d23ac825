"""What a scan gives its rows as: frames, streams, and only the first of them."""

from __future__ import annotations

import asyncio
import gc
import importlib
import threading
import uuid
from decimal import Decimal
from types import ModuleType
from typing import Any, cast

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from rootline.client.lake import Lake
from rootline.client.table_handle import TableHandle
from rootline.schemas.errors import Invalid
from rootline.storage.rows.data_file_reader import RowsWanted
from rootline.storage.rows.scan_executor import count_rows, scan_batches
from tests.storage.stored_tables import TABLE, CountingStore, StoredTable, flights_definition
from tests.storage.stored_tables import flights as flights_rows

ROWS = {"id": [1, 2, 3], "carrier": ["UA", "AA", None], "delay": [5.0, None, -1.0]}


@pytest.fixture
def filled(flights: TableHandle) -> TableHandle:
    """Three files, for three carriers."""
    flights.append(ROWS)
    return flights


def test_a_scan_becomes_a_pandas_frame(filled: TableHandle) -> None:
    found = filled.scan(where="id < 3").to_pandas()
    assert isinstance(found, pd.DataFrame)
    assert found.sort_values("id")["carrier"].tolist() == ["UA", "AA"]


def test_a_scan_becomes_a_polars_frame(filled: TableHandle) -> None:
    found = filled.scan(columns=["carrier", "id"]).to_polars()
    assert isinstance(found, pl.DataFrame)
    assert found.schema == {"carrier": pl.String, "id": pl.Int64}
    assert found.sort("id").rows() == [("UA", 1), ("AA", 2), (None, 3)]
    assert filled.scan(where="id > 9").to_polars().is_empty()


def test_every_type_reaches_both_kinds_of_frames(lake: Lake) -> None:
    kinds = {
        "b": "boolean", "i": "int", "l": "long", "f": "float", "d": "double", "dec": "decimal(9, 2)", "day": "date",
        "t": "time", "at": "timestamp", "tz": "timestamptz", "ns": "timestamp_ns", "s": "string", "u": "uuid",
        "fix": "fixed[2]", "bin": "binary", "li": ["int"], "st": {"x": "int"}, "m": "map<string, int>",
    }  # fmt: skip
    table = lake.create_table("demo.types", kinds)
    row = {"dec": Decimal("1.25"), "u": uuid.UUID(int=5), "li": [1], "st": {"x": 1}, "m": {"a": 1}, "s": "x"}
    table.append([row, {"i": 1}])
    assert list(table.scan().to_pandas().columns) == list(kinds)
    frame = table.scan().to_polars()
    assert frame.columns == list(kinds)
    assert frame["s"].to_list() == ["x", None]
    table.append(table.scan().to_pandas())
    assert table.scan(where="dec = 1.25").count() == 2


def test_without_the_library_the_message_says_what_to_install(
    filled: TableHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> ModuleType:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib, "import_module", absent)
    scan = filled.scan()
    for method, library in ((scan.to_pandas, "pandas"), (scan.to_polars, "polars")):
        with pytest.raises(Invalid, match=rf"needs {library}, .* pip install 'rootline-lake\[{library}\]'"):
            method()


def test_other_libraries_take_the_scan_itself(filled: TableHandle) -> None:
    scan = filled.scan(where="id < 3")
    assert sorted(pa.table(scan).column("id").to_pylist()) == [1, 2]
    assert len(pl.from_arrow(cast("Any", scan))) == 2
    assert sorted(pl.DataFrame(scan)["id"].to_list()) == [1, 2]
    assert duckdb.sql("select sum(id), count(*) from scan").fetchall() == [(3, 2)]
    assert pa.RecordBatchReader.from_stream(scan).schema == scan.schema()
    copy = filled.append(filled.scan(where="id = 1"))
    assert copy.version == 2


def test_a_stream_reads_files_only_as_it_goes_on(filled: TableHandle) -> None:
    reader = pa.RecordBatchReader.from_stream(filled.scan())
    assert reader.read_next_batch().num_rows == 1
    reader.close()
    del reader
    gc.collect()
    before = threading.active_count()
    for _ in range(5):
        pa.RecordBatchReader.from_stream(filled.scan())
    gc.collect()
    assert threading.active_count() <= before + 1
    assert filled.scan().count() == 3


def test_a_stream_that_cannot_be_planned_says_why(filled: TableHandle) -> None:
    with pytest.raises(Invalid, match="nowhere"):
        pa.table(filled.scan(where="nowhere = 1"))
    with pytest.raises(Invalid, match="nowhere"):
        pl.DataFrame(filled.scan(columns=["nowhere"]))


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 4])
def test_a_limit_holds_for_every_form(filled: TableHandle, limit: int) -> None:
    scan = filled.scan(limit=limit)
    expected = min(limit, 3)
    assert scan.to_arrow().num_rows == scan.count() == len(scan.to_pandas()) == len(scan.to_polars()) == expected
    assert sum(batch.num_rows for batch in scan.to_batches()) == pa.table(scan).num_rows == expected
    assert filled.scan(where="delay > -5", limit=limit).to_arrow().num_rows == min(limit, 2)
    assert filled.scan(where="delay > -5", limit=limit).count() == min(limit, 2)
    assert filled.scan(columns=[], limit=limit).to_arrow().num_rows == expected


@pytest.fixture
def many() -> StoredTable:
    """Twenty files of ten rows."""
    table = StoredTable(flights_definition())
    for number in range(20):
        table.entries += table.write(flights_rows(*range(10 * number, 10 * number + 10)))
    table.commit()
    return table


def read(table: StoredTable, limit: int | None, where: str | None = None) -> tuple[list[int], int]:
    """The ids that a scan yields, and how many data files it fetched."""
    store = CountingStore(table)
    wanted = RowsWanted.of(table.definition, ["id"])

    async def batches() -> list[pa.RecordBatch]:
        tasks = (await table.plan(where)).tasks()
        return [batch async for batch in scan_batches(cast("Any", store), TABLE, tasks, wanted, limit=limit)]

    found = asyncio.run(batches())
    return [value for batch in found for value in batch.column(0).to_pylist()], len(store.read)


@pytest.mark.parametrize(("limit", "files"), [(0, 0), (1, 1), (10, 1), (11, 2), (35, 4), (200, 20), (900, 20)])
def test_a_limit_reads_no_file_that_it_does_not_need(many: StoredTable, limit: int, files: int) -> None:
    assert read(many, limit) == (list(range(min(limit, 200))), files)


def test_with_a_filter_files_are_fetched_a_little_ahead_of_the_limit(many: StoredTable) -> None:
    odd = "carrier = 'AA'"
    found, files = read(many, 7, odd)
    assert found == [1, 3, 5, 7, 9, 11, 13]
    assert files <= 5
    assert read(many, None, odd)[1] == 20
    assert len(read(many, 100, odd)[0]) == 100


def test_a_limit_counts_the_rows_that_live(many: StoredTable) -> None:
    many.entries.append(many.vector(many.entries[0], list(range(10))))
    many.entries.append(many.vector(many.entries[1], list(range(9))))
    many.commit()
    found, _ = read(many, 3)
    assert found == [19, 20, 21]


def test_a_count_with_a_limit_stops_reading_too(many: StoredTable) -> None:
    store = CountingStore(many)
    wanted = RowsWanted.of(many.definition)

    async def count(limit: int) -> int:
        plan = await many.plan("carrier = 'AA'")
        return await count_rows(cast("Any", store), TABLE, plan, wanted, limit=limit)

    assert asyncio.run(count(7)) == 7
    assert len(store.read) <= 5
    assert asyncio.run(count(1000)) == 100
