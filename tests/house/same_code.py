"""Whether the product still defines the same after files were merged or renamed: `python -m tests.house.same_code`.

    python -m tests.house.same_code BASE [COMMIT | worktree] [old=new …] [path/of/base.py:old=new …] [@FILE …] [--diff]

Compares the syntax trees of all functions, methods, classes, constants and other statements of two versions, whatever
file they are in, without docstrings, comments and positions. Module-level imports do not count, and imports inside
functions count by the names that they import. `old=new` renames in BASE before the comparison: an identifier, a dotted
name (`leaf_codec.encode=encode_leaf`), or a word inside a string (`rootline.a.b=rootline.c`). With a path in front it
renames in that file alone. `@FILE` has such arguments, one a line, `#` begins a comment.

Ends with 1 if something vanished, is new or changed. A definition of which fewer equal copies are left is listed only.
"""

from __future__ import annotations

import ast
import difflib
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.house.test_rooms import TOP, modules

HOUSE: Final = Path(__file__).resolve().parents[2]
_Functions = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Definition:
    """A named piece of code. Two are equal if their names and their codes are, wherever they are defined."""

    name: str
    code: str
    place: str = field(compare=False)


class _Renamed(ast.NodeTransformer):
    """A tree with new names, without docstrings; imports inside functions are reduced to names."""

    def __init__(self, renames: Mapping[str, str]) -> None:
        self.renames = renames
        dotted = sorted((old for old in renames if "." in old), key=len, reverse=True)
        self.dotted = re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, dotted))})(?!\w)") if dotted else None

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name in ("id", "attr", "arg", "name", "asname"):
            if isinstance(found := getattr(node, name, None), str):
                setattr(node, name, self.renames.get(found, found))
        super().generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            if isinstance(body := getattr(node, name, None), list):
                setattr(node, name, _plain(body))
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        new = self.renames.get(ast.unparse(node)) if self.dotted else None
        return self.generic_visit(node) if new is None else ast.parse(new, mode="eval").body

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str):
            text = self.renames.get(node.value, node.value)
            node.value = self.dotted.sub(lambda match: self.renames[match[0]], text) if self.dotted else text
        return node


def _plain(body: list[ast.stmt]) -> list[ast.stmt]:
    """Statements without strings and `pass`; the imports first, one for each name, without their modules."""
    rest = [node for node in body if not _is_import(node) and not _is_string(node) and not isinstance(node, ast.Pass)]
    aliases = [alias for node in body if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names]
    names = {(alias.name.rpartition(".")[2], alias.asname) for alias in aliases}
    imports = [ast.Import([ast.alias(name, other)]) for name, other in sorted(names, key=str)]
    return [*imports, *rest]


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def _is_string(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def definitions(path: str, text: str, renames: Mapping[str, str]) -> Iterator[Definition]:
    """Every definition of a module, those of a class by themselves."""
    tree = _Renamed(renames).visit(ast.parse(text))
    for node in tree.body:
        if _is_import(node) or (isinstance(node, ast.If) and all(map(_is_import, node.body)) and not node.orelse):
            continue
        yield from _definitions(path, node, "")


def _definitions(path: str, node: ast.stmt, within: str) -> Iterator[Definition]:
    match node:
        case ast.ClassDef():
            name = within + node.name
            inner = [item for item in node.body if isinstance(item, _Functions | ast.ClassDef)]
            for item in inner:
                yield from _definitions(path, item, f"{name}.")
            node.body = [item for item in node.body if item not in inner]  # the fields, in their order
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            name = within + node.name
        case ast.Assign(targets=[target]) | ast.AnnAssign(target=target) | ast.AugAssign(target=target):
            name = within + ast.unparse(target)
        case _:
            name = f"{within}({type(node).__name__} {ast.unparse(node).splitlines()[0][:60]})"
    yield Definition(name, ast.unparse(node), path)


def version(commit: str, renames: Mapping[str, Mapping[str, str]]) -> list[Definition]:
    """All definitions of a version of the product; `renames` are those of each file, and of all under ''."""
    found: list[Definition] = []
    for path, text in _texts(commit):
        found += definitions(path, text, {**renames.get("", {}), **renames.get(path, {})})
    return found


def _texts(commit: str) -> Iterator[tuple[str, str]]:
    if commit == "worktree":
        yield from ((str(path.relative_to(HOUSE)), path.read_text()) for path in modules(HOUSE).values())
        return
    listing = _git("ls-tree", "-r", "-z", commit, "--", *TOP, "src/rootline").split(b"\0")
    entries = [line.split(b"\t") for line in listing if line.endswith(b".py") and line.startswith(b"100")]
    asked = b"".join(meta.split()[2] + b"\n" for meta, _ in entries)
    answer = _git("cat-file", "--batch", stdin=asked)
    for _, path in entries:
        head, _, answer = answer.partition(b"\n")
        size = int(head.split()[2])
        yield path.decode(), answer[:size].decode()
        answer = answer[size + 1 :]


def _git(*arguments: str, stdin: bytes = b"") -> bytes:
    return subprocess.run(["git", *arguments], cwd=HOUSE, input=stdin, capture_output=True, check=True).stdout


def compared(before: Sequence[Definition], after: Sequence[Definition], *, diff: bool) -> tuple[list[str], list[str]]:
    """The differences, and what is only there in fewer or more copies, as lines to print."""
    had, has = Counter(before), Counter(after)
    remarks = [
        f"copies     {item.name}: {had[item]} -> {has[item]}  {item.place}"
        for item in had
        if item in has and had[item] != has[item]
    ]
    old, new = defaultdict[str, list[Definition]](list), defaultdict[str, list[Definition]](list)
    for item in had:
        if item not in has:
            old[item.name].append(item)
    for item in has:
        if item not in had:
            new[item.name].append(item)
    lines: list[str] = []
    for name in sorted({*old, *new}):
        pairs = min(len(old[name]), len(new[name]))
        for one, other in zip(old[name], new[name], strict=False):
            lines.append(f"changed    {name}  {one.place} -> {other.place}")
            if diff:
                lines += list(difflib.unified_diff(one.code.splitlines(), other.code.splitlines(), lineterm="", n=1))[
                    2:
                ]
        lines += [f"vanished   {name}  {item.place}" for item in old[name][pairs:]]
        lines += [f"new        {name}  {item.place}" for item in new[name][pairs:]]
    return lines, remarks


def main(arguments: list[str]) -> int:
    """Print the differences; 1 if there are any."""
    given = [line for argument in arguments for line in _expanded(argument)]
    commits = [argument for argument in given if "=" not in argument and argument != "--diff"]
    if not 1 <= len(commits) <= 2:
        print(__doc__)
        return 2
    renames: dict[str, dict[str, str]] = defaultdict(dict)
    for argument in given:
        if "=" in argument:
            old, _, new = argument.partition("=")
            path, _, old = old.rpartition(":")
            renames[path][old.strip()] = new.strip()
    before = version(commits[0], renames)
    after = version((*commits, "worktree")[1], {})
    lines, remarks = compared(before, after, diff="--diff" in given)
    for line in (*remarks, *lines):
        print(line)
    differ = sum(line.startswith(("changed  ", "vanished  ", "new  ")) for line in lines)
    print(f"{len(before)} definitions before, {len(after)} after; {differ} differ")
    return 1 if lines else 0


def _expanded(argument: str) -> list[str]:
    if not argument.startswith("@"):
        return [argument]
    lines = (line.partition("#")[0].strip() for line in Path(argument[1:]).read_text().splitlines())
    return [line for line in lines if line]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
