"""Software that is fetched or built once and kept in the user's cache folder.

Owns: the cache, one fetch at a time, the steps of a fetch. Does not own: what is fetched (`go_tools`, `kafka_software`,
`tests.engines.iceberg_software`).
Invariants: what is in the cache is complete and of the version in its name, also when two sessions fetch it at once; a
test fails with one line that says what to install when the software cannot be installed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.services.slow_step import run_saying


def cache_folder() -> Path:
    """Where the tests keep what they built or downloaded."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "rootline"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def cached(name: str, version: str, fetch: Callable[[Path], Path]) -> Iterator[Path]:
    """`NAME-VERSION` in the cache; no other session is in the block for the same name.

    `fetch` is called with an empty folder if it is not in the cache yet, and returns what to keep of that folder.
    """
    kept = cache_folder() / f"{name}-{version}"
    with (cache_folder() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            with tempfile.TemporaryDirectory(dir=cache_folder()) as made:
                fetch(Path(made)).rename(kept)
        yield kept


def maven(software: str, *, instead: str = "") -> list[str]:
    """The command of a quiet Maven; `instead`: what to do without it."""
    found = shutil.which("mvn")
    if found is None:
        pytest.fail(f"{software} cannot be installed: install Maven (mvn on PATH){instead}", pytrace=False)
    return [found, "-B", "-q"]


def carry_out(
    software: str,
    what: str,
    command: Sequence[str],
    folder: Path,
    *,
    timeout_s: float,
    environment: Mapping[str, str] = {},
    instead: str = "",
) -> None:
    """Run one step of a fetch in `folder`; the test fails with the first error line that it prints."""
    ended = run_saying(what, command, cwd=folder, timeout_s=timeout_s, env=environment)
    if ended.code != 0:
        said = [line for line in (ended.stdout + ended.stderr).splitlines() if "ERROR" in line]
        reason = said[0] if said else "no reason given"
        pytest.fail(f"{software} cannot be installed: {what}: {reason[:300]}{instead}", pytrace=False)
