"""Which versions of Rootline may write to the file of an embedded log, and what is missing in an older file.

Owns: the layouts, the columns that came since the first one, and raising the layout. Does not own: what is read and
written (`log_file`), who may upgrade (`rootline.adapters.upgrade`).
Invariants: a file is made in the newest layout; one of layout 1, which the first release wrote, stays as it is until
`rootline upgrade`; from then on that release cannot open it, and one that has it open can tell no verdict.

Source: docs/decisions/0076.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from rootline.schemas.errors import Corrupt

SHARED: Final = "1"
"""The layout of the first release: its hosts may take over at any time."""
UPGRADED: Final = "2"
CLAIMS: Final = "oldest_file_ms"
SAID: Final = "content"
TRACE: Final = "trace"
"""What the header `traceparent` says on Kafka."""
CARRIED: Final = (SAID, CLAIMS, TRACE)
"""Of an intent: columns that a file of the first layout may lack."""
_BY: Final = "layout"
"""Of a verdict: written by a version that knows the upgrade."""
_UPGRADED_FROM: Final = "upgraded-from"
_FIRST_OFFSET: Final = 1
_ADDED: Final = (
    ("intents", SAID, "BLOB"),
    ("intents", CLAIMS, "INTEGER"),
    ("intents", TRACE, "BLOB"),
    ("verdicts", _BY, "INTEGER"),
)
DECIDED: Final = f"INSERT OR IGNORE INTO verdicts (log_offset, body, {_BY}) VALUES (?, ?, {UPGRADED})"
_NO_OLDER_VERDICTS: Final = (
    f"CREATE TRIGGER IF NOT EXISTS no_older_verdicts BEFORE INSERT ON verdicts WHEN NEW.{_BY} IS NULL BEGIN"
    " SELECT RAISE(ABORT, 'this lake was upgraded (rootline upgrade): use a newer version of Rootline'); END"
)


def complete(connection: sqlite3.Connection) -> None:
    """Add the columns that an older file lacks; a file that was just made gets the newest layout. In a transaction."""
    for table, column, kind in _ADDED:
        if not _has_column(connection, table, column):
            connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")
    if "layout" not in _meta(connection):
        _raise_to_newest(connection, _FIRST_OFFSET)


def upgrade(connection: sqlite3.Connection, end_offset: int) -> None:
    """Keep older versions out from now on; does nothing to a file of the newest layout. In a transaction."""
    if _meta(connection)["layout"] == SHARED:
        _raise_to_newest(connection, end_offset)


def upgraded_from(connection: sqlite3.Connection) -> int | None:
    """The first offset that only newer versions have read; `None`: older ones may read all."""
    meta = _meta(connection)
    return None if meta["layout"] == SHARED else int(meta[_UPGRADED_FROM])


def check_layout(connection: sqlite3.Connection, path: Path) -> Mapping[str, str]:
    """The file's facts about itself. Raises `Corrupt` (`log-corrupt`) if this version does not know its layout."""
    meta = _meta(connection)
    if meta.get("layout") not in (SHARED, UPGRADED):
        raise Corrupt(
            "log-corrupt",
            f"{path}: its layout is {meta.get('layout')}, this version of Rootline reads {SHARED} and {UPGRADED}: use "
            "another one",
        )
    return meta


def carried_columns(connection: sqlite3.Connection) -> Iterator[str]:
    """As `CARRIED`, with NULL for those that the file lacks."""
    return (column if _has_column(connection, "intents", column) else "NULL" for column in CARRIED)


def _has_column(connection: sqlite3.Connection, table: str, column: str) -> bool:
    return any(known[1] == column for known in connection.execute(f"PRAGMA table_info({table})"))


def _raise_to_newest(connection: sqlite3.Connection, end_offset: int) -> None:
    connection.execute(_NO_OLDER_VERDICTS)
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_UPGRADED_FROM, str(end_offset)))
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('layout', ?)", (UPGRADED,))


def _meta(connection: sqlite3.Connection) -> dict[str, str]:
    return dict(connection.execute("SELECT name, value FROM meta").fetchall())
