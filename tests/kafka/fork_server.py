"""A process that has imported what the services need, and forks those that run them.

Owns: what is imported before, what a forked process makes its own. Does not own: asking for one (`forked_process`).
Invariants: it forks with a single thread; a forked process begins where `python -c` begins after its imports, with the
environment, folder, streams and words that were asked for, in a session of its own, and ends as Python ends; the server
ends with the process that asks, however that ends.

A start takes a second and a half of the processor, nearly all of it for imports, and the tests start a hundred.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tests.support.forking import import_before, take_place

_IMPORTED: Final = (
    "rootline.cli.app",
    "rootline.cli.output",
    "rootline.cli.service_commands",
    "rootline.cli.services",
    "rootline.coordinator.http.server",
    "rootline.workers.server",
    "rootline.catalog.rest.serving",
    "rootline.catalog.exporter",
    "rootline.adapters.kafka.coordinator_log",
    "rootline.adapters.kafka.administration",
    "rootline.adapters.redis_calls",
    "rootline.adapters.redis_task_queue",
    "rootline.adapters.s3_object_store",
    "uvicorn.lifespan.off",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
)
"""What the services import when they start: also what only a log on Kafka, a store on S3 and Redis make them import."""
_QUESTION_BYTES: Final = 1_000_000


def fork_when_asked(asking: socket.socket) -> Callable[[], object]:
    """Fork when asked, and say how those that were forked ended; returns in each of these, with what it is to run."""
    import_before(_IMPORTED)
    while True:
        text, streams, _, _ = socket.recv_fds(asking, _QUESTION_BYTES, 2)
        if not text:
            os._exit(0)
        question = json.loads(text)
        if "pid" in question:
            pid, status = os.waitpid(question["pid"], os.WNOHANG)
            code = os.waitstatus_to_exitcode(status) if pid else None
            _answer(asking, question, code)
        elif os.fork() == 0:
            _become(asking, question, streams)
            return _program(question["program"])
        for stream in streams:
            os.close(stream)


def _become(asking: socket.socket, question: Mapping[str, Any], streams: Sequence[int]) -> None:
    """Make the forked process what was asked for."""
    os.setsid()
    _answer(asking, question, os.getpid())  # not before it leads a session: who hears of it may kill all of that
    asking.close()
    take_place(dict(enumerate(streams, start=1)), question["environment"], question["folder"])
    sys.argv[1:] = question["words"]


def _answer(asking: socket.socket, question: Mapping[str, Any], answer: int | None) -> None:
    asking.send(json.dumps([question["number"], answer]).encode())


def _program(name: str) -> Callable[[], object]:
    module, _, function = name.partition(":")
    program: Callable[[], object] = getattr(importlib.import_module(module), function)
    return program
