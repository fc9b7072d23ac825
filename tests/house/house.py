"""The size and the words of the product, counted, with an upper bound for each: `make house`.

`make house ARGS=hold` lists the places that a row counts, for each row whose name contains the argument.
`make house ARGS=--lower` lowers each bound to its count, `make house ARGS=--names` lists the names that two modules of
one folder define. The bounds are in `bounds.toml`, and `test_house.py` checks them.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import statistics
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.house import named_by
from tests.house.prose import Prose, prose_of, prose_of_data
from tests.house.source_facts import facts_of
from tests.house.test_rooms import modules

HOUSE: Final = Path(__file__).resolve().parents[2]
BOUNDS: Final = Path(__file__).with_name("bounds.toml")
MOST: Final = 8
"""How many of the files that contribute most a failure names."""
DATA: Final = ("*.toml", "*.json", "*[!0-9].avsc")  # schemas with a number are earlier versions, which stay


@dataclass(frozen=True, slots=True)
class Row:
    """A count of the house. `places` says where it comes from: a file or a folder, or `file:line: text`."""

    name: str
    count: float
    places: tuple[str, ...]

    def contributors(self) -> list[tuple[str, int]]:
        """The files or folders that contribute most."""
        return Counter(place.partition(":")[0] for place in self.places).most_common(MOST)


@dataclass(frozen=True, slots=True)
class _Source:
    path: str
    lines: int
    code_lines: int
    head_lines: int
    prose: Prose


def bounds() -> dict[str, float]:
    """Row → upper bound."""
    table = tomllib.loads(BOUNDS.read_text())
    return table["rows"] | {row["words"]: row["bound"] for row in table["words"]}


def patterns() -> dict[str, re.Pattern[str]]:
    """Row of the table of words → what finds its bad uses."""
    return {row["words"]: re.compile(row["pattern"], re.I) for row in tomllib.loads(BOUNDS.read_text())["words"]}


def source_rows() -> Iterator[Row]:
    """The counts that the sources give."""
    sources = _sources()
    yield Row("product files", len(sources), _folders(item.path for item in sources))
    doors = [item.path for item in sources if item.path.endswith("__init__.py")]
    yield Row("product files named __init__.py", len(doors), _folders(doors))
    code = sum(item.code_lines for item in sources)
    yield Row("lines of code", code, tuple(item.path for item in sources for _ in range(item.code_lines)))
    share = 100 * sum(item.head_lines for item in sources) / sum(item.lines for item in sources)
    heads = tuple(item.path for item in sources for _ in range(item.head_lines))
    yield Row("module docstrings and imports, % of lines", round(share, 1), heads)
    documented = [(item.path, found) for item in sources for found in item.prose.docstrings]
    asking = [_place(path, found.line, found.text) for path, found in documented if found.begins_with_a_question]
    yield Row("docstrings that begin with a wh-word", len(asking), tuple(asking))
    joined = [_place(path, found.line, found.text) for path, found in documented if found.has_a_semicolon]
    yield Row("docstrings with a semicolon in prose", len(joined), tuple(joined))
    yield from _naming_rows()
    texts = [(item.path, item.prose) for item in sources]
    texts += [(str(path.relative_to(HOUSE)), prose_of_data(path)) for path in _data_files()]
    for words, pattern in patterns().items():
        places = tuple(
            _place(path, line, text[max(0, match.start() - 50) : match.end() + 50])
            for path, prose in texts
            for line, text in prose.lines
            for match in pattern.finditer(text)
        )
        yield Row(words, len(places), places)


def _naming_rows() -> Iterator[Row]:
    """How many files name one part of a root's header, or one kind of intent: what a change of it may touch."""
    product = {str(path.relative_to(HOUSE)): path for path in modules(HOUSE).values()}
    parts, kinds = named_by.files_by_part(product), named_by.files_by_kind(product)
    yield Row("engine files that name one part of the header", named_by.most(parts), named_by.places(parts))
    yield Row("product files that name one kind of intent", named_by.most(kinds), named_by.places(kinds))
    median = statistics.median(map(len, kinds.values()))
    yield Row("product files that name one kind of intent, median", median, named_by.places(kinds))


def run_rows() -> Iterator[Row]:
    """The counts that a program gives while it runs: files that ran, modules that were loaded."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.house.walks"], cwd=HOUSE, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"tests.house.walks failed with exit code {done.returncode}:\n{done.stderr}")
    for name, files in json.loads(done.stdout).items():
        yield Row(name, len(files), _folders(files))


@functools.cache
def _sources() -> tuple[_Source, ...]:
    return tuple(_source(path) for path in modules(HOUSE).values())


def _source(path: Path) -> _Source:
    text = path.read_text()
    tree = ast.parse(text)
    strings, imports = set[int](), set[int]()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                strings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            case ast.Import() | ast.ImportFrom():
                imports.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = text.splitlines()
    code = [
        number
        for number, line in enumerate(lines, start=1)
        if line.strip() and not line.lstrip().startswith("#") and number not in strings | imports
    ]
    head = tree.body[0].end_lineno or 0 if ast.get_docstring(tree) is not None else 0
    return _Source(str(path.relative_to(HOUSE)), len(lines), len(code), head + len(imports), prose_of(text, tree))


def _data_files() -> list[Path]:
    rooms = [HOUSE / name for name in ("schemas", "coordinator", "workers", "src/rootline")]  # no link is followed
    return sorted(path for room in rooms for kind in DATA for path in room.rglob(kind))


def _folders(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(path.rpartition("/")[0] for path in paths)


def _place(path: str, line: int, text: str) -> str:
    return f"{path}:{line}: {' '.join(text.split())[:110]}"


def shared_names() -> Iterator[str]:
    """The names that two modules of one folder define: they collide if the modules are merged."""
    folders: dict[Path, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path in modules(HOUSE).values():
        for name in facts_of(path).top:
            folders[path.parent][name].append(path.name)
    for folder, found in folders.items():
        for name, files in sorted(found.items()):
            if len(files) > 1 and name != "__all__":
                yield f"{folder.relative_to(HOUSE)}: {name}: {', '.join(files)}"


def lowered(table: str, rows: Iterable[Row]) -> str:
    """The table of bounds with each bound that is above its count set to the count."""
    for row in rows:
        before = re.compile(rf'((?:words = )?"{re.escape(row.name)}"(?: = |.*?\nbound = ))([\d.]+)', re.DOTALL)
        match = before.search(table)
        if match is not None and row.count < float(match[2]):
            table = f"{table[: match.end(1)]}{row.count:g}{table[match.end(2) :]}"
    return table


def main(argument: str) -> int:
    """Print the rows, with their places if an argument chooses them; 1 if a row is above its bound."""
    if argument == "--names":
        print(*shared_names(), sep="\n")
        return 0
    wanted = argument.removeprefix("--lower")
    allowed = bounds()
    rows = [row for row in (*source_rows(), *run_rows()) if wanted in row.name]
    for row in rows:
        if wanted:
            print(*row.places, sep="\n")
        bound = allowed[row.name]
        remark = "ABOVE" if row.count > bound else f"lower the bound to {row.count:g}" if row.count < bound else ""
        print(f"{row.count:>8g}  bound {bound:>8g}  {row.name}  {remark}".rstrip())
    if argument == "--lower":
        BOUNDS.write_text(lowered(BOUNDS.read_text(), rows))
    return 1 if any(row.count > allowed[row.name] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(" ".join(sys.argv[1:])))
