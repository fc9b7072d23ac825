"""Tables that cannot go on, in the file of an embedded log: notices, and an operator's lifts, as rows of `meta`.

Owns: the rows, and `ParkedStore` over them. Does not own: when a table is noticed or lifted
(`rootline.coordinator.runtime.assignment.parking`).
Invariants: no record is ever parked, because the log keeps what is undecided; an older version ignores the rows.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final, Protocol

from rootline.ports.intent_feed import Lift, ParkedStore, ParkedTable
from rootline.schemas.identifiers import LogId, LogRecord, TableName

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
