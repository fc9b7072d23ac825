"""Looking at tables from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from rootline import connect
from tests.cli.conftest import Run


def test_history_shows_the_newest_version_first(run: Run, lake: Path) -> None:
    result = run("history", "demo.flights", "--warehouse", lake, "--json")
    assert result.code == 0
    assert [record["version"] for record in result.records] == [3, 2, 1, 0]
    assert [record["operation"] for record in result.records][:2] == ["delete", "append"]
    assert len(run("history", "demo.flights", "--warehouse", lake, "--limit", 2).lines) == 3


def test_files_shows_what_a_scan_would_read(run: Run, lake: Path) -> None:
    result = run("files", "demo.flights", "--warehouse", lake, "--where", "carrier = 'UA'", "--json")
    assert [(record["rows"], record["deleted_rows"]) for record in result.records] == [(2, 1)]
    assert len(run("files", "demo.flights", "--warehouse", lake).lines) == 4


def test_the_tree_is_printed_or_drawn(run: Run, lake: Path, tmp_path: Path) -> None:
    assert "demo.flights" in run("tree", "demo.flights", "--warehouse", lake).out
    picture = tmp_path / "tree.svg"
    assert run("tree", "demo.flights", "--warehouse", lake, "--svg", picture).code == 0
    assert picture.read_text().startswith("<svg")


def test_the_tree_as_json_is_one_object_with_groups_and_leaves(run: Run, lake: Path) -> None:
    words = ("tree", "demo.flights", "--warehouse", lake, "--json")
    [tree] = run(*words).records
    assert (tree["table"], tree["version"], tree["data_files"], tree["rows"]) == ("demo.flights", 3, 3, 4)
    assert [(group["content_type"], group["files"]) for group in tree["groups"]] == [
        ("data", 3),
        ("position_delete", 1),
    ]
    with connect(lake) as opened:
        with opened.table("demo.flights").alter() as change:
            change.set_properties({"rootline.append.leaf-files": "1"})
        opened.table("demo.flights").append({"id": [9]})
    [leaf] = run(*words).records[0]["leaves"]
    assert (leaf["content_type"], leaf["status"], leaf["entries"], leaf["deletes"]) == ("data_manifest", "added", 1, [])


def test_scan_prints_csv_that_can_be_read_back(run: Run, lake: Path) -> None:
    result = run("scan", "demo.flights", "--warehouse", lake, "--columns", "id,carrier,delay")
    assert result.lines[0] == "id,carrier,delay"
    assert sorted(result.lines[1:]) == ["1,UA,5.0", "3,AA,", '4,"DL, Inc",0.0']


def test_scan_prints_json_lines_counts_and_limits(run: Run, lake: Path) -> None:
    words = ("scan", "demo.flights", "--warehouse", lake)
    result = run(*words, "--where", "id = 1", "--json")
    assert result.records == [{"id": 1, "carrier": "UA", "delay": 5.0}]
    assert run(*words, "--count").out == "3\n"
    assert run(*words, "--count", "--limit", 2).out == "2\n"
    assert run(*words, "--version", 1, "--count", "--json").records == [{"table": "demo.flights", "rows": 3}]
    assert len(run(*words, "--limit", 2).lines) == 3


def test_scan_reads_an_older_version_by_each_of_its_names(run: Run, lake: Path) -> None:
    first = run("history", "demo.flights", "--warehouse", lake, "--json").records[2]
    words = ("scan", "demo.flights", "--warehouse", lake, "--count")
    assert first["version"] == 1
    for name, value in (("--snapshot-id", first["snapshot_id"]), ("--timestamp", first["timestamp"])):
        assert run(*words, name, value).out == "3\n"


def test_changes_shows_what_came_went_and_was_deleted(run: Run, lake: Path) -> None:
    words = ("changes", "demo.flights", "--warehouse", lake)
    added, deleted = run(*words, "--from", 1, "--json").records
    assert (added["change"], added["rows"]) == ("added", 1)
    assert (deleted["change"], deleted["rows"], deleted["positions"]) == ("rows-deleted", 1, [[1, 1]])
    assert run(*words, "--from", 3).out == "demo.flights: nothing changed between versions 3 and 3\n"
    assert [line.split()[0] for line in run(*words, "--from", 1).lines] == ["change", "added", "rows-deleted"]
    assert run(*words, "--from", 9).code == 1


def test_tags_are_set_listed_read_by_and_deleted(run: Run, lake: Path) -> None:
    words = ("tag", "demo.flights", "--warehouse", lake)
    assert run(*words).out == "demo.flights: no tags\n"
    assert run(*words, "release", "--version", 1).out == "release is version 1\n"
    assert run("scan", "demo.flights", "--warehouse", lake, "--tag", "release", "--count").out == "3\n"
    assert run(*words, "release", "--version", 2).code == 1
    assert run(*words, "release", "--version", 2, "--move").out == "release is version 2\n"
    assert run(*words, "--json").records == [{"tag": "release", "version": 2}]
    assert run(*words, "release", "--delete").out == "deleted release\n"
    assert run(*words, "release", "--delete").code == 1
    assert run(*words, "--delete").code == 2


def test_a_table_is_taken_back_after_a_look_at_what_would_change(run: Run, lake: Path) -> None:
    words = ("restore", "demo.flights", "--warehouse", lake, "--to-version", 1)
    shown = run(*words, "--dry-run", "--json").records
    assert [(record["change"], record["rows"]) for record in shown] == [("removed", 1), ("rows-restored", 1)]
    assert len(run("history", "demo.flights", "--warehouse", lake, "--json").records) == 4
    assert run(*words).out == "version 4 of demo.flights is what version 1 was\n"
    assert run("scan", "demo.flights", "--warehouse", lake, "--count").out == "3\n"
    assert run(*words, "--dry-run").out == "demo.flights: restoring version 1 would change nothing\n"
    assert run(*words[:-1], 99).code == 1


def test_check_of_a_sound_table_ends_with_zero(run: Run, lake: Path) -> None:
    result = run("check", "demo.flights", "--warehouse", lake, "--json")
    assert (result.code, result.records[0]["findings"]) == (0, 0)


def test_check_says_what_it_did_not_look_at(run: Run, lake: Path) -> None:
    words = ("check", "demo.flights", "--warehouse", lake)
    [plain] = run(*words).lines
    assert plain.startswith("demo.flights: no findings in 4 versions, 0 leaves, 1 vectors, 3 data files; not checked:")
    assert "lengths and contents of data files (--data-files sizes, footers or all)" in plain
    left_out = {}
    for closely in ("listed", "sizes", "footers", "all"):
        [record] = run(*words, "--data-files", closely, "--json").records
        left_out[closely] = record["not_looked_at"]
        assert record["data_files"] == 3
    assert [len(items) for items in left_out.values()] == [2, 2, 2, 1]
    assert left_out["all"] == ["whether exports match the table"]
    assert run(*words, "--data-files", "some").code == 2


def test_check_names_a_truncated_data_file_and_the_line_that_takes_it_out_works(
    run: Run, lake: Path, tmp_path: Path
) -> None:
    words = ("check", "demo.flights", "--warehouse", lake, "--data-files", "sizes")
    broken = min(lake.glob("demo/flights/data/**/*.parquet"))
    broken.chmod(0o600)
    broken.write_bytes(broken.read_bytes()[:-1])
    told = run(*words, "--json")
    [finding, result] = told.records
    assert (told.code, finding["code"], result["findings"]) == (1, "length-wrong", 1)
    assert broken.name in finding["object"]
    plain = run(*words)
    assert plain.code == 1
    assert finding["way_out"] in plain.out
    assert "rootline publish" in run("explain", finding["code"]).out

    (tmp_path / "way-out.jsonl").write_text(finding["way_out"] + "\n")
    assert run("publish", tmp_path / "way-out.jsonl", "--warehouse", lake).code == 0
    after = run(*words)
    assert after.code == 0
    assert "1 data files are lost and were removed from the table" in after.out


def test_a_check_that_takes_long_writes_plain_lines_where_there_is_no_terminal(
    run: Run, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("check", "demo.flights", "--warehouse", lake).err == ""
    monkeypatch.setattr("rootline.cli.output.LINE_EVERY_S", 0.0)
    told = run("check", "demo.flights", "--warehouse", lake, "--data-files", "all").err.splitlines()
    assert told[0] == "checking demo.flights: 1 of 4 versions"
    assert told[-1] == "checking demo.flights: 4 of 4 versions, 3 of 3 data files"


def test_check_names_the_object_whose_bytes_were_changed_and_ends_with_one(run: Run, lake: Path) -> None:
    (vectors,) = lake.glob("demo/flights/data/*.puffin")
    body = bytearray(vectors.read_bytes())
    body[20] ^= 1
    vectors.chmod(0o600)
    vectors.write_bytes(body)
    result = run("check", "demo.flights", "--warehouse", lake)
    assert result.code == 1
    assert vectors.name in result.out
    assert "vector-corrupt" in result.out


def test_history_lists_a_version_of_rejections_only_when_all_are_wanted(run: Run, lake: Path, tmp_path: Path) -> None:
    line = '{"table": "demo.flights", "kind": "remove", "remove_files": [{"location": "data/none.parquet"}]}'
    (tmp_path / "bad.jsonl").write_text(line + "\n")
    assert run("publish", tmp_path / "bad.jsonl", "--warehouse", lake).code == 1
    words = ("history", "demo.flights", "--warehouse", lake, "--json")
    assert [record["version"] for record in run(*words).records] == [3, 2, 1, 0]
    assert [record["version"] for record in run(*words, "--all").records] == [4, 3, 2, 1, 0]
    assert run("scan", "demo.flights", "--warehouse", lake, "--version", 4, "--count").out == "3\n"


def test_looking_makes_no_folder_and_no_log(run: Run, tmp_path: Path) -> None:
    result = run("table", "list", "--warehouse", tmp_path / "typo")
    assert result.code == 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("history", "demo.none"), 1),
        (("history", "flights"), 2),
        (("scan", "demo.flights", "--where", "delay >"), 2),
        (("scan", "demo.flights", "--columns", "nowhere"), 2),
        (("scan", "demo.flights", "--version", "99"), 1),
        (("scan", "demo.flights", "--version", "x"), 2),
        (("scan", "demo.flights", "--version", "1", "--snapshot-id", "1"), 2),
        (("scan", "demo.flights", "--timestamp", "2013-01-31"), 2),
        (("scan", "demo.flights", "--tag", "release"), 1),
        (("tree",), 2),
        (("dance",), 2),
    ],
)
def test_a_failure_is_one_line_with_the_next_step(run: Run, lake: Path, words: tuple[str, ...], code: int) -> None:
    result = run(*words, *(("--warehouse", lake) if words != ("dance",) else ()))
    assert result.code == code
    assert "Traceback" not in result.err
    if result.err.startswith("error: "):
        assert len(result.err.splitlines()) == 1
        assert "next: rootline explain " in result.err
    assert result.out == ""


def test_with_json_a_failure_is_an_object_too(run: Run, lake: Path) -> None:
    import json

    result = run("history", "demo.none", "--warehouse", lake, "--json")
    assert json.loads(result.err)["error"] == "table-unknown"


def test_without_a_warehouse_a_command_says_how_to_name_one(run: Run) -> None:
    result = run("table", "list")
    assert result.code == 2
    assert "ROOTLINE_WAREHOUSE" in result.err


def test_the_environment_names_the_warehouse(run: Run, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOTLINE_WAREHOUSE", str(lake))
    assert run("table", "list").out.split() == ["table", "demo.flights"]


def test_files_and_scan_tell_what_planning_took(run: Run, lake: Path) -> None:
    words = ("demo.flights", "--warehouse", lake, "--where", "carrier = 'UA'", "--plan")
    assert run("files", *words).lines == [
        "1 files of version 3: 2 requests (1 LIST, 1 GET, 0 of these for leaves); 0 of 0 data leaves pruned"
    ]
    (record,) = run("scan", *words, "--json").records
    assert (record["files"], record["requests"], record["lists"], record["gets_of_leaves"]) == (1, 2, 1, 0)


def test_scan_shows_metadata_columns_by_name(run: Run, lake: Path) -> None:
    result = run("scan", "demo.flights", "--warehouse", lake, "--columns", "id,_pos,_deleted,_partition", "--json")
    assert sorted(result.records, key=lambda row: row["id"])[1] == {
        "id": 2,
        "_pos": 1,
        "_deleted": True,
        "_partition": {"carrier": "UA"},
    }
