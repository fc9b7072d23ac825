"""A driver as a process group: it is killed, and starts again from its checkpoints.

Owns: the process, its deaths. Does not own: what it does (`job`), what is in its sources (`sources`).
Invariants: it is killed with its whole group and at once; who ends before the test ends with the test.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.services.process_bond import bound
from tests.spark.torture.job import Job
from tests.spark.torture.killing_source import PHASE_VARIABLE, Phase

PATIENCE_S = 1800.0
"""A busy machine, and a driver that reads its sources to their ends."""
_LAST_TRIES = 3
_EXCEPTION = re.compile(r"[\w.]+(Error|Exception|Invalid|Unavailable|Rejected|Corrupt)\b.*: ")


@dataclass
class MortalDriver:
    """`deaths`: how often it died of what; `endings`: with what it ended by itself."""

    job: Job
    environment: Mapping[str, str]
    folder: Path
    deaths: Counter[str] = field(default_factory=Counter)
    endings: list[str] = field(default_factory=list)
    lives: int = 0

    @property
    def log(self) -> Path:
        """What it said, in all its lives."""
        return self.folder / f"{self.job.name}.log"

    def live(self, phase: Phase | None = None, kill_after_s: float | None = None) -> None:
        """Live until it dies in `phase`, or so long after it began (or lost its executor), or comes to its end."""
        self.lives += 1  # a worker of the life before may still look at its own mark
        mark, begun = self.folder / f"{self.job.name}.{self.lives}.phase", Path(self.job.begun_mark)
        begun.unlink(missing_ok=True)
        if phase is not None:
            mark.write_text(phase)
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.torture.job", self.job.to_json()],
                env={
                    **os.environ,
                    **self.environment,
                    PHASE_VARIABLE: str(mark),
                    "PYTHONPATH": _python_path(),
                    "SPARK_LOCAL_DIRS": str(self.folder / "spark"),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        with bound(process.pid):
            try:
                is_left = phase is Phase.EXECUTOR
                code = self._awaited(process, lambda: begun.exists() and not (is_left and mark.exists()), kill_after_s)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if code == -signal.SIGKILL:
            self.deaths["at random" if phase is None or mark.exists() else phase] += 1
        else:
            self.endings.append("done" if code == 0 else f"{code}: {self._last_words()}")
        in_a_row = self.endings[-_LAST_TRIES:]
        if code > 0 and len(in_a_row) == _LAST_TRIES and "done" not in in_a_row and not self.deaths:
            raise AssertionError(f"{self.job.name} only ends by itself: {in_a_row[-1]}; see {self.log}")

    def _awaited(
        self, process: subprocess.Popen[bytes], has_begun: Callable[[], bool], kill_after_s: float | None
    ) -> int:
        deadline_s = time.monotonic() + PATIENCE_S
        while process.poll() is None and not has_begun():
            assert time.monotonic() < deadline_s, f"{self.job.name} does not begin: {self._last_words()}"
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
        try:
            return process.wait(PATIENCE_S if kill_after_s is None else kill_after_s)
        except subprocess.TimeoutExpired:
            assert kill_after_s is not None, f"{self.job.name} does not end: {self._last_words()}"
            return -signal.SIGKILL

    def finish(self) -> None:
        """Let it live until it has come to the end of its sources."""
        Path(self.job.last_mark).touch()
        for _ in range(_LAST_TRIES):
            self.live()
            if self.endings[-1] == "done":
                return
        raise AssertionError(f"{self.job.name} does not come to its end: {self.endings[-1]}; see {self.log}")

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return next((line.strip() for line in reversed(lines) if _EXCEPTION.match(line)), "")[:400]


def _python_path() -> str:
    """Executors run elsewhere, and find these tests all the same."""
    return os.pathsep.join([str(Path(__file__).parents[3]), *filter(None, [os.environ.get("PYTHONPATH")])])
