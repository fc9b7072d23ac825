"""Flushing and compacting by hand."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa

from rootline import connect
from rootline.workers.kinds import BY_HAND
from tests.cli.conftest import Run


def a_lake(folder: Path, files: int) -> None:
    with connect(str(folder)) as lake:
        schema = pa.schema([pa.field("id", pa.int64())])
        table = lake.create_table("demo.t", schema=schema)
        for number in range(files):
            table.append(pa.table({"id": [number]}, schema=schema))


def test_a_table_is_flushed_and_compacted_by_hand(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    words = ("--warehouse", folder, "--json")
    a_lake(folder, 2)
    (planned,) = run("maintenance", "run", "flush", "demo.t", "--dry-run", *words).records
    assert (planned["outcome"], planned["leaves"], planned["entries"]) == ("planned", 1, 2)
    (flushed,) = run("maintenance", "run", "flush", "demo.t", *words).records
    assert (flushed["outcome"], flushed["leaves"], flushed["entries"]) == ("committed", 1, 2)
    with connect(str(folder)) as lake:
        lake.table("demo.t").append(pa.table({"id": [7]}))
    run("maintenance", "run", "flush", "demo.t", *words)
    (compacted,) = run("maintenance", "run", "compact", "demo.t", *words).records
    assert (compacted["outcome"], compacted["leaves"], compacted["entries"]) == ("committed", 1, 3)
    again = run("maintenance", "run", "compact", "demo.t", "--warehouse", folder)
    assert (again.code, again.out.strip()) == (0, "demo.t: nothing to compact")
    assert run("check", "demo.t", *words).code == 0


def test_a_table_that_does_not_exist_is_no_success(run: Run, tmp_path: Path) -> None:
    a_lake(tmp_path / "lake", 0)
    assert run("maintenance", "run", "flush", "demo.none", "--warehouse", tmp_path / "lake").code == 1


def test_help_lists_every_kind_and_an_unknown_one_is_a_usage_error_that_names_them(run: Run, tmp_path: Path) -> None:
    told = run("maintenance", "run", "--help").out
    for name, kind in BY_HAND.items():
        assert re.search(rf"^ +{name} +{re.escape(kind.by_hand or '')}$", told, re.MULTILINE), told
    unknown = run("maintenance", "run", "polish", "demo.t", "--warehouse", tmp_path)
    assert unknown.code == 2
    assert f"there is no kind 'polish': give one of {', '.join(BY_HAND)}" in unknown.err
