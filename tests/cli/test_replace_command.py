"""`rootline table replace`."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rootline.connect import connect
from tests.cli.conftest import Run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with connect(tmp_path / "lake") as lake:
        lake.create_table("demo.t", pa.schema([("id", pa.int64())]), partition_by=["id"]).append({"id": [1]})
    return tmp_path / "lake"


def test_a_table_is_emptied_and_goes_back(folder: Path, run: Run) -> None:
    done = run("table", "replace", "demo.t", "--warehouse", folder, "--json")
    assert (done.code, done.records) == (0, [{"table": "demo.t", "replaced": True, "version": 2}]), done.err
    assert run("scan", "demo.t", "--warehouse", folder, "--json").records == []
    assert run("restore", "demo.t", "--to-version", "1", "--warehouse", folder).code == 0
    assert run("scan", "demo.t", "--warehouse", folder, "--json").records == [{"id": 1}]
    assert run("check", "demo.t", "--warehouse", folder).code == 0


def test_a_table_gets_other_columns_and_rows(folder: Path, run: Run, tmp_path: Path) -> None:
    columns, rows = tmp_path / "columns.json", tmp_path / "rows.parquet"
    columns.write_text('{"id": "long", "gate": "string not null"}')
    pq.write_table(pa.table({"id": [7], "gate": ["A"]}), rows)
    options = ("--schema", columns, "--rows", rows, "--partition-by", "", "--sort-by", "gate")
    done = run("table", "replace", "demo.t", *options, "--warehouse", folder)
    assert (done.code, done.out) == (0, "replaced demo.t, version 2\n"), done.err
    assert run("scan", "demo.t", "--warehouse", folder, "--json").records == [{"id": 7, "gate": "A"}]
    described = run("table", "describe", "demo.t", "--warehouse", folder).out
    assert "partitioned by: nothing" in described
    rows.write_text("no rows")
    refused = run("table", "replace", "demo.t", "--rows", rows, "--warehouse", folder)
    assert (refused.code, "cannot be read as Parquet" in refused.err) == (1, True), refused.err
