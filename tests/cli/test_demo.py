"""`rootline demo` reports what is true, and can run again."""

from __future__ import annotations

from pathlib import Path

import pytest

from rootline.demo.quick_demo import FLUSHED_BY_HAND
from rootline.maintenance.limits import FlushLimits
from tests.cli.conftest import Run


@pytest.mark.slow
def test_the_demo_agrees_with_pandas_and_can_be_run_again(run: Run, tmp_path: Path) -> None:
    for table in ("demo.flights", "demo.flights_2"):
        result = run("demo", "--root", tmp_path / "lake", "--months", 1, "--json")
        assert result.code == 0, result.out + result.err
        (report,) = result.records
        assert report["agrees"]
        assert report["table"] == table
        assert report["rows_read"] == report["rows_expected"] == 27_004 - 521
        assert report["rows_read_by_pyiceberg"] == report["rows_expected"]
        assert report["objects_per_commit"] == 1
        assert report["files_flushed"] > 0
        assert len(report["waterfall"]) == 5, "the way of one intent: a heading and its four spans"
        assert Path(report["picture"]).read_text().startswith("<svg")
    assert "--months" in run("demo", "--help").out


def test_no_pace_of_commits_lets_a_worker_flush_the_demos_table_between_two_of_them() -> None:
    assert (
        FlushLimits.of_properties(FLUSHED_BY_HAND).at_pace(200_000, commits_per_s=50).vectors == FlushLimits().vectors
    )
    assert FlushLimits.of_properties({}).at_pace(200_000, commits_per_s=50).vectors < FlushLimits().vectors
