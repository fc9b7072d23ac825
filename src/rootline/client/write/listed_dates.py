"""When files were uploaded that another process stored, for an intent that brings many of them to a swept table.

Owns: asking the store. Does not own: files that this session uploaded (`upload_dates`), what a table does with the
claim (`rootline.tree.commit.arrival_rules`).
Invariants: nothing is asked where the coordinator would not ask either, or does so by itself; the claim is the store's
date of the oldest file.
"""

from __future__ import annotations

from collections.abc import Sequence

from rootline.client.session.session import Session
from rootline.client.session.upload_dates import oldest_date
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.object_keys import is_absolute
from rootline.storage.metadata.root_reader import newest_root
from rootline.storage.stored_objects import stored_dates
from rootline.tree.commit import arrival_rules


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
    dates = await stored_dates(session.store, table, own)
    absent = next((location for location, date in dates.items() if date is None), None)
    if absent is not None:
        raise Invalid("file-missing", f"{absent!r} does not exist, or cannot be read: upload it first")
    return oldest_date(dates.values())
