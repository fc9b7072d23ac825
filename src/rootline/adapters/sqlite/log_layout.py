"""The layout of an embedded log's file, and the refusal of a file with another one.

Owns: the tables of a new file, the columns of an intent that are optional. Does not own: the rows that are written and
read (`log_file`).
Invariants: a file of another layout is refused before anything is written to it; a verdict names the layout, so a
program of the first release that still has the file open cannot write one.

Source: docs/decisions/0076.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rootline.schemas.distribution import LAST_THAT_UPGRADES
from rootline.schemas.errors import Corrupt

LAYOUT: Final = "2"
_FIRST_LAYOUT: Final = "1"
CLAIMS: Final = "oldest_file_ms"
SAID: Final = "content"
TRACE: Final = "trace"
"""The value of Kafka's header `traceparent`."""
CARRIED: Final = (SAID, CLAIMS, TRACE)
"""Columns of an intent that are headers on Kafka."""
DECIDED: Final = f"INSERT OR IGNORE INTO verdicts (log_offset, body, layout) VALUES (?, ?, {LAYOUT})"
_CREATED: Final = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE intents (log_offset INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB, value BLOB NOT NULL,"
    f" appended_ms INTEGER NOT NULL, {SAID} BLOB, {CLAIMS} INTEGER, {TRACE} BLOB)",
    "CREATE TABLE verdicts (log_offset INTEGER PRIMARY KEY, body TEXT NOT NULL, layout INTEGER)",
    "CREATE TABLE dead_letters (log_offset INTEGER PRIMARY KEY, body TEXT NOT NULL, key BLOB, value BLOB NOT NULL)",
    "CREATE TABLE heads (table_name TEXT PRIMARY KEY, version INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TRIGGER no_older_verdicts BEFORE INSERT ON verdicts WHEN NEW.layout IS NULL BEGIN"
    " SELECT RAISE(ABORT, 'this lake was upgraded (rootline upgrade): use a newer version of Rootline'); END",
    f"INSERT INTO meta VALUES ('layout', '{LAYOUT}'), ('upgraded-from', '1')",
)
"""Versions up to the one in `LAST_THAT_UPGRADES` need the offset `upgraded-from`: they, too, open a new file."""


def create_tables(connection: sqlite3.Connection) -> None:
    """Fill a new file. In a transaction."""
    for statement in _CREATED:
        connection.execute(statement)


def check_layout(connection: sqlite3.Connection, path: Path) -> Mapping[str, str]:
    """The rows of `meta` by name. Raises `Corrupt` (`log-corrupt`) if the file has another layout."""
    meta: dict[str, str] = dict(connection.execute("SELECT name, value FROM meta").fetchall())
    columns = {column[1] for column in connection.execute("PRAGMA table_info(intents)")}
    found = meta.get("layout")
    if found == LAYOUT and columns.issuperset(CARRIED):
        return meta
    reason = f"{path}: the log has layout {found}, and this version of Rootline reads {LAYOUT}"
    if found == _FIRST_LAYOUT:
        raise Corrupt(
            "log-corrupt",
            f"{reason}: nobody has upgraded it since the first release. Close all programs that have it open, run "
            f"`rootline upgrade` of commit {LAST_THAT_UPGRADES}, then open it with this version",
        )
    if found == LAYOUT:
        raise Corrupt(
            "log-corrupt",
            f"{path}: the log lacks columns, because only versions before commit {LAST_THAT_UPGRADES} have opened it. "
            "Open it once with that commit, then with this version",
        )
    raise Corrupt("log-corrupt", f"{reason}. Open it with the version that made it, or a newer one")
