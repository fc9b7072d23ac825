"""The demo on Kafka and S3 reports what is true, and leaves nothing running."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import pytest

from examples.spark_demo.service import command_line
from tests.services.s3_service import SECRET as S3_SECRET

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.slow]
DEMO = [sys.executable, "-m", "tests.services.kafka_demo"]
HOUSE = Path(__file__).parents[2]
PATIENCE_S = 400
SECRETS = {
    "ROOTLINE_HTTP__TOKEN": "http-token-81aa",
    "ROOTLINE_CATALOG__TOKEN": "catalog-token-5f2c",
    "ROOTLINE_REDIS__URL": "redis://someone:url-password-9d41@127.0.0.1:9/0",
    "ROOTLINE_REDIS__PASSWORD": "redis-password-77ab",
}
NEVER = ("http-token-81aa", "catalog-token-5f2c", "url-password-9d41", "redis-password-77ab", S3_SECRET)


def processes_in(lines: Sequence[str]) -> list[int]:
    """The processes that the demo says it started."""
    return [int(pid) for line in lines for pid in re.findall(r"\(process (\d+)\)", line)]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def places_of_secrets(said: str, folder: Path) -> list[str]:
    """Where a secret is in what a run wrote: its lines, logs, metrics, the broker's files, the bucket's objects."""
    files = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert any(name.endswith("coordinator-1.log") for name in files)
    assert any(name.endswith("coordinator-1.metrics") for name in files)
    files = {name: text for name, text in files.items() if not name.endswith("server.properties")}  # a server's own
    everything = {"what it said": said.encode(), **files}
    return [name for name, text in everything.items() if any(secret.encode() in text for secret in NEVER)]


def test_make_demo_kafka_runs_the_program_that_is_tested_here() -> None:
    told = subprocess.run(["make", "-n", "demo-kafka"], cwd=HOUSE, capture_output=True, text=True, check=True).stdout
    assert f"python {' '.join(DEMO[1:])} --root demo-kafka" in told


def test_the_demo_on_kafka_and_s3_agrees_with_pandas_and_stops_what_it_started(
    tmp_path: Path, warm_workers: str
) -> None:
    command = [*DEMO, "--root", str(tmp_path), "--months", "1"]
    environment = {**os.environ, **SECRETS, "PYSPARK_PYTHON": warm_workers}
    done = subprocess.run(command, cwd=HOUSE, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert places_of_secrets(done.stdout + done.stderr, tmp_path) == []
    out = done.stdout
    assert "rows      expected 26,483 (pandas), read 26,483 (Spark) and 26,483 (rootline scan): the same" in out
    assert "wrote 1 metadata object each" in out
    assert re.search(r"commits   \d+, [1-9]\d* of them flushes", out)
    assert re.search(r"latency   commit \(PUT of a root\) p50 [\d.]+ ms.*intent until its verdict p50 \d+ ms", out)
    assert "rootline check says: demo.flights: no findings" in out
    assert re.search(r"coordinator-1 at http.*\n.*coordinator-2 at http", out)
    trace = re.search(r"^trace +version \d+ of demo\.flights in [\d.]+ ms\n(.*\n)(.*\n)(.*\n)(.*\n)", out, re.MULTILINE)
    assert trace is not None, out
    steps = [line.split("█")[0].strip() for line in trace.groups()]
    assert steps == ["publish", "decide", "put root", "tell verdict"], "one intent, through two processes"
    pids = processes_in(out.splitlines())
    assert [pid for pid in pids if is_running(pid)] == []
    later = re.search(r"rootline table list --warehouse (\S+)", out)
    if later is not None:  # a store of its own, whose objects are files
        checked = command_line("check", "demo.flights", "--warehouse", later[1])
        assert checked.stdout.startswith("demo.flights: no findings in ")


def answer_of(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


def test_an_interrupted_demo_with_dashboards_had_them_and_stops_what_it_started(tmp_path: Path) -> None:
    command = [*DEMO, "--root", str(tmp_path), "--months", "1", "--coordinators", "1", "--dashboards"]
    process = subprocess.Popen(command, cwd=HOUSE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said: list[str] = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if line.startswith("Spark up"):
                break
        urls = dict(re.findall(r"^ +(console|Prometheus) +(http://[\d.:]+)/", "".join(said), re.MULTILINE))
        assert "<title>Rootline</title>" in answer_of(f"{urls['console']}/")
        assert '"job":"rootline-coordinator"' in answer_of(f"{urls['Prometheus']}/api/v1/targets")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out.splitlines()[-1]) == (130, "stopped"), "".join(said) + out
    pids = processes_in([*said, *out.splitlines()])
    assert pids
    assert [pid for pid in pids if is_running(pid)] == []
