"""How the sources look: short files with headers, known error codes, no names of somebody's machine."""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rootline.schemas import error_codes, errors
from tests.house.source_facts import facts_of

LINES_MAX = 600
HEADER_FROM_LINES = 150
"""A shorter file is read as quickly as a header of four parts."""
ROOMS = ("schemas", "coordinator", "workers", "src", "examples", "benchmarks", "tests")
NOT_OURS = {".git", ".venv", "__pycache__", "node_modules", "demo-lake", "lake", "dist", "build"}
VAGUE = {"utils", "util", "helpers", "helper", "common", "base", "manager", "misc"}
CATEGORIES = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.RootlineError) and kind is not errors.RootlineError
}
# spelled in parts, so that this file does not hold what it looks for
FORBIDDEN = [
    re.compile("|".join(parts))
    for parts in (
        [f"/{name}/" for name in ("home", "Users")],
        [r"(?<![\w.])/" + "root/", r"(?<![\w.])/" + "work/"],
        ["pypi" + r"\.org", "python" + "hosted", "conda" + r"\.anaconda", "registry" + r"\.npmjs"],
        ["repo1?" + r"\.maven", "proxy" + r"\.golang", "crates" + r"\.io"],
        ["index" + "-url", "find" + "-links", "trusted" + "-host"],
    )
]


def python_files(house: Path, *rooms: str) -> Iterator[Path]:
    """Our Python files, each once: the links in src/ lead to folders that are visited by themselves."""
    for room in rooms:
        yield from sorted(path for path in (house / room).rglob("*.py") if not _through_link(path, house))


def _through_link(path: Path, house: Path) -> bool:
    return any(parent.is_symlink() for parent in path.parents if parent.is_relative_to(house))


def committed_files(house: Path) -> list[Path]:
    """Every file that is or would be committed; without git, every file that is not somebody's cache."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=house, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        names = [house / name for name in listed.stdout.split("\0") if name]
        return [path for path in names if path.is_file() and not path.is_symlink()]
    found: list[Path] = []
    for folder, folders, names_here in os.walk(house):
        folders[:] = [name for name in folders if name not in NOT_OURS and not name.endswith("_cache")]
        found += [Path(folder) / name for name in names_here]
    return found


def test_no_python_file_is_longer_than_six_hundred_lines(house: Path) -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in python_files(house, *ROOMS)}
    too_long = {str(path.relative_to(house)): lines for path, lines in lengths.items() if lines > LINES_MAX}
    assert too_long == {}


def test_every_module_says_what_it_is_for(house: Path) -> None:
    lacking = [
        str(path.relative_to(house))
        for path in python_files(house, "schemas", "coordinator", "workers", "src")
        if not _header(path).partition("\n\n")[0].endswith((".", ":", "?"))
    ]
    assert lacking == []


def test_every_module_of_some_size_says_what_it_owns_what_not_and_what_it_keeps(house: Path) -> None:
    lacking: dict[str, list[str]] = {}
    for path in python_files(house, "schemas", "coordinator", "workers", "src"):
        unwrapped = " ".join(_header(path).split())
        missing = [part for part in ("Owns:", "Does not own:", "Invariants:") if part not in unwrapped]
        if missing and len(path.read_text().splitlines()) >= HEADER_FROM_LINES:
            lacking[str(path.relative_to(house))] = missing
    assert lacking == {}


def _header(path: Path) -> str:
    return facts_of(path).docstring


def test_no_module_has_a_name_that_says_nothing(house: Path) -> None:
    named = [path for path in python_files(house, *ROOMS) if VAGUE & set(path.stem.split("_"))]
    assert [str(path.relative_to(house)) for path in named] == []


def test_every_error_is_raised_with_a_known_code_of_its_own_category(house: Path) -> None:
    wrong: list[str] = []
    for path in python_files(house, "schemas", "coordinator", "workers", "src"):
        for call in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in CATEGORIES):
                continue
            code = call.args[0] if call.args else None
            if not (isinstance(code, ast.Constant) and isinstance(code.value, str)):
                continue  # handed on from another error
            known = error_codes.CODES.get(code.value)
            if known is None or known.category != call.func.id:
                wrong.append(f"{path.relative_to(house)}:{call.lineno}: {call.func.id}({code.value!r})")
    assert wrong == []


@pytest.mark.parametrize("code", sorted(error_codes.CODES))
def test_a_code_belongs_to_a_category_and_says_what_to_do(code: str) -> None:
    known = error_codes.CODES[code]
    assert known.category in CATEGORIES
    assert re.fullmatch(r"[a-z]+(-[a-z]+)+|[a-z]+", code)
    assert known.meaning.endswith(".")
    assert known.do.endswith(".")


def test_every_code_is_used_somewhere(house: Path) -> None:
    files = list(python_files(house, "schemas", "coordinator", "workers", "src"))
    text = "".join(path.read_text() for path in files)
    unused = {code for code in error_codes.CODES if f'"{code}"' not in text}
    assert unused == {code for code, known in error_codes.CODES.items() if known.meaning.startswith("Retired: ")}


def test_no_code_is_listed_twice(house: Path) -> None:
    text = "".join(path.read_text() for path in (house / "schemas" / "codes").iterdir())
    assert len(re.findall(r"^\[", text, re.MULTILINE)) == len(error_codes.CODES)


def test_nothing_names_somebodys_machine_or_an_index_of_packages(house: Path) -> None:
    found: list[str] = []
    for path in committed_files(house):
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue  # golden bytes
        for number, line in enumerate(text.splitlines(), start=1):
            found += [
                f"{path.relative_to(house)}:{number}: {match[0]}"
                for pattern in FORBIDDEN
                if (match := pattern.search(line))
            ]
    assert found == []


def test_no_test_sleeps_or_replaces_our_own_code_with_a_mock(house: Path) -> None:
    habits = re.compile(r"\btime" + r"\.sleep\(|unittest" + r"\.mock|\bMagic" + "Mock")
    waiting = re.compile(r"\basyncio\.sleep\((?!0\))")
    found: list[str] = []
    for path in python_files(house, "tests"):
        text = path.read_text()
        # the simulation and what runs on its loop sleep on a virtual clock, which takes no time
        virtual = "simulation" in path.parts or "virtual_loop" in text
        found += [
            f"{path.relative_to(house)}:{number}: {line.strip()}"
            for number, line in enumerate(text.splitlines(), start=1)
            if habits.search(line) or (waiting.search(line) and not virtual)
        ]
    assert found == []
