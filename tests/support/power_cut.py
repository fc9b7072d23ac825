"""A disk that forgets what was not synced: what is left of a folder when the power fails.

Owns: which bytes and which names are durable. Does not own: what must be durable when (the tests).
Invariants: the strictest reading of POSIX: a file has the bytes of its last fsync, a folder the names of its last;
nothing becomes durable by itself or together with something else; calls are not changed, only watched.

SQLite calls the system by itself, so its files are not seen here: their names are, and their bytes are not.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest


class PowerCut:
    """Watches `os.fsync` below `top`, a folder that is durable as it is now. `fails`: folders whose sync fails."""

    def __init__(self, top: Path, patch: pytest.MonkeyPatch) -> None:
        self.top = top
        self.fails: set[Path] = set()
        self.before_sync: Callable[[], None] = lambda: None
        self._sync = os.fsync
        self._names: dict[int, dict[str, int]] = {}
        self._bytes: dict[int, bytes] = {}
        for path in (top, *top.rglob("*")):
            self._keep(path)
        patch.setattr(os, "fsync", self._fsync)

    def left_in(self, target: Path) -> Path:
        """Make in `target`, a new folder, what would be left of `top` if the power failed now."""
        target.mkdir()
        self._restore(self.top.stat().st_ino, target)
        return target

    def durable_bytes(self, path: Path) -> bytes | None:
        """The durable bytes of the file that now has this name below `top`, whether or not the name is durable."""
        return self._bytes.get((self.top / path).stat().st_ino)

    def _fsync(self, file: int) -> None:
        self.before_sync()
        number = os.fstat(file).st_ino
        path = next(path for path in (self.top, *self.top.rglob("*")) if path.stat().st_ino == number)
        if path in self.fails:
            raise OSError(errno.EIO, "a planted failure")
        self._sync(file)
        self._keep(path)

    def _keep(self, path: Path) -> None:
        number = path.stat().st_ino
        if path.is_dir():
            self._names[number] = {found.name: found.stat().st_ino for found in path.iterdir()}
        else:
            self._bytes[number] = path.read_bytes()

    def _restore(self, folder: int, target: Path) -> None:
        for name, number in self._names.get(folder, {}).items():
            if number in self._bytes:
                (target / name).write_bytes(self._bytes[number])
            elif number in self._names:
                (target / name).mkdir()
                self._restore(number, target / name)
            else:  # a name whose bytes, or a folder whose names, were never synced
                (target / name).touch()
