"""Pauses in the file of an embedded log: rows of `meta`, which every version of the file has."""

from __future__ import annotations

import json
import sqlite3
from typing import Final

from rootline.ports.intent_feed import Pause
from rootline.schemas.identifiers import TableName

_PREFIX: Final = "paused:"


def write_pause(connection: sqlite3.Connection, pause: Pause, *, over: bool) -> None:
    """The pause begins, or is `over`."""
    name, value = f"{_PREFIX}{pause.table}", json.dumps({"since": pause.since_ms, "why": pause.why})
    if over:
        connection.execute("DELETE FROM meta WHERE name = ?", (name,))
    else:
        connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))


def pauses_in(connection: sqlite3.Connection) -> list[Pause]:
    """All pauses of the file."""
    rows = connection.execute(
        "SELECT name, value FROM meta WHERE name >= ? AND name < ? ORDER BY name", (_PREFIX, _PREFIX[:-1] + ";")
    )
    return [_pause(TableName(name.removeprefix(_PREFIX)), value) for name, value in rows]


def _pause(table: TableName, value: str) -> Pause:
    try:
        body = json.loads(value)
        return Pause(table, int(body["since"]), str(body["why"]))
    except (ValueError, TypeError, KeyError):
        return Pause(table, 0, "its row cannot be read")  # of a newer version: paused it is
