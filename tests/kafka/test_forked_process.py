"""A forked process is what one is that Python was started for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from examples.spark_demo.service import PROGRAM
from tests.kafka.forked_process import ForkedProcess

HOUSE = Path(__file__).parents[2]
TELL = "import tests.kafka.told_state; tests.kafka.told_state.tell()"
WAITING = """
import sys
from tests.kafka.forked_process import ForkedProcess
from tests.services.process_bond import ProcessBond

process = ForkedProcess("signal:pause", (), {}, 1, 2)
bond = ProcessBond(process.pid)
print(process.pid, flush=True)
sys.stdin.read()
process.kill()
assert process.wait(60) == -9
bond.release()
"""
pytestmark = pytest.mark.slow


def forked(program: str, *words: str, folder: Path, environment: dict[str, str] | None = None) -> ForkedProcess:
    """One whose streams are the files `out` and `err` of the folder."""
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        variables = dict(os.environ) if environment is None else environment
        return ForkedProcess(program, words, variables, out.fileno(), err.fileno())


def told(folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    """What a forked process tells of itself."""
    process = forked("tests.kafka.told_state:tell", "one", "--two", folder=folder, environment=environment)
    assert process.wait(60) == 0, (folder / "err").read_text()
    said: dict[str, Any] = json.loads((folder / "out").read_text())
    assert said["pid"] == process.pid
    return said


def test_it_finds_around_it_what_a_started_one_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HOUSE)
    # a language, because Python adds one where there is none; what Python reads when it begins is the server's
    of_python = {name: value for name, value in os.environ.items() if name.startswith("PYTHON")}
    environment = {**of_python, "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    with (tmp_path / "started").open("wb") as out, (tmp_path / "err").open("wb") as err:
        subprocess.run(
            [sys.executable, "-c", TELL, "one", "--two"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=environment,
            start_new_session=True,
            check=True,
        )
    started = json.loads((tmp_path / "started").read_text())
    first, second = told(tmp_path, environment), told(tmp_path, environment)
    assert first["state"] == second["state"] == started["state"]
    assert first["state"]["environment"] == environment
    assert first["random"] != second["random"]
    assert len([*Path(f"/proc/{first['parent']}/task").iterdir()]) == 1, "a server with threads must not fork"


@pytest.mark.parametrize("words", [["--version"], ["no-such-command"], ["catalog", "serve", "--warehouse", "memory:"]])
def test_the_command_line_says_the_same_and_ends_with_the_same_code(tmp_path: Path, words: list[str]) -> None:
    started = subprocess.run([*PROGRAM, *words], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    process = forked("rootline.cli.app:main", *words, folder=tmp_path)
    assert process.wait(60) == started.returncode
    assert (tmp_path / "out").read_bytes() == started.stdout
    assert (tmp_path / "err").read_bytes() == started.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_that_ends_it_is_its_exit_code(tmp_path: Path, number: signal.Signals) -> None:
    process = forked("signal:pause", folder=tmp_path)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0)
    assert process.poll() is None
    process.send_signal(number)
    assert process.wait(60) == process.poll() == process.returncode == -number
    process.kill()  # nothing: its number may be another's by now


def test_an_error_at_its_start_is_in_its_log_and_its_exit_code(tmp_path: Path) -> None:
    process = forked("no_such_module:main", folder=tmp_path)
    assert process.wait(60) == 1
    assert "no_such_module" in (tmp_path / "err").read_text()


@pytest.mark.parametrize("is_killed", [True, False])
def test_nothing_is_left_when_the_tests_end_or_are_killed(is_killed: bool) -> None:
    command = [sys.executable, "-W", "error", "-c", WAITING]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=HOUSE, stdin=pipe, stdout=pipe, stderr=pipe) as harness:
        assert harness.stdout is not None
        assert int(harness.stdout.readline()) != harness.pid
        if is_killed:
            harness.kill()
        # stdout, which the forked process has, and stderr, which the server has too, end when all of them have ended
        assert harness.communicate(timeout=60) == (b"", b"")
        assert harness.returncode == (-9 if is_killed else 0)
