"""The release and the current tree, each as a process that runs `scenario.py`, and coordinators of both.

Owns: the release's environment, the processes. Does not own: the changes that they make (`scenario`).
Invariants: the release sees the dependencies of this environment, and never the current tree. No network is used.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.release.built import build, carry_out, export

RELEASE: Final = Path(__file__).with_name("release.toml")
_SCENARIO: Final = Path(__file__).with_name("scenario.py")


@dataclass(frozen=True, slots=True)
class Release:
    """A released version, and the commit that its wheel was built from."""

    version: str
    commit: str


def named_release() -> Release:
    """The release in release.toml."""
    return Release(**tomllib.loads(RELEASE.read_text()))


def installed(release: Release, folder: Path) -> Path:
    """Build the release's wheel and install it into an environment of its own. The environment's Python.

    Raises:
        NotBuilt: the clone lacks the commit.
    """
    wheel = build("wheel", export(release.commit, folder / "sources"))
    environment = folder / "environment"
    make = [sys.executable, "-m", "venv", "--without-pip", str(environment)]
    carry_out("making an environment", make, folder, os.environ)
    [site] = environment.glob("lib/python*/site-packages")
    # a path in a .pth file is not searched for .pth files, such as that of the current tree
    (site / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
    python = environment / "bin" / "python"
    install = [sys.executable, "-m", "pip", f"--python={python}", "install", "--quiet", "--no-index", "--no-deps"]
    carry_out("installing the wheel", [*install, str(wheel)], folder, os.environ)
    return python


class Side:
    """`scenario.py` under one interpreter, on one lake. A call of any of its commands waits for the answer."""

    def __init__(self, python: Path, warehouse: Path, log: str | None, variables: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [str(python), str(_SCENARIO), str(warehouse), *([] if log is None else [log])],
            env=without_rootline(os.environ) | dict(variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def begin(self, name: str, *arguments: Any) -> None:
        """Begin a command; `answer` waits for it."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps([name, *arguments])}\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """The answer to the command that was begun."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"it ended with exit code {self._process.wait(60)}; its traceback is above"
        return json.loads(line)

    def __call__(self, name: str, *arguments: Any) -> Any:
        self.begin(name, *arguments)
        return self.answer()

    def end(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(30)
        if self._process.stdout is not None:
            self._process.stdout.close()


def without_rootline(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that name no lake and no path of modules."""
    return {name: value for name, value in variables.items() if not name.startswith(("ROOTLINE_", "PYTHONPATH"))}


@contextmanager
def both_sides(
    python: Path, warehouse: Path, log: str | None = None, variables: Mapping[str, str] | None = None
) -> Iterator[tuple[Side, Side]]:
    """The release and the current tree on one lake, until the block ends."""
    released = Side(python, warehouse, log, variables or {})
    try:
        current = Side(Path(sys.executable), warehouse, log, variables or {})
        try:
            yield released, current
        finally:
            current.end()
    finally:
        released.end()
