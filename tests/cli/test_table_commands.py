"""Creating and describing tables from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run

SIMPLE = {
    "carrier": "string not null",
    "flight": "int32",
    "fare": "decimal(9, 2)",
    "time_hour": "timestamp[us, tz=UTC]",
}
ICEBERG = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "carrier", "required": True, "type": "string"},
        {"id": 2, "name": "flight", "required": False, "type": "int"},
        {"id": 3, "name": "fare", "required": False, "type": "decimal(9, 2)"},
        {"id": 4, "name": "time_hour", "required": False, "type": "timestamptz"},
    ],
}


def _file(folder: Path, body: object) -> Path:
    path = folder / "schema.json"
    path.write_text(body if isinstance(body, str) else json.dumps(body))
    return path


@pytest.mark.parametrize("body", [SIMPLE, ICEBERG], ids=["simple", "iceberg"])
def test_a_table_is_created_from_either_form_of_schema(run: Run, tmp_path: Path, body: dict[str, Any]) -> None:
    words = ("--warehouse", tmp_path / "lake", "--json")
    created = run(
        "table", "create", "demo.t", "--schema", _file(tmp_path, body), "--partition-by", "month(time_hour)",
        "--partition-by", "bucket(8, carrier)", "--property", "owner=me", *words,
    )  # fmt: skip
    assert created.code == 0, created.err
    (described,) = run("table", "describe", "demo.t", *words).records
    definition = described["definition"]
    assert definition["schemas"][0]["fields"] == ICEBERG["fields"]
    assert [item["expr"]["transform"] for item in definition["expressions"]] == ["month", "bucket[8]"]
    assert definition["properties"] == {"rootline.expire": "true", "rootline.sweep": "true", "owner": "me"}
    assert described["table"] == "demo.t"
    assert described["version"] == 0


def test_a_table_may_be_partitioned_by_a_bucket_of_several_columns_and_have_expressions(
    run: Run, tmp_path: Path
) -> None:
    words = ("--warehouse", tmp_path / "lake")
    created = run(
        "table", "create", "demo.t", "--schema", _file(tmp_path, SIMPLE), *words,
        "--partition-by", "bucket(8, carrier, flight)", "--expression", "lower(carrier)",
    )  # fmt: skip
    assert created.code == 0, created.err
    assert "partitioned by: bucket(8, carrier, flight)" in run("table", "describe", "demo.t", *words).out
    (described,) = run("table", "describe", "demo.t", *words, "--json").records
    expressions = described["definition"]["expressions"]
    assert [item["expr"].get("source-ids") for item in expressions] == [[1, 2], None]
    assert expressions[1]["expr"] == {"source-id": 1, "transform": "lower", "name": "carrier_lower"}


def test_describe_reads_well(run: Run, lake: Path) -> None:
    text = run("table", "describe", "demo.flights", "--warehouse", lake).out
    assert "partitioned by: carrier" in text
    assert "carrier  string" in text
    assert "3 data files" in text
    (described,) = run("table", "describe", "demo.flights", "--warehouse", lake, "--json").records
    roots = described["roots"]
    assert roots["retained"] == described["version"] + 1
    assert roots["retained_bytes"] > roots["bytes"] > 0
    assert f"{roots['retained_bytes']:,} bytes" in text


def test_a_taken_name_ends_with_one(run: Run, lake: Path, tmp_path: Path) -> None:
    result = run("table", "create", "demo.flights", "--schema", _file(tmp_path, SIMPLE), "--warehouse", lake)
    assert result.code == 1
    assert "table-exists" in result.err


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("{", "not JSON"),
        ([1], "object"),
        ({"c": "text"}, "there is no type 'text'"),
        ({"c": {"x": "int"}}, "its type is not a string; write long, struct<x: double>"),
        ({"fields": [{"name": "c"}]}, "not an Iceberg schema"),
        ({"fields": [{"id": 1, "name": "c"}]}, "fields.0.type"),
        ({}, "at least one"),
    ],
)
def test_a_schema_that_cannot_be_used_is_a_usage_error(run: Run, tmp_path: Path, body: object, reason: str) -> None:
    result = run("table", "create", "demo.t", "--schema", _file(tmp_path, body), "--warehouse", tmp_path / "lake")
    assert result.code == 2
    assert reason in result.err
    assert len(result.err.splitlines()) == 1


def test_a_schema_file_that_is_not_there_is_named(run: Run, tmp_path: Path) -> None:
    result = run("table", "create", "demo.t", "--schema", tmp_path / "no.json", "--warehouse", tmp_path / "lake")
    assert result.code == 2
    assert "no.json" in result.err


def test_a_property_without_a_value_is_a_usage_error(run: Run, tmp_path: Path) -> None:
    schema = _file(tmp_path, SIMPLE)
    result = run("table", "create", "demo.t", "--schema", schema, "--property", "owner", "--warehouse", tmp_path / "l")
    assert result.code == 2


def test_a_threshold_that_no_worker_could_use_is_refused_when_the_table_is_created(run: Run, tmp_path: Path) -> None:
    words = ("--property", "rootline.flush.data-files=soon", "--warehouse", tmp_path / "lake")
    result = run("table", "create", "demo.t", "--schema", _file(tmp_path, SIMPLE), *words)
    assert result.code == 2
    assert "rootline.flush.data-files is 'soon'" in result.err
