"""`rootline table drop` and `rootline table restore`."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from rootline.connect import connect
from tests.cli.conftest import Run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with connect(tmp_path / "lake") as lake:
        lake.create_table("demo.t", pa.schema([("id", pa.int64())])).append({"id": [1]})
    return tmp_path / "lake"


def test_a_table_is_dropped_and_comes_back(folder: Path, run: Run) -> None:
    dropped = run("table", "drop", "demo.t", "--warehouse", folder, "--json")
    assert (dropped.code, dropped.records) == (0, [{"table": "demo.t", "dropped": True, "version": 2}]), dropped.err
    assert run("table", "list", "--warehouse", folder, "--json").records == []
    for words in (("table", "describe"), ("scan",), ("history",), ("check",), ("table", "drop")):
        refused = run(*words, "demo.t", "--warehouse", folder)
        assert (refused.code, "table-dropped" in refused.err) == (1, True), refused.err
        assert "`rootline table restore demo.t` brings it back" in refused.err
    back = run("table", "restore", "demo.t", "--warehouse", folder)
    assert (back.code, back.out) == (0, "restored demo.t, version 3\n"), back.err
    assert run("check", "demo.t", "--warehouse", folder).code == 0


def test_a_purge_must_be_meant(folder: Path, run: Run) -> None:
    asked = run("table", "drop", "demo.t", "--purge", "--warehouse", folder)
    assert (asked.code, "repeat with --yes" in asked.err) == (2, True), asked.err
    done = run("table", "drop", "demo.t", "--purge", "--yes", "--warehouse", folder)
    assert (done.code, done.out) == (0, "purged demo.t, version 2\n"), done.err
    lost = run("table", "restore", "demo.t", "--warehouse", folder)
    assert (lost.code, "does not come back" in lost.err) == (1, True), lost.err
