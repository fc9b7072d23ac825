"""What a Python file of ours says of itself: read and parsed once, however many tests ask."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """A file's docstring, its imports wherever they are, and the functions and classes that it defines.

    `bound` lists the names that the module itself binds, in order: functions, classes, assignments, imports. `top` has
    those that are not imported. The variants of an overloaded function are one name, as are the
    branches of an `if`.
    """

    docstring: str
    imports: tuple[ast.Import | ast.ImportFrom, ...]
    defined: frozenset[str]
    bound: tuple[str, ...]
    top: frozenset[str]


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
    own = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom | ast.If)]
    bound, top = tuple(_bound(tree.body)), frozenset(_bound(own))
    return SourceFacts(ast.get_docstring(tree) or "", tuple(imports), frozenset(defined), bound, top)


def _bound(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        match node:
            case ast.Import() | ast.ImportFrom():
                yield from (alias.asname or alias.name for alias in node.names)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                if not any("overload" in ast.unparse(decorator) for decorator in node.decorator_list):
                    yield node.name
            case ast.Assign():
                targets = (inner for target in node.targets for inner in ast.walk(target))
                yield from (
                    item.id for item in targets if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store)
                )
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.If() | ast.Try() | ast.With():
                handlers = [inner for handler in getattr(node, "handlers", []) for inner in handler.body]
                branches = [*node.body, *getattr(node, "orelse", []), *handlers]
                yield from sorted(set(_bound(branches)))


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
