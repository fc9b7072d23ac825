"""Tables of the documents that show tasks side by side: a cell for each way to do a task, with its programs as spans.

Owns: finding the rows and their programs, and the rows of data that every way ends with. Does not own: running them.
Invariants: every span of code in a cell that is asked for is a whole program. A cell without a span is prose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.documents.blocks import HOUSE

_CELL: Final = re.compile(r"(?<!\\)\|")
_SPAN: Final = re.compile(r"`([^`]+)`")


Row = tuple[int, str, float | None]

_NEW: Final[list[Row]] = [(1, "Kyiv", 10.0), (2, "Oslo", 20.0), (3, "Oslo", None)]
_MORE: Final[list[Row]] = [*_NEW, (4, "Lviv", 7.0)]
_STREAMED: Final[list[Row]] = [*_MORE, (7, "Bonn", 9.0)]
_UPSERTED: Final[list[Row]] = [*_MORE, (5, "Rome", 5.0), (7, "Bonn", 9.0)]
ARRIVED: Final = '{"id": 7, "city": "Bonn", "price": 9.0, "at": "2024-02-01T12:00:00Z"}'
"""What the streams of the pages read."""
ROWS_AFTER: Final[dict[str, list[Row]]] = {
    "create a table": [],
    "append a batch": _NEW,
    "append a batch once, though the job may be repeated": _MORE,
    "append a stream": _STREAMED,
    "upsert": [row if row[0] != 2 else (2, "Oslo", 25.0) for row in _UPSERTED],
    "update": [row if row[0] != 2 else (2, "Oslo", 50.0) for row in _UPSERTED],
    "delete": [row if row[0] != 2 else (2, "Oslo", 50.0) for row in _UPSERTED if row[0] != 3],
    "overwrite the partitions of a batch": [(4, "Lviv", 7.0), (6, "Rome", 6.0), (7, "Bonn", 9.0)],
}
"""Id, city and price of each row of `shop.orders` after the tasks that change them, in both formats."""


@dataclass(frozen=True, slots=True)
class Task:
    """A row: its first cell, and the programs of each cell that was asked for."""

    name: str
    cells: tuple[tuple[str, ...], ...]


def tasks_of(page: str, first: str, *columns: str) -> list[Task]:
    """The rows of every table of the page whose first column is `first`, and which has these columns, in order."""
    found: list[Task] = []
    for (head, *header), rows in _tables((HOUSE / page).read_text()):
        if head == first and set(columns) <= set(header):
            places = [1 + header.index(column) for column in columns]
            found += [Task(row[0], tuple(tuple(_SPAN.findall(row[place])) for place in places)) for row in rows]
    assert found, f"{page} has no table with {', '.join(columns)}"
    return found


def _tables(text: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """The header and the rows of each table."""
    for table in re.findall(r"(?:^\|.*\|\n){2,}", text, re.MULTILINE):
        header, _, *rows = [[cell.strip() for cell in _CELL.split(line)[1:-1]] for line in table.splitlines()]
        yield header, rows
