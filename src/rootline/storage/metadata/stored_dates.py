"""Asks the store when files of a table were stored, a few at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import Invalid
from rootline.schemas.identifiers import TableName
from rootline.storage.few_at_once import gather_bounded
from rootline.storage.metadata.stored_file import stored_key

_AT_ONCE: Final = 16


async def stored_dates(store: ObjectStore, table: TableName, locations: Sequence[str]) -> dict[str, int | None]:
    """When each of these was stored, in milliseconds; `None`: it is not there. Raises `Unavailable`."""

    async def date_of(location: str) -> int | None:
        try:
            return await store.stored_ms(stored_key(table, location))
        except Invalid:
            return None  # no store can hold a key like this

    return dict(zip(locations, await gather_bounded(locations, date_of, _AT_ONCE), strict=True))
