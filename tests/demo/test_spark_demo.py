"""The demo with Spark reports what is true, can run again, and leaves nothing running."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from examples.spark_demo.report import SparkReport
from examples.spark_demo.service import command_line, running_service
from rootline.adapters.open import LAKE_FOLDER
from rootline.adapters.posix_files import LakeLock
from rootline.connect import connect
from rootline.demo.example_flights import Agreement

pytestmark = [pytest.mark.spark, pytest.mark.slow]
DEMO = [sys.executable, "-m", "examples.spark_demo"]
WITH_SQL = [sys.executable, "-m", "tests.engines.sql_demo"]
HOUSE = Path(__file__).parents[2]
PATIENCE_S = 400


def no_one_hosts(root: Path) -> bool:
    lock = LakeLock(root / LAKE_FOLDER)
    try:
        return lock.try_acquire()
    finally:
        lock.release()


def processes_in(folder: Path) -> list[str]:
    """The processes whose working folder is below it, such as the Spark of the INSERT."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):  # it has ended
            if link.readlink().is_relative_to(folder):
                found.append(link.parent.name)
    return found


def test_make_demo_runs_the_program_that_is_tested_here() -> None:
    told = subprocess.run(["make", "-n", "demo"], cwd=HOUSE, capture_output=True, text=True, check=True).stdout
    assert f"python {' '.join(WITH_SQL[1:])} --root demo-lake" in told


@pytest.mark.services
def test_the_demo_agrees_with_pandas_and_can_be_run_where_another_was(
    tmp_path: Path, warm_workers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "lake"
    with connect(root) as lake:
        lake.create_table("demo.flights", pa.schema([("id", pa.int64())]))
    monkeypatch.setenv("PYSPARK_PYTHON", warm_workers)
    command = [*WITH_SQL, "--root", str(root), "--months", "1"]
    done = subprocess.run(command, cwd=HOUSE, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rows      expected 26,483 (pandas), read 26,483 (Spark) and 26,483 (rootline scan): the same" in done.stdout
    assert "wrote 1 metadata object each" in done.stdout
    assert "rootline check says: demo.flights_2: no findings" in done.stdout
    files = root / "demo-files" / "demo.flights_2"
    assert (files / "tree.svg").read_text().startswith("<svg")
    assert (files / "tree-before-flush.svg").exists()
    inserted = re.search(
        r"^sql +Spark SQL 4\.1\.\d inserted 4,\d+ rows through the REST catalog as version (\d+) of "
        r"demo\.flights_2_live, after (\d+) and before (\d+) micro-batches of the stream\n"
        r" +expected ([\d,]+) \(pandas\), read \4 \(Spark\) and \4 \(Spark SQL\): the same$",
        done.stdout,
        re.MULTILINE,
    )
    assert inserted is not None, done.stdout
    assert all(int(number) > 0 for number in inserted.groups()[:3])
    assert no_one_hosts(root)
    assert processes_in(root) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_stops_what_it_started(tmp_path: Path, number: signal.Signals) -> None:
    root = tmp_path / "lake"
    process = subprocess.Popen(
        [*DEMO, "--root", str(root), "--months", "1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("services up"):
                break
        process.send_signal(number)
        out, _ = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, out.splitlines()[-1]) == (130, "stopped")
    finally:
        process.kill()
        process.wait()
    assert no_one_hosts(root)


def test_without_a_network_the_demo_says_what_it_leaves_out_and_begins(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    process = subprocess.Popen(
        [*WITH_SQL, "--root", str(tmp_path / "lake"), "--months", "1"],
        cwd=HOUSE,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = next(process.stdout)
        assert "runs without its last step, an INSERT by Spark SQL: Spark 4.1" in said
        assert "With a network, the next run tries again" in said
        assert any(line.startswith("flights read") for line in process.stdout)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert [path.suffix for path in (tmp_path / "cache/rootline").iterdir()] == [".lock"]


def test_an_insert_that_was_left_out_is_in_the_report() -> None:
    text = "\n".join(SparkReport(sql_missing="no network").lines())
    assert "sql       no INSERT by Spark SQL: no network" in text


def test_a_lake_that_is_served_already_is_refused_naming_the_process(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    with running_service(root, tmp_path / "up.log") as service:
        done = subprocess.run([*DEMO, "--root", str(root)], capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 1
        assert f"process {service.process.pid} serves" in done.stderr
        assert service.process.poll() is None


def test_a_mismatch_is_reported_as_one() -> None:
    report = SparkReport(agreement=Agreement())
    assert ": the same" in "\n".join(report.lines())
    report.agreement.hold("rows read by Spark", 3, 2)
    assert report.agreement.mismatches == ["rows read by Spark: expected 3, read 2"]
    text = "\n".join(report.lines())
    assert "NOT the same" in text
    assert "MISMATCH  rows read by Spark: expected 3, read 2" in text


def test_a_mismatch_after_the_insert_is_not_one_of_the_rows_before_it() -> None:
    report = SparkReport()
    report.sql_agreement.hold("INSERT INTO t", "committed", "refused")
    text = "\n".join(report.lines())
    assert "(rootline scan): the same" in text
    assert "MISMATCH  INSERT INTO t: expected committed, read refused" in text
    assert not report.agrees


def test_a_service_answers_with_metrics_and_a_command_with_its_output(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    with running_service(root, tmp_path / "up.log") as service:
        assert service.quantiles("rootline_commit_seconds").count == 0
        schema = tmp_path / "schema.json"
        schema.write_text('{"id": "long"}')
        made = command_line("table", "create", "demo.t", "--schema", str(schema), "--warehouse", str(root))
        assert made.returncode == 0, made.stderr
        found = service.quantiles("rootline_commit_seconds")
        assert found.count == 1
        assert 0 < found.p50_ms <= found.p99_ms
    assert service.process.returncode == 0
    assert (tmp_path / "up.log").exists()
