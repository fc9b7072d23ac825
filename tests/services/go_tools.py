"""Services written in Go, built once and kept in the user's cache folder.

Owns: the cache and the builds. Does not own: running them.
Invariants: a binary in the cache is whole and of the version in its name, also when two sessions build at once.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.services.slow_step import run_saying


def cache_folder() -> Path:
    """Where the harness keeps what it built or downloaded."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "rootline"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def go_tool(name: str, package: str, version: str, *, instead: str = "") -> Path:
    """The binary of `package` at `version`; the test fails with what to install when it cannot be had."""
    binary = cache_folder() / f"{name}-{version}"
    if binary.exists():
        return binary
    go = shutil.which("go")
    if go is None:
        pytest.fail(f"{name} {version} cannot be built: install Go 1.24 or newer (go on PATH){instead}", pytrace=False)
    with (cache_folder() / f"{name}.lock").open("w") as lock, tempfile.TemporaryDirectory(dir=cache_folder()) as made:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if binary.exists():
            return binary
        built = run_saying(
            f"building {name} {version}, once (up to 3 minutes)",
            [go, "install", f"{package}@{version}"],
            env={"GOBIN": made},
            timeout_s=900,
        )
        if built.code != 0:
            reason = built.stderr.strip().splitlines()[-1:] or ["no reason given"]
            pytest.fail(
                f"{name} {version} cannot be built: `go install {package}@{version}`: {reason[0]}{instead}",
                pytrace=False,
            )
        Path(made, package.rsplit("/", 1)[-1]).rename(binary)
    return binary
