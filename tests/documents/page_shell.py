"""Runs a page as a reader would: its Python in one namespace, its commands in order, in one folder.

Owns: which commands run in this process (`rootline …`), which as services beside it, and which in a real shell.
Does not own: the folder, what is in it before. Invariants: a command that fails fails the page; services end with it;
nothing listens on a port that the page names.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import structlog

from examples.spark_demo.service import PROGRAM
from rootline.cli.app import main
from tests.documents.blocks import Block, statements
from tests.services import service_process

SERVICES = (("up",), ("coordinator",), ("worker",), ("catalog", "serve"))
SHELL_WORDS = re.compile(r"[|<>;&]|\$\(")


class PageShell:
    """What a reader has open: a folder, a Python, a shell. `instead`: words of the page, and what they are here."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, instead: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.namespace: dict[str, object] = {"__name__": "__main__"}
        self.instead = dict(instead or {})
        self.exit_codes: dict[str, int] = {}
        """Of commands that shall not end with 0, by how they begin."""
        self._monkeypatch = monkeypatch
        self._services: list[subprocess.Popen[str]] = []
        for name in [name for name in os.environ if name.startswith("ROOTLINE_")]:
            if not name.startswith("ROOTLINE_KAFKA__"):  # the topics of a test, where it has a broker
                monkeypatch.delenv(name)
        programs = os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]])
        monkeypatch.setenv("PATH", programs)
        monkeypatch.chdir(folder)
        structlog.reset_defaults()  # a reader has configured nothing; `_logging_as_it_was` brings it back

    def run(self, block: Block) -> str:
        """Run one block; what it printed."""
        return self.python(block.text) if block.language == "python" else self.console(block.text)

    def python(self, text: str) -> str:
        """Run Python in the page's namespace."""
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(self._here(text), "a block of the page", "exec"), self.namespace)
        return said.getvalue()

    def console(self, text: str) -> str:
        """Run shell statements."""
        said: list[str] = []
        waiting: list[str] = []  # for a real shell, all at once, so that they share variables
        for statement in statements(self._here(text)):
            ours = statement.startswith("rootline ") and not SHELL_WORDS.search(_without_comment(statement))
            if not ours and not statement.startswith("export "):
                waiting.append(statement)
                continue
            said.append(self._shell(waiting))
            waiting = []
            words = shlex.split(statement, comments=True)
            if words[0] == "export":
                for name, value in (word.split("=", 1) for word in words[1:]):
                    self._monkeypatch.setenv(name, value)
            elif any(tuple(words[1 : 1 + len(service)]) == service for service in SERVICES):
                self.serve(*words[1:])
            else:
                said.append(self.rootline(*words[1:]))
        return "".join([*said, self._shell(waiting)])

    def rootline(self, *words: str) -> str:
        """Run one command in this process."""
        said, wrong = io.StringIO(), io.StringIO()
        self._monkeypatch.setattr(sys, "argv", ["rootline", *words])
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(wrong), pytest.raises(SystemExit) as ended:
            main()
        line = shlex.join(words)
        expected = next((code for begin, code in self.exit_codes.items() if line.startswith(begin)), 0)
        assert (ended.value.code or 0) == expected, f"rootline {line}\n{said.getvalue()}{wrong.getvalue()}"
        return said.getvalue()

    def serve(self, *words: str) -> None:
        """Start a service, and wait until it says where it listens."""
        service = subprocess.Popen([*PROGRAM, *words], cwd=self.folder, stdout=subprocess.PIPE, text=True)
        self._services.append(service)
        assert service.stdout is not None
        assert service.stdout.readline(), f"rootline {shlex.join(words)} did not start"

    def close(self) -> None:
        """End the services, and the lake that the page's Python left open."""
        lake = self.namespace.pop("lake", None)
        if lake is not None:
            lake.close()  # type: ignore[attr-defined]
        for service in reversed(self._services):
            service.terminate()
            service.communicate(timeout=120)

    def _shell(self, lines: list[str]) -> str:
        if not lines:
            return ""
        script = "\n".join(lines)
        done = subprocess.run(["sh", "-e", "-c", script], cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _here(self, text: str) -> str:
        for there, here in self.instead.items():
            text = text.replace(there, here)
        return text


def _without_comment(statement: str) -> str:
    """The statement without what is quoted and without its comment: what is left has operators, or it has none."""
    return re.sub(r"'[^']*'|\"[^\"]*\"", "''", re.sub(r"(^|\s)#.*$", "", statement))


@contextlib.contextmanager
def page_shell(
    folder: Path, monkeypatch: pytest.MonkeyPatch, instead: Mapping[str, str] | None = None
) -> Iterator[PageShell]:
    """A reader's shell, until the block ends."""
    shell = PageShell(folder, monkeypatch, instead)
    try:
        yield shell
    finally:
        shell.close()


def free_port() -> str:
    """A port that no one listens on, and that no one else is given."""
    return str(service_process.free_port())
