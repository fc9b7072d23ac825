"""Adopting an Iceberg table from the command line."""

from __future__ import annotations

from pathlib import Path

from tests.catalog.hand_written_table import HandWritten, into_folder, rows
from tests.cli.conftest import Run


def written(folder: Path) -> str:
    table = HandWritten(folder.as_uri(), 3, into_folder)
    table.manifest("m1", [table.data("a", rows(0, "UA")), table.data("b", rows(10, "DL"))], 1)
    table.manifest("d1", [table.vector("v", "data/a.parquet", [0, 9])], 2)
    refs = {"main": {"snapshot-id": 7, "type": "branch"}, "v1": {"snapshot-id": 7, "type": "tag"}}
    return table.finish(2, refs=refs).removeprefix("file://")


def test_a_dry_run_prints_what_would_be_and_changes_nothing(run: Run, lake: Path, tmp_path: Path) -> None:
    metadata = written(tmp_path / "old")
    words = ("adopt", metadata, "old.flights", "--warehouse", lake, "--dry-run")
    result = run(*words)
    assert result.code == 0
    assert "day(at) (expression 5)" in result.out
    assert "2 with 20 rows" in result.out
    assert "deletes: 1 deletion vectors" in result.out
    assert "warning: tag 'v1' is omitted: only main is adopted" in result.out
    assert result.lines[-1] == "dry run: nothing was written"
    [record] = run(*words, "--json").records
    assert (record["rows"], record["deleted_rows"], record["deletion_vectors"]) == (20, 2, 1)
    assert (record["next_row_id"], record["last_sequence_number"], record["adopted"]) == (20, 2, False)
    assert record["partition_specs"][1] == {"id": 3, "members": [2, 5], "names": ["carrier", "at_day"]}
    assert "old.flights" not in run("table", "list", "--warehouse", lake).out


def test_an_adopted_table_is_there_and_says_where_its_history_is(run: Run, lake: Path, tmp_path: Path) -> None:
    metadata = written(tmp_path / "old")
    result = run("adopt", metadata, "old.flights", "--warehouse", lake)
    assert result.code == 0
    assert "adopted as old.flights, version 0" in result.lines[-1]
    assert run("scan", "old.flights", "--warehouse", lake, "--count").lines == ["18"]
    history = run("history", "old.flights", "--warehouse", lake)
    assert history.lines[-1] == f"its history before version 0 is in file://{metadata}"
    [record] = run("history", "old.flights", "--warehouse", lake, "--json").records
    assert record["adopted_from"] == f"file://{metadata}"
    assert run("check", "old.flights", "--warehouse", lake).code == 0
    closely = run("check", "old.flights", "--warehouse", lake, "--data-files", "all", "--json")
    assert (closely.code, closely.records[0]["data_files_opened"] > 0) == (0, True)
    assert len(run("files", "old.flights", "--warehouse", lake).lines) == 3
    assert "data leaf" in run("tree", "old.flights", "--warehouse", lake).out
    assert run("adopt", metadata, "old.flights", "--warehouse", lake).code == 1


def test_what_cannot_be_adopted_ends_with_one_line_and_a_code(run: Run, lake: Path, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    result = run("adopt", tmp_path / "x.json", "old.flights", "--warehouse", lake)
    assert result.code == 1
    assert "metadata-unreadable" in result.err
