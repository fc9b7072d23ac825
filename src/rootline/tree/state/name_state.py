"""The check that the newest root of a name is a table, and not a view or a dropped table.

Owns: the error messages. Does not own: the kinds of names (`root_header`), finding heads
(`rootline.storage.metadata.root_reader`).
Invariants: No reader sees a dropped table. The error gives the time of the drop and the way to restore the table.
"""

from __future__ import annotations

import datetime as dt
from typing import Final

from rootline.schemas.errors import Invalid
from rootline.schemas.parts.name import Drop, NameState
from rootline.schemas.root_header import RootHeader

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LAST_MS: Final = 253_402_300_799_000
"""The end of the year 9999. The number in a header may be greater."""


def check_is_table(header: RootHeader) -> None:
    """Raise `Invalid` (`table-dropped`, `name-is-view`) unless the newest root of a name is a table."""
    if header.name.state is NameState.VIEW:
        raise Invalid(
            "name-is-view", f"{header.table} is a view, not a table: `rootline view show {header.table}` shows its SQL"
        )
    if header.is_tombstone:
        raise Invalid("table-dropped", dropped_words(header.table, header.name.drops[-1]))


def dropped_words(table: str, drop: Drop) -> str:
    """The message for a name whose table was dropped. `dropped_ms` is 0 while the root of the drop is being made."""
    moment = _EPOCH + dt.timedelta(milliseconds=min(drop.dropped_ms, _LAST_MS))
    when = f", at {moment.isoformat(timespec='seconds')}" if drop.dropped_ms else ""
    dropped = f"{table} was dropped in version {drop.version}{when}"
    if drop.is_purged:
        return f"{dropped}, with its files, and cannot be restored: `rootline table create {table}` makes a new one"
    return f"{dropped}: `rootline table restore {table}` restores it"
