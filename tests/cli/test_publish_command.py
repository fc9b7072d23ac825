"""Publishing JSON lines."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from rootline.connect import connect
from tests.cli.conftest import Run


def _lines(folder: Path, *records: object) -> Path:
    path = folder / "intents.jsonl"
    path.write_text("\n".join(item if isinstance(item, str) else json.dumps(item) for item in records) + "\n\n")
    return path


def _removal(lake: Path) -> dict[str, object]:
    with connect(lake, coordinator="elsewhere") as opened:
        location = opened.table("demo.flights").scan(where="id = 4").plan()[0].location
    return {"table": "demo.flights", "kind": "remove", "remove_files": [{"location": location}]}


def test_every_line_gets_its_verdict_in_order(run: Run, lake: Path, tmp_path: Path) -> None:
    removal = _removal(lake)
    result = run("publish", _lines(tmp_path, removal, removal), "--warehouse", lake, "--json")
    assert result.code == 1
    assert [(record["line"], record["kind"]) for record in result.records] == [(1, "committed"), (2, "rejected")]
    assert result.records[1]["code"] == "file-not-live"


def test_when_all_is_committed_it_ends_with_zero(run: Run, lake: Path, tmp_path: Path) -> None:
    result = run("publish", _lines(tmp_path, _removal(lake)), "--warehouse", lake)
    assert result.code == 0, result.out
    assert "line 1: committed demo.flights version 4" in result.out


def test_a_line_that_is_no_intent_stops_no_other(run: Run, lake: Path, tmp_path: Path) -> None:
    path = _lines(tmp_path, "{", {"table": "demo.flights", "kind": "dance"}, _removal(lake), "[" * 100_000)
    result = run("publish", path, "--warehouse", lake, "--json")
    assert [record["kind"] for record in result.records] == ["rejected", "rejected", "committed", "rejected"]
    assert result.code == 1


def test_the_same_intent_with_a_writer_is_committed_once(run: Run, lake: Path, tmp_path: Path) -> None:
    intent = _removal(lake) | {"writer_id": "by-hand", "writer_sequence": 1, "intent_id": "i-1"}
    path = _lines(tmp_path, intent)
    kinds = [run("publish", path, "--warehouse", lake, "--json").records[0]["kind"] for _ in range(2)]
    assert kinds == ["committed", "duplicate"]


def test_intents_may_come_through_a_pipe(run: Run, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(_removal(lake)) + "\n"))
    assert run("publish", "-", "--warehouse", lake).code == 0


def test_a_file_that_is_not_there_is_named(run: Run, lake: Path) -> None:
    result = run("publish", "nowhere.jsonl", "--warehouse", lake)
    assert result.code == 2
    assert "nowhere.jsonl" in result.err


def test_bounds_may_be_plain_json(run: Run, lake: Path, tmp_path: Path) -> None:
    with connect(lake, coordinator="elsewhere") as opened:
        definition = opened.table("demo.flights").definition()
    (partition_id,) = definition.spec_by_id(definition.default_spec_id).expr_ids
    file = {
        "location": "data/by-hand.parquet",
        "record_count": 1,
        "file_size_in_bytes": 10,
        "statistics": [{"field_id": partition_id, "lower_value": "UA", "upper_value": "UA"}],
    }
    intent = {"table": "demo.flights", "kind": "append", "add_data_files": [file]}
    result = run("publish", _lines(tmp_path, intent), "--warehouse", lake)
    assert result.code == 0, result.out
