"""The layout of an embedded log's file and the rows of its table `meta`: pauses, tables that cannot go on, lifts.

Owns: the columns that were added since the first layout, the rows, and `ParkingLot` over them. Does not own: the
records (`log_file`), when a table is noticed or lifted (`rootline.coordinator.runtime.assignment.parking`).
Invariants: no record is ever parked, because the log keeps undecided records. An older version ignores rows that it
does not know.

Source: docs/protocol.md, "Older versions".
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from rootline.ports.intent_feed import Lift, ParkedStore, ParkedTable, Pause
from rootline.schemas.distribution import LAST_THAT_UPGRADES
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import LogId, LogRecord, TableName

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


_STUCK: Final = "stuck:"
_LIFT: Final = "lift:"
_PARTITION: Final = 0


def write_stuck(connection: sqlite3.Connection, stuck: ParkedTable, *, over: bool) -> None:
    """Begin or end the notice that a table cannot go on."""
    body = {"next": stuck.next_offset, "since": stuck.since_ms, "why": stuck.why, "first": stuck.first_offset}
    _write(connection, f"{_STUCK}{stuck.table}", body, over=over)


def write_lift(connection: sqlite3.Connection, lift: Lift, *, over: bool) -> None:
    """Ask for a lift, or note that it was carried out. A lift that was asked for meanwhile stays."""
    if over and lift.name != _rows(connection, _LIFT).get(lift.table, {}).get("name"):
        return
    _write(connection, f"{_LIFT}{lift.table}", {"name": lift.name}, over=over)


def stuck_in(connection: sqlite3.Connection, log: LogId) -> list[ParkedTable]:
    """All notices of the file."""
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
    """All lifts of the file that were not carried out."""
    return [
        Lift(TableName(table), log, _PARTITION, name=str(body.get("name", "")))
        for table, body in _rows(connection, _LIFT).items()
    ]


class StuckLog(Protocol):
    """The log, as far as the lot needs it."""

    async def mark_stuck(self, stuck: ParkedTable, *, over: bool) -> None:
        """Write the notice as `write_stuck` does. It is durable when this returns."""
        ...

    async def mark_lift(self, lift: Lift, *, over: bool) -> None:
        """Write the lift as `write_lift` does. It is durable when this returns."""
        ...

    async def stuck(self) -> Sequence[ParkedTable]:
        """The tables that cannot go on."""
        ...

    async def lifts(self) -> Sequence[Lift]:
        """The tables that are to be tried again."""
        ...


class NoticesOnly(ParkedStore):
    """The lot of a log that keeps what is undecided: who cannot go on, and who is to be tried again."""

    def __init__(self, log: StuckLog) -> None:
        self._log = log

    async def known(self) -> Sequence[ParkedTable]:
        """The notices of an earlier coordinator."""
        return await self._log.stuck()

    async def park(self, parked: ParkedTable, records: Sequence[LogRecord]) -> ParkedTable:
        """Store the notice that the table cannot go on. No record may be given."""
        assert not records, f"{parked.table}: the log keeps its records, so none is parked"
        await self._log.mark_stuck(parked, over=False)
        return parked

    async def parked_records(
        self, parked: ParkedTable, from_offset: int, *, without_missing: bool
    ) -> AsyncGenerator[Sequence[LogRecord], None]:
        """None, ever."""
        return
        yield

    async def unpark(self, parked: ParkedTable) -> None:
        """As the port says."""
        await self._log.mark_stuck(parked, over=True)

    async def lifts(self) -> Sequence[Lift]:
        """As the port says."""
        return await self._log.lifts()

    async def lifted(self, lift: Lift) -> None:
        """As the port says."""
        await self._log.mark_lift(lift, over=True)


def _write(connection: sqlite3.Connection, name: str, body: dict[str, Any], *, over: bool) -> None:
    if over:
        connection.execute("DELETE FROM meta WHERE name = ?", (name,))
    else:
        connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, json.dumps(body)))


def _rows(connection: sqlite3.Connection, prefix: str) -> dict[str, dict[str, Any]]:
    """The bodies of the rows with this prefix, by table. The body of a newer version may be empty."""
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
