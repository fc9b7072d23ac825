"""`rootline table alter`: options become one commit, and what cannot be done says why."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from rootline.connect import connect
from tests.cli.conftest import Run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with connect(tmp_path / "lake") as lake:
        lake.create_table("demo.t", pa.schema([pa.field("id", pa.int32(), nullable=False), ("name", pa.string())]))
    return tmp_path / "lake"


def test_all_options_of_one_call_are_one_commit(folder: Path, run: Run) -> None:
    words = [
        *("--add", "gate=string", "--add", "n=long", "--rename", "name=called", "--type", "id=long"),
        *("--doc", "gate=of the terminal", "--first", "gate", "--after", "n=gate", "--identifier-fields", "id"),
        *("--property", "owner=ops", "--property", "tier=1", "--remove-property", "tier"),
    ]
    result = run("table", "alter", "demo.t", *words, "--warehouse", folder, "--json")
    assert (result.code, result.records) == (0, [{"table": "demo.t", "changed": True, "version": 1}]), result.err
    with connect(folder) as lake:
        definition = lake.table("demo.t").definition()
    assert [(field.name, str(field.field_type)) for field in definition.schema.fields] == [
        ("gate", "string"),
        ("n", "long"),
        ("id", "long"),
        ("called", "string"),
    ]
    assert definition.schema.identifier_field_ids == [1]
    assert definition.properties == {"owner": "ops", "rootline.expire": "true", "rootline.sweep": "true"}
    dropped = run(
        "table", "alter", "demo.t", "--drop", "n", "--optional", "id", "--identifier-fields", "", "--warehouse", folder
    )
    assert (dropped.code, dropped.out) == (0, "demo.t: changed, version 2\n")
    again = run("table", "alter", "demo.t", "--property", "owner=ops", "--warehouse", folder)
    assert (again.code, again.out) == (0, "demo.t: nothing to change\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--add", "gate"), "--add 'gate': write it with an equals sign"),
        (("--drop", "nowhere"), "nowhere"),
        (("--type", "id=string"), "Cannot change column type"),
        (("--add", "gate=sting"), "there is no type 'sting'"),
    ],
)
def test_what_cannot_be_done_says_why_and_changes_nothing(
    folder: Path, run: Run, words: tuple[str, str], said: str
) -> None:
    result = run("table", "alter", "demo.t", *words, "--warehouse", folder)
    assert (result.code in (1, 2), said in result.err) == (True, True), result.err
    assert "0 " in run("history", "demo.t", "--warehouse", folder).out


def test_partition_fields_and_the_sort_order_change_and_describe_shows_them(folder: Path, run: Run) -> None:
    words = ["--add-partition-field", "bucket(4, id)", "--add-partition-field", "truncate(2, name) as start"]
    order = ["--set-sort-order", "name, -bucket(8, id) nulls first"]
    result = run("table", "alter", "demo.t", *words, *order, "--warehouse", folder)
    assert result.code == 0, result.err
    result = run(
        *("table", "alter", "demo.t", "--drop-partition-field", "bucket(4, id)", "--set-sort-order", "-id"),
        *("--rename-partition-field", "start=begin", "--warehouse", folder),
    )
    assert result.code == 0, result.err
    said = run("table", "describe", "demo.t", "--warehouse", folder).out.splitlines()
    assert "partitioned by: truncate(2, name)" in said
    assert "sorted by: -id" in said
    assert "  partition spec 0: nothing" in said
    assert "  partition spec 1: bucket(4, id), truncate(2, name) (named id_bucket, start)" in said
    assert "  partition spec 2, of new files: truncate(2, name) (named begin)" in said
    assert "  sort order 1: name, -bucket(8, id) nulls first" in said
    assert "  sort order 2, of new files: -id" in said
    assert run("table", "alter", "demo.t", "--set-sort-order", "", "--warehouse", folder).code == 0
    assert "sorted by: nothing" in run("table", "describe", "demo.t", "--warehouse", folder).out


def test_a_table_is_created_with_a_sort_order(folder: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "columns.json").write_text('{"id": "int", "city": "string"}')
    made = run(
        *("table", "create", "demo.u", "--schema", tmp_path / "columns.json", "--sort-by", "-city, bucket(4, id)"),
        *("--warehouse", folder),
    )
    assert made.code == 0, made.err
    assert "sorted by: -city, bucket(4, id)" in run("table", "describe", "demo.u", "--warehouse", folder).out


def test_a_table_is_created_with_identifier_fields(folder: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "columns.json").write_text('{"city": "string", "id": "int not null"}')
    made = run(
        *("table", "create", "demo.v", "--schema", tmp_path / "columns.json", "--identifier-fields", "id"),
        *("--warehouse", folder),
    )
    assert made.code == 0, made.err
    shown = json.loads(run("table", "describe", "demo.v", "--json", "--warehouse", folder).out)
    assert shown["definition"]["schemas"][0]["identifier-field-ids"] == [2]
