"""A step of the tests that takes minutes on a fresh machine: it says so, and says that it still runs.

Owns: lines of progress on stderr, the end of what was started. Does not own: what the step does.
Invariants: a command that is interrupted is ended together with all that it started; silence never lasts long.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_SAY_EVERY_S = 20.0


@dataclass(frozen=True)
class Ended:
    """What became of a command."""

    code: int
    stdout: str
    stderr: str


def say_progress(text: str) -> None:
    """One line, at once."""
    print(f"   {text}", file=sys.stderr, flush=True)


def run_saying(
    what: str, command: Sequence[str], *, timeout_s: float, cwd: Path | str | None = None, env: Mapping[str, str] = {}
) -> Ended:
    """Run `command` to its end; `what` says what it does, and how long that usually takes.

    Raises:
        TimeoutError: it was ended after `timeout_s` seconds.

    """
    began_s = time.monotonic()
    say_progress(f"{what} …")
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            while (code := _code_of(process)) is None:
                took_s = time.monotonic() - began_s
                if took_s > timeout_s:
                    raise TimeoutError(f"{what}: not done after {timeout_s:.0f} s")
                say_progress(f"{what} … {took_s:.0f} s so far")
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        said = []
        for file in (stdout, stderr):
            file.seek(0)
            said.append(file.read())
    say_progress(f"{what}: {'done' if code == 0 else 'FAILED'} after {time.monotonic() - began_s:.0f} s")
    return Ended(code, said[0], said[1])


def _code_of(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(timeout=_SAY_EVERY_S)
    except subprocess.TimeoutExpired:
        return None
