"""The layout of an embedded log's file, and the rows of its table `meta`: pauses, notices, requests to retry tables.

Owns: the tables and columns, and the rows. Does not own: the records (`log_file`), when a table is parked or lifted
(`rootline.coordinator.runtime.assignment.parking`).
Invariants: An older version ignores rows that it does not know.

Source: docs/protocol.md, "Older versions".
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rootline.ports.intent_feed import Lift, ParkedTable, Pause
from rootline.schemas.distribution import LAST_THAT_UPGRADES
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import LogId, TableName

LAYOUT: Final = "2"
_FIRST_LAYOUT: Final = "1"
CLAIMS: Final = "oldest_file_ms"
SAID: Final = "content"
TRACE: Final = "trace"
"""The value of Kafka's header `traceparent`."""
CARRIED: Final = (SAID, CLAIMS, TRACE)
"""Columns of an intent that are record headers on Kafka."""
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
"""The tables of a new file. Versions up to `LAST_THAT_UPGRADES`, which may open it too, need `upgraded-from`."""


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables of a new file, inside the caller's transaction."""
    for statement in _CREATED:
        connection.execute(statement)


def check_layout(connection: sqlite3.Connection, path: Path) -> Mapping[str, str]:
    """Return the rows of `meta` by name. Raises `Corrupt` (`log-corrupt`) if the file has another layout."""
    meta: dict[str, str] = dict(connection.execute("SELECT name, value FROM meta").fetchall())
    columns = {column[1] for column in connection.execute("PRAGMA table_info(intents)")}
    found = meta.get("layout")
    if found == LAYOUT and columns.issuperset(CARRIED):
        return meta
    reason = f"{path}: the log has layout {found}, and this version of Rootline reads {LAYOUT}"
    if found == _FIRST_LAYOUT:
        raise Corrupt(
            "log-corrupt",
            f"{reason}: it was not upgraded since the first release. Close all programs that have it open, run "
            f"`rootline upgrade` of commit {LAST_THAT_UPGRADES}, then open it with this version",
        )
    if found == LAYOUT:
        raise Corrupt(
            "log-corrupt",
            f"{path}: the log lacks columns, because only versions before commit {LAST_THAT_UPGRADES} have opened it. "
            "Open it once with that commit, then with this version",
        )
    raise Corrupt("log-corrupt", f"{reason}. Open it with the version that created it, or a newer one")


_PAUSED: Final = "paused:"


def write_pause(connection: sqlite3.Connection, pause: Pause, *, over: bool) -> None:
    """Store a pause. `over`: remove it instead."""
    _write(connection, f"{_PAUSED}{pause.table}", {"since": pause.since_ms, "why": pause.why}, over=over)


def pauses_in(connection: sqlite3.Connection) -> list[Pause]:
    """All pauses in the file."""
    return [_pause(TableName(table), body) for table, body in _rows(connection, _PAUSED).items()]


def _pause(table: TableName, body: Mapping[str, Any]) -> Pause:
    try:
        return Pause(table, int(body["since"]), str(body["why"]))
    except (ValueError, TypeError, KeyError):
        return Pause(table, 0, "its row cannot be read")  # a newer version wrote the row, and the table is paused


_STUCK: Final = "stuck:"
_LIFT: Final = "lift:"
_PARTITION: Final = 0


def write_stuck(connection: sqlite3.Connection, stuck: ParkedTable, *, over: bool) -> None:
    """Store the notice that a table is parked or quarantined. `over`: remove it instead."""
    body = {"next": stuck.next_offset, "since": stuck.since_ms, "why": stuck.why, "first": stuck.first_offset}
    _write(connection, f"{_STUCK}{stuck.table}", body, over=over)


def write_lift(connection: sqlite3.Connection, lift: Lift, *, over: bool) -> None:
    """Store a request to retry a table. `over`: remove it instead.

    A newer request for the table is not removed.
    """
    if over and lift.name != _rows(connection, _LIFT).get(lift.table, {}).get("name"):
        return
    _write(connection, f"{_LIFT}{lift.table}", {"name": lift.name}, over=over)


def stuck_in(connection: sqlite3.Connection, log: LogId) -> list[ParkedTable]:
    """All notices in the file."""
    return [
        ParkedTable(
            TableName(table),
            log,
            _PARTITION,
            int(body.get("next", 0)),
            int(body.get("since", 0)),
            str(body.get("why", "its row cannot be read")),
            int(body.get("first", 0)),
        )
        for table, body in _rows(connection, _STUCK).items()
    ]


def lifts_in(connection: sqlite3.Connection, log: LogId) -> list[Lift]:
    """The requests in the file, none of which was carried out yet."""
    return [
        Lift(TableName(table), log, _PARTITION, name=str(body.get("name", "")))
        for table, body in _rows(connection, _LIFT).items()
    ]


def _write(connection: sqlite3.Connection, name: str, body: dict[str, Any], *, over: bool) -> None:
    if over:
        connection.execute("DELETE FROM meta WHERE name = ?", (name,))
    else:
        connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, json.dumps(body)))


def _rows(connection: sqlite3.Connection, prefix: str) -> dict[str, dict[str, Any]]:
    """The bodies of the rows with this prefix, by table. A body that a newer version wrote may be empty."""
    found = connection.execute(
        "SELECT name, value FROM meta WHERE name >= ? AND name < ? ORDER BY name", (prefix, prefix[:-1] + ";")
    )
    return {name.removeprefix(prefix): _body(value) for name, value in found}


def _body(value: str) -> dict[str, Any]:
    try:
        body = json.loads(value)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
