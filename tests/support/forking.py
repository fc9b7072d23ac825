"""What a process that forks others from what it has imported does, and what a forked one does first.

Owns: the imports, streams, environment and folder, a child that only waits. Does not own: who asks and how
(`tests.kafka.fork_server`, `tests.spark.machine.warm_workers`), what the forked process runs.
Invariants: imports nothing of pytest; a forked process has exactly the environment that was given.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
from collections.abc import Iterable, Iterator, Mapping


def import_before(modules: Iterable[str]) -> None:
    """Import what the forked processes shall find, and keep it out of searches for cycles: these write to all of it."""
    for module in modules:
        importlib.import_module(module)
    gc.freeze()


def take_place(streams: Mapping[int, int], environment: Mapping[str, str], folder: str) -> None:
    """Let the forked process be where and what was asked for; `streams`: the descriptor of each of its own."""
    for stream, given in streams.items():
        os.dup2(given, stream)
        os.close(given)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)


@contextlib.contextmanager
def waiting_child() -> Iterator[None]:
    """A forked child that only waits, with all that was open in its parent, until the block ends."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    os.close(reading)
    try:
        yield
    finally:
        os.close(writing)
        os.waitpid(child, 0)
