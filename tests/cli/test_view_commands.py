"""`rootline view`: what it prints, and how it refuses."""

from __future__ import annotations

import json
from pathlib import Path

from rootline import connect
from tests.cli.conftest import SCHEMA, Run


def test_a_view_goes_through_its_life(run: Run, tmp_path: Path) -> None:
    at = ("--warehouse", tmp_path / "lake")
    columns = tmp_path / "columns.json"
    columns.write_text(json.dumps({"n": "long"}))
    made = run(
        "view", "create", "demo.v", "--sql", "SELECT 1\nAS n", "--schema", columns, "--property", "comment=x", *at
    )
    assert (made.code, made.out) == (0, "created demo.v\n")
    shown = run("view", "show", "demo.v", *at)
    assert shown.lines == [
        "demo.v, version 1",
        "spark:",
        "  SELECT 1",
        "  AS n",
        "columns:",
        "  n long",
        "properties:",
        "  comment=x",
    ]
    assert run("view", "replace", "demo.v", "--sql", "SELECT 2", "--dialect", "trino", *at).out == (
        "demo.v is at version 2\n"
    )
    assert run("view", "rollback", "demo.v", "--version", 1, *at).code == 0
    history = run("view", "history", "demo.v", "--json", *at).records
    assert [(line["version"], line["dialects"]) for line in history] == [(1, "spark"), (2, "trino"), (1, "spark")]
    assert run("view", "list", "--json", *at).records == [{"view": "demo.v"}]
    assert run("view", "list", "--namespace", "other", *at).out.startswith("no views")
    assert run("view", "show", "demo.v", "--json", *at).records[0]["current-version-id"] == 1
    assert run("view", "drop", "demo.v", *at).out == "dropped demo.v\n"
    gone = run("view", "show", "demo.v", *at)
    assert (gone.code != 0, "view-unknown" in gone.err) == (True, True)


def test_a_table_is_no_view_and_a_view_no_table(run: Run, tmp_path: Path) -> None:
    with connect(tmp_path) as lake:
        lake.create_table("demo.flights", SCHEMA)
        lake.create_view("demo.v", "SELECT 1")
    at = ("--warehouse", tmp_path)
    for words, code in (
        (("view", "show", "demo.flights"), "name-is-table"),
        (("view", "drop", "demo.flights"), "name-is-table"),
        (("table", "describe", "demo.v"), "name-is-view"),
        (("table", "drop", "demo.v"), "name-is-view"),
        (("scan", "demo.v"), "name-is-view"),
        (("maintenance", "run", "flush", "demo.v"), "name-is-view"),
        (("tree", "demo.v"), "name-is-view"),
        (("export", "demo.v"), "name-is-view"),
        (("view", "rollback", "demo.v", "--version", 5), "view-version-unknown"),
    ):
        ended = run(*words, *at)
        assert (ended.code != 0, code in ended.err) == (True, True), (words, ended.err)


def test_an_operator_checks_a_view_and_looks_after_its_old_versions(run: Run, tmp_path: Path) -> None:
    with connect(tmp_path) as lake:
        lake.create_view("demo.v", "SELECT 1").replace("SELECT 2")
    at = ("--warehouse", tmp_path)
    checked = run("check", "demo.v", *at)
    assert (checked.code, "no findings in 2 versions" in checked.out) == (0, True), checked.err
    for kind in ("expire", "sweep"):
        done = run("maintenance", "run", kind, "demo.v", "--dry-run", *at)
        assert done.code == 0, done.err
