"""Every module of ours that a string names is there: started with `python -m`, imported late, or patched by a test."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from tests.house.source_facts import facts_of
from tests.house.test_rooms import modules
from tests.house.test_sources import ROOMS, committed_files, python_files

DOTTED: Final = re.compile(r"(?<![\w./-])(?:rootline|tests|benchmarks)(?:\.[A-Za-z_]\w*)+(?![\w/-])")
IMPORTED: Final = re.compile(r"\bfrom (rootline(?:\.\w+)*) import (\w+(?:, \w+)*)")
STARTED: Final = re.compile(r"-m ((?:rootline|tests|benchmarks)[\w.]*\w)")
CONFIGURATION: Final = (".toml", ".yml", ".yaml", ".service", ".json")
OTHER_NAMES: Final = {
    "groups of table properties": "append compact convert drop expire export flush names rows sweep verify",
    "keys of a root's header, words of a snapshot's summary": "blocks contents definition digest drops entries expiry "
    "horizon ledger left marks name offsets outcomes profile progress refused removals snapshot table tags totals "
    "version view writer",
    "topics": "frontiers intents parked verdicts",
    "headers of records": "content headers lake log partition",
    "attributes of spans and of requests": "authorized code intent_id verdict",
    "loggers": "http kafka lake log redis",
    "files": "service tests yml zip",
    "what every module has": "__file__ __path__",
    "examples in tests/house and of an unknown property": "a c no",
}
"""What a name may have after `rootline.` without being a module of ours."""
MADE_UP: Final = (".seeded", ".absent", ".flights", ".test_lake", ".kafka_like", ".not_installed")
"""The ends of names that tests make up: modules planted in a copy, tables that DuckDB attaches as `rootline`."""
IMPORTS: Final = re.compile(r"^ *(?:from|import) .*$", re.MULTILINE)


class Names:
    """The modules of the repository, and what each defines."""

    def __init__(self, house: Path) -> None:
        self.paths = modules(house)
        for path in python_files(house, "tests", "benchmarks"):
            parts = path.relative_to(house).with_suffix("").parts
            self.paths[".".join(part for part in parts if part != "__init__")] = path
        self.packages = {inner for name in self.paths for inner in self._packages(name)}
        self.others = {word for words in OTHER_NAMES.values() for word in words.split()}
        self.public = set(importlib.import_module("rootline").__all__)

    @staticmethod
    def _packages(name: str) -> Iterator[str]:
        while "." in name:
            name = name.rpartition(".")[0]
            yield name

    def are_there(self, dotted: str) -> bool:
        """Whether this is a module, a folder, or something that a module defines, with attributes of its own or not."""
        top, second, *_ = dotted.split(".")
        if dotted.endswith(MADE_UP) or (top == "rootline" and second in self.public | self.others):
            return True
        holder, rest = dotted, ""
        while holder not in self.paths and holder not in self.packages:
            holder, _, rest = holder.rpartition(".")
        return not rest or (holder in self.paths and rest in facts_of(self.paths[holder]).bound)


@pytest.fixture(scope="module")
def names(house: Path) -> Names:
    return Names(house)


def _strings(path: Path) -> Iterator[str]:
    text = path.read_text()
    if "tests" not in path.parts and DOTTED.search(IMPORTS.sub("", text)) is None:
        return  # most files of the product name modules in their imports only, and need not be parsed
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _named(house: Path) -> Iterator[tuple[Path, str]]:
    """File and dotted name."""
    for path in python_files(house, *ROOMS, "deploy"):
        if path == Path(__file__):
            continue
        for text in _strings(path):
            yield from ((path, found) for found in DOTTED.findall(text))
            for module, imported in IMPORTED.findall(text):
                yield from ((path, f"{module}.{name}") for name in imported.split(", "))
    for path in committed_files(house):
        if path.suffix in CONFIGURATION or path.name in ("Makefile", "Dockerfile") or path.parent.name == ".ci":
            yield from ((path, found) for found in DOTTED.findall(path.read_text()))
        elif path.suffix == ".md" and path.name != "CHANGELOG.md":
            yield from ((path, found) for found in STARTED.findall(path.read_text()) if "." in found)


def test_every_module_of_ours_that_a_string_names_is_there(house: Path, names: Names) -> None:
    found = list(_named(house))
    assert {f"{path.relative_to(house)}: {name}" for path, name in found if not names.are_there(name)} == set()
    started = {name for _, name in found if name in names.paths}
    assert {"rootline.spark.daemon", "rootline.coordinator.app"} <= started


def test_a_name_that_nothing_has_is_found(names: Names) -> None:
    assert names.are_there("rootline.connect")
    assert names.are_there("rootline.schemas.errors.Invalid.code")
    assert not names.are_there("rootline.schemas.no_errors")
    assert not names.are_there("rootline.schemas.errors.Invalidated")
    assert not names.are_there("rootline.nowhere")


def test_every_name_that_a_package_hands_on_lazily_is_where_the_package_says(house: Path) -> None:
    lazy = [name for name, path in modules(house).items() if "__getattr__" in facts_of(path).bound]
    handed_on = {(name, inner) for name in lazy for inner in _keys(importlib.import_module(name))}
    for name, inner in handed_on:
        assert getattr(importlib.import_module(name), inner, None) is not None, f"{name}.{inner}"
    assert {("rootline", "Lake"), ("rootline.spark", "compact")} <= handed_on


def _keys(module: ModuleType) -> Iterator[str]:
    """The keys of the tables that `__getattr__` may look in."""
    for name, table in vars(module).items():
        if isinstance(table, dict) and name != "__builtins__":
            yield from (key for key in table if isinstance(key, str) and key.isidentifier())
