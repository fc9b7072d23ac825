"""The prose of a Python file: its docstrings, its comments, and the messages in its string literals."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

COMMENT: Final = re.compile(r"(?:^\s*|  )#:? (?!noqa|type:|fmt:|pragma|mypy:)(.*)$")
CODE: Final = re.compile(r"```.*?```|``[^`]*``|`[^`]*`", re.DOTALL)
_RAISES_SECTION: Final = re.compile(r"^Raises:\n(?:[ \t]+[^\n]*\n?|\n(?=[ \t]))*", re.MULTILINE)
_RAISES_SENTENCE: Final = re.compile(r"\bRaises `.*?(?:\n\n|\Z)", re.DOTALL)
QUESTION: Final = re.compile(r"(?:what|which|where|how|when|who|whom|whose|why|whether)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Docstring:
    """A docstring, its line, and whether what it describes is or returns `bool`."""

    line: int
    text: str
    is_of_bool: bool

    @property
    def begins_with_a_question(self) -> bool:
        """Whether its first word asks; `Whether` may begin what is `bool`."""
        word = QUESTION.match(self.text)
        return word is not None and not (self.is_of_bool and word[0] == "Whether")

    @property
    def has_a_semicolon(self) -> bool:
        """Whether there is one in its prose: neither in code nor where errors are listed."""
        prose = _RAISES_SENTENCE.sub("", _RAISES_SECTION.sub("", self.text))
        return ";" in CODE.sub("", prose)


@dataclass(frozen=True, slots=True)
class Prose:
    """What a file says to people. `lines` has docstrings, comments and messages, without the code in them."""

    docstrings: tuple[Docstring, ...]
    lines: tuple[tuple[int, str], ...]


def prose_of(text: str, tree: ast.Module) -> Prose:
    """The prose of a file."""
    docstrings = {id(node): found for node, found in _docstrings(tree)}
    pieces = [(found.line, found.text) for found in docstrings.values()]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in docstrings and " " in str(node.value).strip():
            pieces.append((node.lineno, str(node.value)))
    for number, line in enumerate(text.splitlines(), start=1):
        if "#" in line and (match := COMMENT.search(line)):
            pieces.append((number, match[1]))
    return Prose(tuple(docstrings.values()), tuple((line, CODE.sub("`…`", piece)) for line, piece in sorted(pieces)))


def prose_of_data(path: Path) -> Prose:
    """The prose of a data file: all of it."""
    return Prose((), tuple(enumerate(path.read_text().splitlines(), start=1)))


def _docstrings(tree: ast.Module) -> Iterator[tuple[ast.Constant, Docstring]]:
    """Those of modules, classes and functions, and those below a constant or a field."""
    for owner in ast.walk(tree):
        body = getattr(owner, "body", None)
        if not isinstance(body, list) or not isinstance(
            owner, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ):
            continue
        for above, node in zip([owner, *body], body, strict=False):
            match node:
                case ast.Expr(value=ast.Constant(value=str(text)) as constant):
                    described = (
                        getattr(above, "returns", None) if above is owner else getattr(above, "annotation", None)
                    )
                    is_of_bool = described is not None and re.search(
                        r"\bbool\b|Type(?:Guard|Is)", ast.unparse(described)
                    )
                    yield constant, Docstring(node.lineno, inspect.cleandoc(text), is_of_bool is not None)
