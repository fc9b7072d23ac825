"""A Python for the tests' Spark whose workers begin with the library imported.

Owns: the command that Spark takes for its Python, and the process that forks what Spark starts with it.
Does not own: the sessions that use it, what stands for the forked where Spark looks (`ask_for_fork`).
Invariants: a worker runs what Spark runs in it, in the environment that Spark gives it; that a worker can import the
library by itself is proven without this one, by `test_worker_python.py`, by `cluster`, and by `make demo`.

Spark forks a fresh worker for every schema, plan and commit of a data source, from a daemon for each kind of work, and
each worker imports pandas and our library; a stream's source has a process of its own, which does the same. That takes
a second of the processor: more than all the rest of a small query. `spark.python.daemon.module` names another daemon
for tasks only, so the command itself is another one.
"""

from __future__ import annotations

import json
import os
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.forking import import_before, take_place

_HOUSE: Final = Path(__file__).parents[3]
_ASK: Final = Path(__file__).with_name("ask_for_fork.py")
_FORKED: Final = ("pyspark.daemon", "pyspark.sql.streaming.python_streaming_source_runner")
_KINDS: Final = (
    "commit_data_source_write",
    "create_data_source",
    "data_source_pushdown_filters",
    "lookup_data_sources",
    "plan_data_source_read",
    "python_streaming_sink_runner",
    "write_into_data_source",
)
_IMPORTED: Final = ("pandas", "pyspark.worker", *_FORKED, *(f"pyspark.sql.worker.{kind}" for kind in _KINDS))


@contextmanager
def warm_python() -> Iterator[str]:
    """A command for `PYSPARK_PYTHON`, until the block ends."""
    with tempfile.TemporaryDirectory() as folder:  # a socket's path must be short: pytest's folders are not
        yield from _warm_python(Path(folder))


def _warm_python(folder: Path) -> Iterator[str]:
    place = folder / "socket"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
        listening.listen(64)
        forking = subprocess.Popen(
            [sys.executable, "-m", __name__, str(listening.fileno())],
            cwd=_HOUSE,
            # what Spark sets for a daemon, and matters before it begins; threads would not be in a forked process
            env=os.environ | {"PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "YES", "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            pass_fds=[listening.fileno()],
        )
    command, python = folder / "warm-python", shlex.quote(sys.executable)
    asking = f"{python} -I -S {shlex.quote(str(_ASK))} {shlex.quote(str(place))}"
    forked = "|".join(f'"-m {module}"' for module in _FORKED)
    command.write_text(f'#!/bin/sh\ncase "$1 $2" in\n{forked}) shift; exec {asking} "$@";;\nesac\nexec {python} "$@"\n')
    command.chmod(0o755)
    try:
        yield str(command)
    finally:
        forking.kill()  # it ends with its input too: also when we are killed
        forking.communicate()


def fork_all(listening: socket.socket) -> None:
    """Fork a process for each that is asked for, until stdin ends."""
    import_before((*_IMPORTED, "rootline.spark.data_source"))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no one asks how they ended
    while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:
        asked, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            _become(asked)
        asked.close()


def _become(asked: socket.socket) -> None:
    """Do what `python -m MODULE WORDS…` does, and end."""
    code = 1
    try:
        _, streams, _, _ = socket.recv_fds(asked, 1, 3)
        parts = []
        while part := asked.recv(65_536):
            parts.append(part)
        said = json.loads(b"".join(parts))
        take_place(dict(enumerate(streams)), said["variables"], said["folder"])
        module, *words = said["words"]
        sys.argv[:] = [module, *words]
        sys.path[:0] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in sys.path]
        del sys.modules[module]  # `runpy` says that it runs a second time
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    fork_all(socket.socket(fileno=int(sys.argv[1])))
