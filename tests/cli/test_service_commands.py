"""Services as processes: start, use, stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from examples.spark_demo.service import PROGRAM
from rootline.connect import connect

pytestmark = pytest.mark.slow


@contextmanager
def service(*words: object) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A running service, and the first line that it printed."""
    process = subprocess.Popen(
        [*PROGRAM, *map(str, words), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first, process.stderr.read() if process.stderr is not None else ""
        yield process, json.loads(first)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def stopped(process: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str]:
    """Exit code and the last output after a signal."""
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    return process.returncode, out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_up_says_where_it_listens_serves_writers_and_stops_without_losing_anything(
    tmp_path: Path, number: signal.Signals
) -> None:
    with service("up", "--root", tmp_path / "lake") as (process, said):
        assert said["roles"] == ["coordinator", "worker"]
        with urllib.request.urlopen(said["url"] + "/healthz", timeout=30) as answer:
            assert answer.read() == b"ok\n"
        with urllib.request.urlopen(said["url"] + "/metrics", timeout=30) as answer:
            text = answer.read().decode()
        assert "rootline_worker_tables" in text
        assert "rootline_assigned_partitions" in text
        assert "process_resident_memory_bytes" in text or sys.platform != "linux"
        assert "rootline_build_info{" in text
        with connect(tmp_path / "lake", coordinator="elsewhere") as lake:
            table = lake.create_table("demo.t", pa.schema([("id", pa.int64())]))
            for number_of_row in range(3):
                table.append({"id": [number_of_row]})
        code, out = stopped(process, number)
        assert (code, json.loads(out)) == (0, {"event": "stopped"})
    with connect(tmp_path / "lake", coordinator="elsewhere") as lake:
        assert lake.table("demo.t").scan().count() == 3


def test_a_second_coordinator_waits_for_the_first_and_can_be_stopped_meanwhile(tmp_path: Path) -> None:
    with (
        service("up", "--root", tmp_path / "lake") as (first, _),
        service("coordinator", "--warehouse", tmp_path / "lake") as (second, said),
    ):
        assert (said["event"], said["holder"]) == ("waiting", first.pid)
        assert stopped(second, signal.SIGTERM)[0] == 0


def test_a_waiting_coordinator_takes_over_when_the_first_is_killed(tmp_path: Path) -> None:
    with (
        service("up", "--root", tmp_path / "lake") as (first, _),
        service("coordinator", "--warehouse", tmp_path / "lake") as (second, _),
    ):
        first.kill()
        assert second.stdout is not None
        assert json.loads(second.stdout.readline())["event"] == "listening"


def test_a_worker_runs_alone(tmp_path: Path) -> None:
    with service("worker", "--warehouse", tmp_path / "lake") as (process, said):
        assert said["roles"] == ["worker"]
        with urllib.request.urlopen(said["url"] + "/readyz", timeout=30) as answer:
            assert json.load(answer) == {"ready": True, "reason": "", "failing": {}}
        with urllib.request.urlopen(said["url"] + "/metrics", timeout=30) as answer:
            text = answer.read().decode()
        assert "rootline_worker_tables 0.0" in text
        assert "rootline_build_info{" in text
        assert stopped(process, signal.SIGTERM)[0] == 0


def test_a_service_that_cannot_start_says_so_in_one_line(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    done = subprocess.run([*PROGRAM, "up", "--root", str(blocked)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1


def test_a_service_logs_a_misspelt_setting(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("so that the service ends at once")
    misspelt = {**os.environ, "ROOTLINE_WORKER__HTP_PORT": "1"}
    command = [*PROGRAM, "worker", "--warehouse", str(blocked)]
    done = subprocess.run(command, capture_output=True, text=True, env=misspelt, timeout=60)
    assert (
        "ROOTLINE_WORKER__HTP_PORT: no setting has this name; did you mean ROOTLINE_WORKER__HTTP_PORT?" in done.stderr
    )


def test_a_port_that_is_named_and_cannot_be_served_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "uvicorn.py").write_text("raise ModuleNotFoundError('No module named uvicorn', name='uvicorn')\n")
    refused = subprocess.run(
        [*PROGRAM, "up", "--root", str(tmp_path / "lake"), "--http-port", "0"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        timeout=60,
    )
    assert refused.returncode == 2, refused.stderr
    assert "needs uvicorn, which is not installed: pip install" in refused.stderr
    assert not (tmp_path / "lake").exists()


def test_writers_go_on_while_the_service_stops_and_lose_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    with service("up", "--root", folder) as (process, _), connect(folder) as lake:
        table = lake.create_table("demo.t", pa.schema([("id", pa.int64())]))
        with ThreadPoolExecutor(3) as threads:
            appends = [threads.submit(table.append, {"id": [number]}) for number in range(30)]
            appends[5].result(60)
            assert stopped(process, signal.SIGTERM)[0] == 0
            for append in appends:
                append.result(60)
        assert sorted(table.scan().to_arrow().column("id").to_pylist()) == list(range(30))
        assert list(table.check()) == []
