"""The frame that measures Rootline beside its peers, at its smallest scale, and the page that it writes."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import sample_table
from benchmarks.peers import files
from benchmarks.peers.__main__ import measure
from benchmarks.peers.bench import Record, Run
from benchmarks.peers.driver import Driver, DriverFailed, running_driver
from benchmarks.peers.page import (
    CHAPTERS,
    PAGE,
    PICTURES,
    README,
    RESULTS,
    ahead_of_us,
    cost_of_million,
    page_of,
    pictures_of,
    read_prices,
)
from benchmarks.peers.readme_table import figures_of, with_figures
from benchmarks.peers.scenarios import SCALES, SCENARIOS, Asked, asked_of
from benchmarks.peers.software import CONSTRAINTS, PACKAGES
from benchmarks.peers.subjects import FLOOR, ROOTLINE, SUBJECTS, chosen

STORED = Path(__file__).with_name("peers.json")
WORDS = """
import sys
from benchmarks.peers.protocol import serve
class Words:
    version = "1"
    def open(self, place): print("a library prints this")
    def prepare(self, numbers): sys.exit("no more paper")
    def commit(self, numbers):
        if numbers.start == 1: raise ValueError("a conflict")
    def close(self): pass
serve(Words())
"""


def test_a_run_of_one_scenario_keeps_the_figures_of_the_others(tmp_path: Path) -> None:
    place = tmp_path / "peers.json"
    first = measure([], SCALES["tiny"], ["large"], place, "make bench-peers")
    of_floor = {"peer": FLOOR, "settings": "best"}
    others = [{"scenario": "serial", **of_floor}, {"scenario": "large", "peer": "delta-rs", "settings": "best"}]
    first["records"] = [{"scenario": "large", **of_floor}, *others]
    place.write_text(json.dumps(first))
    second = measure(chosen([FLOOR]), SCALES["tiny"], ["large"], place, "make bench-peers ARGS='--only large'")
    assert second["records"] == others, "the floor stores no table, so it has no record of its own"
    assert [run["command"] for run in second["runs"]] == ["make bench-peers", "make bench-peers ARGS='--only large'"]
    place.write_text(json.dumps({**second, "machine": "another"}))
    assert measure([], SCALES["tiny"], ["large"], place, "make bench-peers")["records"] == []


@pytest.mark.slow
@pytest.mark.services
def test_the_smallest_run_measures_rootline_and_the_floor_and_its_json_makes_a_page(tmp_path: Path) -> None:
    subjects = [one for one in chosen([FLOOR, ROOTLINE]) if one.settings == "best"]
    names = ["serial", "writers", "requests", "planning", "one-row"]
    body = measure(subjects, SCALES["tiny"], names, tmp_path / "peers.json", "make bench-peers")
    assert json.loads((tmp_path / "peers.json").read_text()) == body
    records = [Record(**record) for record in body["records"]]
    assert [record for record in records if record.reason or record.figures.get("failed")] == []
    found = {(record.scenario, record.peer): record.figures for record in records}
    assert {scenario for scenario, peer in found if peer == ROOTLINE} == set(names)
    assert found["requests", ROOTLINE]["requests"] == found["requests", ROOTLINE]["objects"] == 1
    assert found["requests", FLOOR]["bytes_written"] == 100 * 1024
    assert found["writers", ROOTLINE]["files_found"] == found["writers", ROOTLINE]["tried"]
    assert found["planning", ROOTLINE]["planned"] == 10  # of 40, with the filter, which is the last
    assert "## One writer" in page_of(body, read_prices())


@pytest.mark.slow
@pytest.mark.services
def test_the_smallest_run_lets_pyiceberg_append_through_rootlines_catalog_and_finds_every_row_once(
    tmp_path: Path,
) -> None:
    subjects = [one for one in chosen([ROOTLINE]) if one.settings == "best"]
    body = measure(subjects, SCALES["tiny"], ["clients"], tmp_path / "peers.json", "make bench-peers")
    [record] = [Record(**record) for record in body["records"]]
    assert record.reason == ""
    figures = record.figures
    assert [figures[name] for name in ("failed", "failed_by_store", "lost", "doubled")] == [0] * 4
    assert figures["tried"] >= 2
    assert figures["clients_cpu_ms"] > 0 < figures["servers_cpu_ms"]
    assert "## Iceberg's own clients through a REST catalog" in page_of(body, read_prices())


def test_peers_commit_the_files_that_rootline_commits() -> None:
    for number in (0, 3, 4_711):
        ours = sample_table.statistics(number)
        assert files.rows_of(number) == sample_table.rows_of(number)
        for column in range(len(files.TYPES)):
            mine = ours[column + 1]
            assert files.bounds_of(number, column) == (mine.lower_bound, mine.upper_bound)
            assert files.nulls_of(number) == mine.null_value_count
    kinds = [str(field.field_type) for field in sample_table.definition().schema.fields]
    assert kinds == list(files.TYPES)


def test_a_selective_range_meets_the_files_that_it_promises() -> None:
    low, high = files.selective(1_000, 50)
    met = [n for n in range(1_000) if files.bounds_of(n, 0)[1] >= low and files.bounds_of(n, 0)[0] <= high]
    assert met == list(range(475, 525))


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    with running_driver([sys.executable, "-c", WORDS], tmp_path / "driver.err") as running:
        yield running


def test_a_failed_commit_is_an_answer_and_what_a_library_prints_is_none(driver: Driver) -> None:
    driver.ask(open={})
    answer = driver.ask(commit=[0, 3], each=1)
    assert len(answer["seconds"]) == 2
    assert [reason for _, reason in answer["failed"]] == ["ValueError: a conflict"]


def test_a_driver_that_ends_is_an_error_with_its_last_words(driver: Driver) -> None:
    with pytest.raises(DriverFailed, match="no more paper"):
        driver.ask(prepare=[0, 1])


def test_a_reason_names_no_folder_of_this_machine() -> None:
    run = Run()
    run.miss("serial", SUBJECTS[1], "near", {}, "no catalog in '/tmp/a/rootline-bench-x1/peers-2/own/catalog.db'")
    assert run.records[0].reason == "no catalog in 'FOLDER/peers-2/own/catalog.db'"


def test_requests_are_read_from_the_log_of_the_store() -> None:
    head = "owner bucket [28/November/2026:13:03:56 +0000] 127.0.0.1 rootline ID "
    put = f"{head}s3_PutObject a/b /bucket/a/b 200 - 0 1000 0 0 - agent"
    assert asked_of(put) == Asked("PutObject", "a/b", 200, 1_000)
    kinds = ("CreateMultipartUpload", "UploadPart", "GetObject", "HeadObject", "ListObjectsV2", "DeleteObjects")
    found = [asked_of(put.replace("PutObject", kind)) for kind in kinds]
    assert [one and one.kind for one in found] == ["put", "put", "get", "head", "list", "delete"]
    assert asked_of("log starts 2026-11-28") is None


def test_every_scenario_has_a_chapter_and_every_package_a_version() -> None:
    assert [chapter.scenario for chapter in CHAPTERS] == list(SCENARIOS)
    pinned = {line.partition("==")[0].lower().replace("_", "-") for line in CONSTRAINTS.read_text().splitlines()}
    assert {re.split(r"\[", package)[0] for package in PACKAGES} <= pinned


def test_the_page_is_the_one_of_the_stored_results() -> None:
    body = json.loads(RESULTS.read_text())
    assert PAGE.read_text() == page_of(body, read_prices())
    assert {name: (PICTURES / name).read_text() for name in pictures_of(body)} == pictures_of(body)


def test_the_readmes_figures_are_those_of_the_stored_results() -> None:
    body = json.loads(RESULTS.read_text())
    readme = README.read_text()
    assert readme == with_figures(readme, figures_of(body, ahead_of_us(body, read_prices())))


def test_peers_are_chosen_by_the_beginning_of_their_names() -> None:
    assert {one.peer for one in chosen(["duck", "delta"])} == {
        "DuckLake, DuckDB",
        "DuckLake, SQLite",
        "DuckLake, PostgreSQL",
        "delta-rs",
    }
    with pytest.raises(ValueError, match="no peer is named hudi: known are bare PUT, Rootline"):
        chosen(["hudi"])


@pytest.fixture
def body() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(STORED.read_text())
    return found


class TestPage:
    """The page from a stored JSON, whose figures are made up."""

    def test_the_line_above_a_table_has_one_form_whoever_is_first(self, body: dict[str, Any]) -> None:
        page = page_of(body, read_prices())
        ahead = "Best p50, ms: Rootline, 2. Quick Peer: 4, a factor of 2."
        behind = "Best p50, ms: Quick Peer, 70. Rootline: 140, a factor of 2."
        assert f"**S3, local, 10 commits.** {ahead}" in page
        assert f"**S3, +60 ms, 10 commits.** {behind}" in page
        assert "| Quick Peer | 4 | 2 | 8 | 10 | 0 | 0 | 4 |" in page  # the last is the ratio to the bare PUT

    def test_more_commits_a_second_are_better_and_failures_stand_beside_them(self, body: dict[str, Any]) -> None:
        page = page_of(body, read_prices())
        assert "Best commits/s: Rootline, 90. Quick Peer, defaults: 30, a factor of 3." in page
        assert "Failures: Quick Peer, defaults: 7 \N{MULTIPLICATION SIGN} Conflict." in page
        assert "(7 of 10 failed)" in pictures_of(body)["benchmarks-writers.svg"]

    def test_what_was_not_measured_is_listed_with_its_reason(self, body: dict[str, Any]) -> None:
        row = "| Many writers | Quick Peer | S3, local, 8 writers | its catalog takes 1 process |"
        assert row in page_of(body, read_prices())
        assert "| Planning a scan | all | all | not in this run |" in page_of(body, read_prices())

    def test_costs_follow_from_counted_requests_and_list_prices(self, body: dict[str, Any]) -> None:
        [record] = [Record(**one) for one in body["records"] if one["scenario"] == "requests"]
        prices = {"put_per_1000": 0.005, "get_per_1000": 0.0004, "gb_month": 0.02, "region": "here", "as_of": "now"}
        assert cost_of_million(record, prices) == pytest.approx(1e3 * ((1 + 0.5) * 0.005 + (2 + 1) * 0.0004))
        assert "| Rootline | 8.70 | 3 | 33.70 |" in page_of(body, prices)

    def test_a_chapter_names_its_command_and_the_load_of_its_own_run(self, body: dict[str, Any]) -> None:
        body["records"][0]["load"] = 9.0
        body["runs"].append({**body["runs"][0], "command": "make bench-peers ARGS='--only writers'", "scale": "small"})
        for record in body["records"]:
            record["run"] = int(record["scenario"] == "writers")
        serial, writers = page_of(body, read_prices()).split("## Many writers")
        assert "`make bench-peers` on 2026-01-02 at commit 0123abcd. The load average was 0.5 to 9.0" in serial
        assert "Measured by `make bench-peers ARGS='--only writers'`" in writers
        assert "`--scale small`, which is shorter than the full run. The load average was 0.5 to 0.5" in writers

    def test_a_chapter_without_figures_has_no_heading(self, body: dict[str, Any]) -> None:
        assert "## Planning a scan" not in page_of(body, read_prices())

    def test_a_picture_has_a_bar_for_each_subject_of_each_load(self, body: dict[str, Any]) -> None:
        picture = pictures_of(body)["benchmarks-serial.svg"]
        assert picture.count("<rect") == 1 + 5
        assert picture.index("S3, local, 10 commits") < picture.index(">bare PUT<") < picture.index("S3, +60 ms")


class TestReadme:
    """The README's table from the same JSON, with the names of peers that it shows."""

    @pytest.fixture
    def body(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(STORED.read_text().replace("Quick Peer", "DuckLake, PostgreSQL"))
        return found

    def figures(self, body: dict[str, Any]) -> str:
        prices = {"put_per_1000": 0.005, "get_per_1000": 0.0004}
        return figures_of(body, ahead_of_us(body, prices))

    def test_the_best_figure_of_a_column_is_bold_whoever_has_it(self, body: dict[str, Any]) -> None:
        headings, _, ours, theirs = self.figures(body).splitlines()[:4]
        assert headings.split(" | ")[1:3] == ["one writer, p50 ms", "store 60 ms away, p50 ms"]
        assert headings.split(" | ")[3:] == ["8 writers, commits/s (failed)", "requests of a commit |"]
        assert ours == "| Rootline | **2** | 140 | **90** (0 of 10) | **4.5** |"
        assert theirs == "| DuckLake, PostgreSQL | 4 | **70** | 30 (7 of 10) | \N{EN DASH} |"

    def test_it_names_the_chapters_in_which_a_peer_is_ahead(self, body: dict[str, Any]) -> None:
        assert "ahead of Rootline here: One writer (DuckLake)." in self.figures(body)
        cheap = next(record for record in body["records"] if record["scenario"] == "requests")
        body["records"].append({**cheap, "peer": "PyIceberg", "figures": {**cheap["figures"], "put": 0.0}})
        assert "One writer (DuckLake); the price of the requests (PyIceberg)." in self.figures(body)

    def test_a_scenario_that_was_not_measured_has_no_column_and_a_peer_without_figures_no_row(
        self, body: dict[str, Any]
    ) -> None:
        body["records"] = [one for one in body["records"] if (one["scenario"], one["where"]) == ("serial", "near")]
        headings, _, ours, theirs, after = self.figures(body).splitlines()[:5]
        assert headings == "|  | one writer, p50 ms |"
        assert (ours, theirs, after) == ("| Rootline | **2** |", "| DuckLake, PostgreSQL | 4 |", "")

    def test_it_shows_the_largest_table_and_where_a_peer_ran_out_of_time(self, body: dict[str, Any]) -> None:
        like = body["records"][0]
        for peer, sizes, appends in (("Rootline", (0, 9_000), 5_000.0), ("PyIceberg", (0,), 1_500.0)):
            of_peer = {**like, "peer": peer, "run": len(body["runs"])}
            body["records"] += [
                *({**of_peer, "scenario": "growth", "parameters": {"files": size, "commits": 3}} for size in sizes),
                {
                    **of_peer,
                    "scenario": "one-row",
                    "where": "folder",
                    "parameters": {"appends": 5_000},
                    "figures": {"last_ms": 7.0, "appends": appends},
                },
            ]
        body["runs"].append({**body["runs"][0], "scale": "medium"})
        headings, _, ours, theirs = self.figures(body).splitlines()[:4]
        assert headings.endswith("| table of 9,000 files, p50 ms | one row after 5,000, ms |")
        assert ours.endswith("| **1** | **7** |")
        assert theirs.endswith("| \N{EN DASH} | **7** (after 1,500) |")
        assert "with the sizes of `--scale medium`, on 2 cores" in self.figures(body)

    def test_a_readme_without_the_place_for_figures_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="needs one place for its figures"):
            with_figures("# Rootline\n", "| |")
