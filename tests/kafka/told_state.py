"""What a process can tell of itself, to be compared with another's.

Owns: the facts. Does not own: how the processes were started.
Invariants: imports nothing but Python's own library, so that what else is loaded was loaded by who started it.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import stat
import sys
import threading
from pathlib import Path
from typing import Any


def tell() -> None:
    """Print it."""
    told = {"pid": os.getpid(), "parent": os.getppid(), "random": random.random(), "state": _state()}
    sys.stdout.write(json.dumps(told) + "\n")


def _state() -> dict[str, Any]:
    return {
        "words": sys.argv,
        "environment": dict(os.environ),
        "as its own children see it": os.popen("env | sort").read().splitlines(),  # also what C sees
        "folder": str(Path.cwd()),
        "path": sys.path,
        "flags": str(sys.flags),
        "leads a session": os.getsid(0) == os.getpgrp() == os.getpid(),
        "descriptors": _descriptors(),
        "streams": [_stream(name) for name in ("stdin", "stdout", "stderr")],
        "handlers": {number.name: str(signal.getsignal(number)) for number in signal.Signals},
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "wakeup": signal.set_wakeup_fd(-1),
        "limits": [resource.getrlimit(limit) for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS)],
        "mask": os.umask(0o022),
        "threads": [thread.name for thread in threading.enumerate()],
        "tests": sorted(name for name in sys.modules if name.partition(".")[0] in ("_pytest", "pytest", "xdist")),
        "main": [sys.modules["__main__"].__spec__, getattr(sys.modules["__main__"], "__file__", None)],
    }


def _descriptors() -> dict[int, str]:
    """Of what kind the open ones are."""
    found = {}
    for descriptor in range(256):
        try:
            found[descriptor] = oct(stat.S_IFMT(os.fstat(descriptor).st_mode))
        except OSError:
            continue
    return found


def _stream(name: str) -> list[Any]:
    stream = getattr(sys, name)
    return [stream.fileno(), stream.encoding, stream.errors, stream.line_buffering, stream.write_through]
