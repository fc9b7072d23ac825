"""The page that compares four libraries: each runs its blocks, and its table has our rows after each task.

Rootline runs here. The others run in the peers' environment (`make setup-peers`), and are skipped where it is missing.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers.software import ENVIRONMENT, peers_python, peers_ready
from tests.documents.blocks import HOUSE, blocks_of

PAGE = "docs/quickstarts/ten-tasks-compared.md"
READ_TASKS = (3, 4, 8)
"""Their first line of output is the same in every library."""
ROWS = {
    "Rootline": "with rootline.connect('shop') as reading: rows = reading.table('shop.orders').scan().to_arrow()",
    "PyIceberg": "rows = orders.scan().to_arrow()",
    "delta-rs": "rows = orders.to_pyarrow_table()",
    "DuckLake": "rows = lake.sql('FROM orders').to_arrow_table()",
}
"""The libraries, as the page orders them, with a statement that reads the table."""
RUNNER = """
import contextlib, io, json, sys
asked = json.load(sys.stdin)
names, done = {"__name__": "__main__"}, []
for block in asked["blocks"]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(block, names)
    exec(asked["rows"], names)
    done.append([printed.getvalue(), names["rows"].sort_by("id").to_pylist()])
print(json.dumps(done, default=str))
"""


def blocks_by_library() -> dict[str, list[str]]:
    """The blocks of each library, a block for each task."""
    blocks = [block.text for block in blocks_of(PAGE, "python")]
    return {library: blocks[place :: len(ROWS)] for place, library in enumerate(ROWS)}


def run(library: str, python: str, folder: Path) -> list[tuple[str, list[dict[str, Any]]]]:
    """Run a library's blocks; for each what it printed, and the rows of the table after it."""
    blocks = blocks_by_library()[library]
    if library == "DuckLake":  # its extension comes as a package here
        [extension] = ENVIRONMENT.glob("lib/*/site-packages/duckdb_extension_ducklake/**/ducklake.duckdb_extension")
        blocks = [block.replace("INSTALL ducklake", f"LOAD '{extension}'") for block in blocks]
    asked = json.dumps({"blocks": blocks, "rows": ROWS[library]})
    words = [python, "-W", "ignore", "-c", RUNNER]
    done = subprocess.run(words, input=asked, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [(printed, rows) for printed, rows in json.loads(done.stdout)]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, list[dict[str, Any]]]]:
    """What Rootline printed, and its rows, after each task."""
    return run("Rootline", sys.executable, tmp_path_factory.mktemp("rootline"))


def test_each_task_has_a_block_of_each_library_in_one_order() -> None:
    text = (HOUSE / PAGE).read_text()
    tasks = [list(ROWS) for _ in re.findall(r"^## \d+\.", text, re.MULTILINE)]
    assert re.findall(r"^\*\*([\w-]+)\*\*", text, re.MULTILINE) == [name for task in tasks for name in task]
    assert {len(blocks) for blocks in blocks_by_library().values()} == {len(tasks)}


def test_our_blocks_are_those_of_the_ten_tasks() -> None:
    ten = [block.text for block in blocks_of("docs/quickstarts/ten-tasks.md", "python")]
    assert blocks_by_library()["Rootline"][: len(ten)] == ten


def test_the_page_counts_the_lines_of_its_blocks() -> None:
    not_code = re.compile(r"\s*(#.*|import .*|from \w+(\.\w+)* import .*)?$")
    lines = {
        library: [sum(not not_code.match(line) for line in block.splitlines()) for block in blocks]
        for library, blocks in blocks_by_library().items()
    }
    titles = re.findall(r"^## (\d+\. .*)$", (HOUSE / PAGE).read_text(), re.MULTILINE)
    rows = [(title, *(str(count[task]) for count in lines.values())) for task, title in enumerate(titles)]
    rows.append(("all", *(str(sum(count)) for count in lines.values())))
    table = "\n".join(f"| {' | '.join(row)} |" for row in [("task", *lines), ("---", *("--:" for _ in lines)), *rows])
    assert table in (HOUSE / PAGE).read_text(), table


@pytest.mark.slow
def test_our_rows_are_those_that_the_tasks_name(ours: list[tuple[str, list[dict[str, Any]]]]) -> None:
    kyiv = {"id": 1, "price": 10.0, "at": "2024-01-05 10:00:00", "tags": {"size": 40, "colours": ["red"]}}
    rows = [
        {**kyiv, "town": "Kyiv", "note": None},
        {"id": 2, "town": "Bergen", "price": 50.0, "at": "2024-01-06 11:00:00", "tags": None, "note": None},
        {"id": 4, "town": "Rome", "price": 5.0, "at": None, "tags": None, "note": None},
    ]
    batch = {"id": 5, "town": "Lviv", "price": 7.0, "at": None, "tags": None, "note": None}
    assert [after for _, after in ours[8:]] == [rows, rows, [*rows, batch], rows]


@pytest.mark.slow
@pytest.mark.parametrize("library", list(ROWS)[1:])
def test_a_peer_has_our_rows_after_each_task(
    library: str, ours: list[tuple[str, list[dict[str, Any]]]], tmp_path: Path
) -> None:
    if not peers_ready():
        pytest.skip("the peers' environment is missing or of other versions: make setup-peers")
    theirs = run(library, peers_python(), tmp_path)
    assert [rows for _, rows in theirs] == [rows for _, rows in ours]
    for task in READ_TASKS:
        assert theirs[task - 1][0].splitlines()[0] == ours[task - 1][0].splitlines()[0]
