"""The rooms inside the rooms: no folder is crowded, no imports go in circles, and what prose names is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.house.source_facts import facts_of

MODULES_MAX = 40
TOP = ("schemas", "coordinator", "workers")
PATH = re.compile(r"`((?:[\w.-]+/)+[\w.*-]*|[\w-]+\.(?:py|md|toml|avsc))`")
MODULE = re.compile(r"`(rootline(?:\.\w+)+)`")
NAMED = re.compile(r"\(((?:`[a-z][a-z_]*(?:_\*)?`(?:, | and )?)+)\)")
WORD = re.compile(r"\w+")
CONFIGURATION = (
    "pyproject.toml",
    "ruff-pure.toml",
    "Makefile",
    "docker-compose.yml",
    ".ci/run",
    "tests/mutants/planted.toml",
)
CONFIGURED = re.compile(
    r"(?<![\w./*$-])((?:schemas|coordinator|workers|src|tests|benchmarks|docs|deploy|\.ci)/[\w./-]*\w)"
)
Edges = Mapping[str, set[str]]


def modules(house: Path) -> dict[str, Path]:
    """Every module of the library: dotted name → file."""
    found: dict[str, Path] = {}
    for base in (*(house / room for room in TOP), house / "src" / "rootline"):
        inside = ("rootline",) if base.name == "rootline" else ("rootline", base.name)
        for path in sorted(base.rglob("*.py")):
            if any(parent.is_symlink() for parent in path.parents if parent.is_relative_to(house)):
                continue
            parts = path.relative_to(base).with_suffix("").parts
            found[".".join((*inside, *(part for part in parts if part != "__init__")))] = path
    return found


def imports(known: Mapping[str, Path]) -> dict[str, set[str]]:
    """Module → modules of the library that it names in an import, wherever in the file, those for types included."""
    edges: dict[str, set[str]] = {}
    for name, path in known.items():
        targets: set[str] = set()
        for node in facts_of(path).imports:
            if isinstance(node, ast.Import):
                targets |= {alias.name for alias in node.names}
            elif node.module:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    targets.add(inner if inner in known else node.module)
        edges[name] = (targets & known.keys()) - {name}
    return edges


@cache
def imports_in(house: Path) -> Edges:
    """`imports` of every module of the library."""
    return imports(modules(house))


def circles(edges: Edges) -> list[list[str]]:
    """The groups of nodes that reach each other."""
    reached = {node: _reach(node, edges) for node in edges}
    groups = {frozenset({node, *(other for other in reached[node] if node in reached[other])}) for node in edges}
    return sorted(sorted(group) for group in groups if len(group) > 1)


def _reach(start: str, edges: Edges) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for target in edges.get(waiting.pop(), ()):
            if target not in seen:
                seen.add(target)
                waiting.append(target)
    return seen


def between_rooms(known: Mapping[str, Path], edges: Edges) -> dict[str, set[str]]:
    """The same between folders; a module that is beside folders, not in one, counts as a room of its own."""
    folders = {name for name, path in known.items() if path.name == "__init__.py"}

    def room(name: str) -> str:
        parent = name.rpartition(".")[0]
        holds_rooms = any(folder.rpartition(".")[0] == parent for folder in folders)
        return name if name in folders or holds_rooms else parent

    found: dict[str, set[str]] = {}
    for name, targets in edges.items():
        if name not in folders:
            found.setdefault(room(name), set()).update(room(target) for target in targets if target not in folders)
    return {name: targets - {name} for name, targets in found.items()}


def test_no_folder_of_the_library_has_more_than_forty_modules(house: Path) -> None:
    sizes: dict[str, int] = {}
    for path in modules(house).values():
        folder = str(path.parent.relative_to(house))
        sizes[folder] = sizes.get(folder, 0) + (path.name != "__init__.py")
    assert {folder: size for folder, size in sizes.items() if size > MODULES_MAX} == {}
    assert len(sizes) > 40


def test_no_imports_of_the_library_go_in_a_circle(house: Path) -> None:
    assert circles(imports_in(house)) == []


def test_no_two_rooms_import_each_other(house: Path) -> None:
    assert circles(between_rooms(modules(house), imports_in(house))) == []


def test_a_circle_would_be_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]
    known = {name: Path(f"{name.rpartition('.')[2]}.py") for name in ("r.x.one", "r.x.two", "r.y.three")}
    known |= {name: Path("__init__.py") for name in ("r", "r.x", "r.y")}
    assert circles(between_rooms(known, {"r.x.one": {"r.y.three"}, "r.y.three": {"r.x.two"}})) == [["r.x", "r.y"]]


def test_the_door_of_a_room_inside_a_room_is_one_sentence(house: Path) -> None:
    inner = [path for name, path in modules(house).items() if path.name == "__init__.py" and name.count(".") > 1]
    assert inner
    for path in inner:
        (statement,) = ast.parse(path.read_text()).body
        assert isinstance(statement, ast.Expr), path


@pytest.fixture(scope="module")
def paths(house: Path) -> set[str]:
    """Every path that is there, as prose may name it: whole, or from any of its folders on."""
    found: set[str] = set()
    for top in ("schemas", "coordinator", "workers", "src", "examples", "tests", "benchmarks", "docs", "deploy", ".ci"):
        for path in (house / top).rglob("*"):
            parts = path.relative_to(house).parts
            if "__pycache__" not in parts:
                found |= {"/".join(parts[start:]) for start in range(len(parts))}
    return found | {path.name for path in house.iterdir()} | {"src", "docs", "tests"}


def prose(house: Path) -> Iterator[tuple[str, str]]:
    """Name and text of every page for people and every docstring of a module."""
    for page in [house / "README.md", house / "CONTRIBUTING.md", *sorted((house / "docs").rglob("*.md"))]:
        yield str(page.relative_to(house)), page.read_text()
    for top in (*TOP, "src", "examples", "tests", "benchmarks"):
        for path in sorted((house / top).rglob("*.py")):
            if not any(parent.is_symlink() for parent in path.parents if parent.is_relative_to(house)):
                yield str(path.relative_to(house)), facts_of(path).docstring


def test_every_path_and_module_of_ours_that_prose_names_exists(house: Path, paths: set[str]) -> None:
    known = modules(house)
    rooms = {name.split(".")[1] for name in known if name.count(".") > 1}
    named_paths, named_modules = 0, 0
    dead: list[str] = []
    for where, text in prose(house):
        for named in PATH.findall(text):
            is_file = named.endswith((".py", ".md", ".toml", ".avsc"))
            if "*" in named or "NNNN" in named or not (is_file or named.split("/")[0] in (*TOP, "src", "tests")):
                continue
            named_paths += 1
            place = named.removeprefix("rootline/").rstrip("/")
            if place not in paths and f"{place}.py" not in paths:
                dead.append(f"{where}: {named}")
        for named in MODULE.findall(text):
            if named.split(".")[1] not in rooms or named.count(".") < 2:
                continue  # a name of another kind: a property, a header, a topic
            named_modules += 1
            holder, _, name = named.rpartition(".")
            if named not in known and not (holder in known and re.search(rf"\b{name}\b", known[holder].read_text())):
                dead.append(f"{where}: {named}")
    assert dead == []
    assert min(named_paths, named_modules) > 20


def test_every_path_of_ours_that_a_configuration_names_exists(house: Path) -> None:
    named = {(name, path) for name in CONFIGURATION for path in CONFIGURED.findall((house / name).read_text())}
    assert {(name, path) for name, path in named if not any(house.glob(f"{path}*"))} == set()
    assert len(named) > 20


def test_every_module_that_a_header_hands_something_over_to_exists(house: Path) -> None:
    known = modules(house)
    stems = {name.rpartition(".")[2] for name in known}
    facts = {name: facts_of(path) for name, path in known.items()}
    defined = {inner for found in facts.values() for inner in found.defined}
    fields = {named for text in (house / "schemas" / "avro").glob("*.avsc") for named in WORD.findall(text.read_text())}
    dead: list[str] = []
    for name, found in facts.items():
        header = " ".join(found.docstring.split())
        for group in NAMED.findall(header.partition("Theory")[0]):
            for named in re.findall(r"`([a-z_*]+)`", group):
                is_there = named in stems | defined or (
                    named.endswith("_*") and any(stem.startswith(named[:-1]) for stem in stems)
                )
                if not is_there and "_" in named and named not in fields:
                    dead.append(f"{name}: {named}")
    assert dead == []


def test_only_the_process_of_a_service_imports_structlog(house: Path) -> None:
    importing = [name for name, path in modules(house).items() if "import structlog" in path.read_text()]
    assert importing == ["rootline.cli.service_process"]
