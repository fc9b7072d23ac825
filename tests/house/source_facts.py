"""What a Python file of ours says of itself: read and parsed once, however many tests ask."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """A file's docstring, its imports wherever they are, and the functions and classes that it defines."""

    docstring: str
    imports: tuple[ast.Import | ast.ImportFrom, ...]
    defined: frozenset[str]


@cache
def facts_of(path: Path) -> SourceFacts:
    """The facts; the tree itself is not kept."""
    tree = ast.parse(path.read_text())
    imports: list[ast.Import | ast.ImportFrom] = []
    defined: set[str] = set()
    for node in _statements(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined.add(node.name)
    return SourceFacts(ast.get_docstring(tree) or "", tuple(imports), frozenset(defined))


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Every statement; imports and definitions are in no expression."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, field, ())
            if isinstance(inner, list):  # a lambda's body is an expression
                waiting += inner
                yield from (item for item in inner if isinstance(item, ast.stmt))
