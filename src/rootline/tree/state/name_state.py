"""What a name is by its newest root, for those who look for a table.

Owns: the answer where there is none any more. Does not own: what a name can be (`root_header`), finding
heads (`rootline.storage.metadata.root_reader`).
Invariants: a table that was dropped is not there, for any reader; the answer says when it was dropped, and how it comes
back.
"""

from __future__ import annotations

import datetime as dt
from typing import Final

from rootline.schemas.errors import Invalid
from rootline.schemas.root_header import Drop, NameState, RootHeader

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LAST_MS: Final = 253_402_300_799_000
"""The end of the year 9999: a header's number may be greater."""


def check_is_table(header: RootHeader) -> None:
    """Raises `Invalid` (`table-dropped`, `name-is-view`) when the newest root of a name is no table's."""
    if header.name_is is NameState.VIEW:
        raise Invalid(
            "name-is-view", f"{header.table} is a view, not a table: `rootline view show {header.table}` shows its SQL"
        )
    if header.is_tombstone:
        raise Invalid("table-dropped", dropped_words(header.table, header.drops[-1]))


def dropped_words(table: str, drop: Drop) -> str:
    """What to say of a name whose last table was dropped; `dropped_ms` is 0 while its root is being made."""
    moment = _EPOCH + dt.timedelta(milliseconds=min(drop.dropped_ms, _LAST_MS))
    when = f", at {moment.isoformat(timespec='seconds')}" if drop.dropped_ms else ""
    said = f"{table} was dropped in version {drop.version}{when}"
    if drop.is_purged:
        return f"{said}, with its files: it does not come back; `rootline table create {table}` makes a new one"
    return f"{said}: `rootline table restore {table}` brings it back"
