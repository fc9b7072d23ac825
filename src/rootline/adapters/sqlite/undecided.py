"""The undecided records of an embedded log, by table. Every first read looks for them, so this module imports little.

Owns: their SQL. Does not own: the layout of the file (`meta_rows`).
Invariants: No file is created. No lock is taken that a writer waits for.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rootline.adapters.posix_files import FORKS
from rootline.schemas.errors import Unavailable

FILE_NAME: Final = "log.sqlite"
"""The name of the log's file in its folder."""


def undecided_in(path: Path) -> Mapping[str, tuple[int, int]]:
    """Key → the number of its records without a verdict, and when the oldest of them was appended, ms since the epoch.

    Raises:
        Unavailable: `log-unavailable`, the file cannot be read.
    """
    try:
        url = f"{path.as_uri()}?mode=ro"
        with FORKS.shut(), contextlib.closing(sqlite3.connect(url, uri=True)) as connection:
            known = connection.execute("SELECT value FROM meta WHERE name = 'decided-below'").fetchone()
            rows = connection.execute(
                "SELECT i.key, count(*), min(i.appended_ms) FROM intents i"
                " LEFT JOIN verdicts v ON v.log_offset = i.log_offset"
                " WHERE i.log_offset >= ? AND v.log_offset IS NULL GROUP BY i.key",
                (int(known[0]) if known else 0,),
            ).fetchall()
    except sqlite3.Error as error:
        raise Unavailable("log-unavailable", f"{path}: {error}. Check that the file exists and is readable") from error
    return {(key or b"").decode(errors="replace"): (count, oldest_ms) for key, count, oldest_ms in rows}
