"""Services written in Go, built once and kept in the user's cache folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.services.cached_software import cache_folder, cached
from tests.services.slow_step import run_saying


def go_tool(name: str, package: str, version: str, *, instead: str = "") -> Path:
    """The binary of `package` at `version`; the test fails with what to install when it cannot be built."""
    binary = cache_folder() / f"{name}-{version}"
    if binary.exists():
        return binary
    go = shutil.which("go")
    if go is None:
        pytest.fail(f"{name} {version} cannot be built: install Go 1.24 or newer (go on PATH){instead}", pytrace=False)

    def build(folder: Path) -> Path:
        built = run_saying(
            f"building {name} {version}, once (up to 3 minutes)",
            [go, "install", f"{package}@{version}"],
            env={"GOBIN": str(folder)},
            timeout_s=900,
        )
        if built.code != 0:
            reason = built.stderr.strip().splitlines()[-1:] or ["no reason given"]
            pytest.fail(
                f"{name} {version} cannot be built: `go install {package}@{version}`: {reason[0]}{instead}",
                pytrace=False,
            )
        return folder / package.rsplit("/", 1)[-1]

    with cached(name, version, build) as built_binary:
        return built_binary
