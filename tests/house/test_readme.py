"""What the README shows runs as it stands there, and what the page about reading shows."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents.page_shell import page_shell

pytestmark = pytest.mark.slow


def blocks(house: Path, language: str, page: str = "README.md") -> list[str]:
    """The code blocks of a page, without one the README, in one language."""
    return re.findall(rf"```{language}\n(.*?)```", (house / page).read_text(), re.DOTALL)


def run(command: list[str], folder: Path) -> str:
    """Run in `folder` as a person would: nothing set that names a lake."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROOTLINE_")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_the_first_example_and_the_commands_after_it_run(
    house: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = next(block for block in blocks(house, "python") if "rootline.connect" in block)
    for _ in range(2):  # a reader runs it, changes a line, and runs it again
        assert "61" in run([sys.executable, "-c", example], tmp_path)
    lines = [line for block in blocks(house, "console") for line in block.splitlines() if line.startswith("rootline ")]
    first, *others = [shlex.split(line, comments=True)[1:] for line in lines]
    run([str(Path(sys.executable).with_name("rootline")), *first], tmp_path)
    with page_shell(tmp_path, monkeypatch) as shell:
        for arguments in others:
            shell.rootline(*arguments)


def test_every_python_example_is_python(house: Path) -> None:
    for block in blocks(house, "python"):
        ast.parse(block)


def test_the_examples_of_the_page_about_reading_run(house: Path, tmp_path: Path) -> None:
    example = "\n".join(blocks(house, "python", "docs/reading.md"))
    after = "print(flights.scan().count(), len(pl.DataFrame(scan)), planes.scan().schema().names)"
    assert run([sys.executable, "-c", example + after], tmp_path) == "5 5 ['flight', 'seats']\n"


def test_the_filters_of_the_page_about_reading_can_be_read(house: Path) -> None:
    from rootline.client.given_schema import given_schema
    from rootline.tree.filter.filters import bind_filter

    columns = {"carrier": "string", "origin": "string", "dep_delay": "double", "arr_delay": "int"}
    schema = given_schema({**columns, "scheduled at": "timestamp"})
    page = (house / "docs" / "reading.md").read_text()
    (filters,) = re.findall(r"```\n(dep_delay.*?)```", page, re.DOTALL)
    for line in filters.splitlines():
        assert bind_filter(line, schema).field_ids
