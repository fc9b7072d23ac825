"""When files were uploaded that another process stored, for an intent that brings many of them to a swept table.

Owns: asking the store. Does not own: files that this session uploaded (`upload_dates`), what a table does with the
claim (`rootline.tree.commit.arrival_rules`).
Invariants: nothing is asked where the coordinator would not ask either, or does so by itself; the claim is the store's
date of the oldest file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from rootline.client.session.session import Session
from rootline.ports.object_store import ObjectStore
from rootline.schemas.absolute_locations import is_absolute
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.object_keys import key_of
from rootline.storage.metadata.table_head import newest_root
from rootline.tree.commit import arrival_rules

_ASKED_AT_ONCE: Final = 64


async def oldest_listed(session: Session, table: TableName, locations: Sequence[str]) -> int | None:
    """The date of the oldest, in milliseconds; `None`: it is not known, and the table can do without.

    Raises:
        Invalid: `file-missing`, one of them is not in the store.
        Unavailable: `store-unavailable`.

    """
    known = session.uploads.oldest(table, locations)
    own = [location for location in dict.fromkeys(locations) if not is_absolute(location)]
    if known is not None or len(own) <= arrival_rules.ASKED_MAX:
        return known
    root = await newest_root(session.store, table)
    if root is None or not root.header.horizon_ms:
        return None
    pieces = [own[start : start + _ASKED_AT_ONCE] for start in range(0, len(own), _ASKED_AT_ONCE)]
    return min([await _oldest(session.store, table, piece) for piece in pieces])


async def _oldest(store: ObjectStore, table: TableName, locations: Sequence[str]) -> int:
    found = await asyncio.gather(*(store.stored_ms(key_of(table, location)) for location in locations))
    dates: list[int] = []
    for location, stored_ms in zip(locations, found, strict=True):
        if stored_ms is None:
            raise Invalid("file-missing", f"{location!r} does not exist, or cannot be read: upload it first")
        dates.append(stored_ms)
    return min(dates)
