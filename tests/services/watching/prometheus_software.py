"""Prometheus and promtool: those on the path, or the programs of Debian's package, unpacked in the cache folder.

Owns: where they come from. Does not own: the cache (`cached_software`), running a server (`prometheus_server`).
Invariants: nothing is installed on the machine, and no service is started; a test fails with one line that says what to
install when they cannot be had.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.services.cached_software import cached, carry_out

_PACKAGE: Final = "prometheus"
_INSTEAD: Final = "; put prometheus and promtool on PATH (Debian and Ubuntu: apt-get install prometheus)"
_PROGRAMS: Final = ("prometheus", "promtool")


def prometheus_program(name: str) -> Path:
    """Where `prometheus` or `promtool` is."""
    assert name in _PROGRAMS
    found = shutil.which(name)
    if found is not None:
        return Path(found)
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        pytest.fail(f"{name} is not installed{_INSTEAD}", pytrace=False)
    with cached(_PACKAGE, "debian", _fetch) as folder:
        return folder / name


def _fetch(folder: Path) -> Path:
    download = ("apt-get", "-q", "download", _PACKAGE)
    if os.geteuid() == 0 and not _is_listed():
        _step("asking which packages there are", ("apt-get", "-q", "update"), folder)
    _step(f"fetching {_PACKAGE}, once (20 MB)", download, folder)
    (package,) = folder.glob("*.deb")
    _step(f"unpacking {_PACKAGE}", ("dpkg-deb", "-x", str(package), "unpacked"), folder)
    kept = folder / "kept"
    kept.mkdir()
    for name in _PROGRAMS:
        (folder / "unpacked" / "usr" / "bin" / name).rename(kept / name)
    return kept


def _is_listed() -> bool:
    asked = subprocess.run(["apt-cache", "show", _PACKAGE], capture_output=True, timeout=60, check=False)
    return asked.returncode == 0


def _step(what: str, command: tuple[str, ...], folder: Path) -> None:
    carry_out("Prometheus", what, command, folder, timeout_s=300, instead=_INSTEAD)
