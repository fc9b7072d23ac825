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
    for words in (("table", "describe"), ("scan",), ("history",), ("table", "drop")):
        refused = run(*words, "demo.t", "--warehouse", folder)
        assert (refused.code, "table-dropped" in refused.err) == (1, True), refused.err
        assert "`rootline table restore demo.t` restores it" in refused.err
    back = run("table", "restore", "demo.t", "--warehouse", folder)
    assert (back.code, back.out) == (0, "restored demo.t, version 3\n"), back.err
    assert run("check", "demo.t", "--warehouse", folder).code == 0


def test_a_purge_must_be_meant(folder: Path, run: Run) -> None:
    asked = run("table", "drop", "demo.t", "--purge", "--warehouse", folder)
    assert (asked.code, "repeat with --yes" in asked.err) == (2, True), asked.err
    done = run("table", "drop", "demo.t", "--purge", "--yes", "--warehouse", folder)
    assert (done.code, done.out) == (0, "purged demo.t, version 2\n"), done.err
    lost = run("table", "restore", "demo.t", "--warehouse", folder)
    assert (lost.code, "cannot be restored" in lost.err) == (1, True), lost.err


def test_an_operator_checks_a_dropped_table_before_it_comes_back(folder: Path, run: Run) -> None:
    at = ("--warehouse", folder)
    assert run("table", "drop", "demo.t", *at).code == 0
    checked = run("check", "demo.t", *at)
    assert (checked.code, "no findings in 3 versions" in checked.out) == (0, True), checked.err
    assert "`rootline table restore demo.t` restores it" in checked.out + checked.err
    [lost] = (folder / "demo" / "t" / "data").rglob("*.parquet")
    lost.unlink()
    damaged = run("check", "demo.t", *at)
    assert (damaged.code, "object-missing" in damaged.out) == (1, True), damaged.out


def test_an_operator_expires_and_sweeps_a_dropped_table_and_does_nothing_else_to_it(folder: Path, run: Run) -> None:
    at = ("--warehouse", folder)
    assert run("table", "drop", "demo.t", "--purge", "--yes", *at).code == 0
    gone = run("maintenance", "run", "expire", "demo.t", *at)
    assert (gone.code, "removed: 2 roots" in gone.out + gone.err) == (0, True), gone.err
    swept = run("maintenance", "run", "sweep", "demo.t", "--dry-run", *at)
    assert swept.code == 0, swept.err
    refused = run("maintenance", "run", "flush", "demo.t", *at)
    assert (refused.code, "table-dropped" in refused.err) == (1, True), refused.err
    assert "table-unknown" in run("check", "demo.never", *at).err
