"""Chromium: the one on the path, or the programs of Debian's packages, unpacked in the cache folder.

Owns: where it comes from. Does not own: the cache (`cached_software`), running it (`browser`).
Invariants: nothing is installed on the machine; a test fails with one line that says what to install when Chromium
cannot be had.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.services.cached_software import cached, carry_out

_PACKAGE: Final = "chromium-headless-shell"
"""Debian's Chromium without windows: a third of the start of the whole browser, the same engine."""
_ON_PATH: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_INSTEAD: Final = "; put chromium on PATH (Debian and Ubuntu: apt-get install chromium-headless-shell)"
_LIBRARIES: Final = Path("usr", "lib")


class Chromium(NamedTuple):
    """The program, and folders in which it finds libraries that this machine lacks."""

    program: Path
    libraries: tuple[Path, ...] = ()


def chromium() -> Chromium:
    """Chromium, fetched if need be."""
    found = next((path for name in _ON_PATH if (path := shutil.which(name)) is not None), None)
    if found is not None:
        return Chromium(Path(found))
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        pytest.fail(f"Chromium is not installed{_INSTEAD}", pytrace=False)
    with cached(_PACKAGE, "debian", _fetch) as folder:
        below = folder / _LIBRARIES
        libraries = sorted({path.parent for path in below.rglob("*.so*") if "chromium" not in path.parts})
        return Chromium(below / "chromium" / _PACKAGE, tuple(libraries))


def _fetch(folder: Path) -> Path:
    if os.geteuid() == 0 and not _missing():
        _step("asking which packages there are", ("apt-get", "-q", "update"), folder)
    _step("fetching Chromium, once (100 MB)", ("apt-get", "-q", "download", *(_missing() or [_PACKAGE])), folder)
    kept = folder / "kept"
    for package in sorted(folder.glob("*.deb")):
        _step(f"unpacking {package.name.split('_')[0]}", ("dpkg-deb", "-x", str(package), str(kept)), folder)
    return kept


def _missing() -> list[str]:
    """The package and those it needs that are not installed; none: the package is not known."""
    command = ["apt-get", "-s", "install", "--no-install-recommends", _PACKAGE]
    told = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False).stdout
    return [words[1] for line in told.splitlines() if len(words := line.split()) > 1 and words[0] == "Inst"]


def _step(what: str, command: tuple[str, ...], folder: Path) -> None:
    carry_out("Chromium", what, command, folder, timeout_s=600, instead=_INSTEAD)
