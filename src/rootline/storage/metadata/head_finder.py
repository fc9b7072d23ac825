"""Finds the newest root of a table.

Owns: the LIST, and passing over foreign objects. Does not own: what makes a head confirmed (commit protocol).
Invariants: one request as long as no one puts foreign objects before the roots; the answer carries the store's date.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.identifiers import TableName, Version
from rootline.schemas.object_keys import root_key, roots_prefix, version_of_root_key

_Read = TypeVar("_Read")
_LIMITS: Final[tuple[int | None, ...]] = (1, 100, None)


@dataclass(frozen=True, slots=True)
class HeadKey:
    """The newest root's version; `store_ms` is the date of the LIST that found it, `None` when the store has none."""

    version: Version
    store_ms: int | None


async def find_head(store: ObjectStore, table: TableName) -> HeadKey | None:
    """The newest root's version; `None` when the table has no root.

    A key counts only if it is exactly the key that root would be written under.

    Raises:
        Unavailable: `store-unavailable`.

    """
    for limit in _LIMITS:
        listing = await store.list(roots_prefix(table), limit=limit)
        for key in listing.keys:
            version = version_of_root_key(key)
            if version is not None and key == root_key(table, version):
                return HeadKey(version, listing.store_ms)
        if limit is None or len(listing.keys) < limit:
            return None
    return None


async def at_head(
    store: ObjectStore, table: TableName, read: Callable[[HeadKey], Awaitable[_Read]], head: HeadKey | None = None
) -> _Read | None:
    """What `read` makes of the newest version, which is found again if it expires meanwhile; `None`: no root is there.

    Args:
        store: the warehouse.
        table: the table's name.
        read: reads what it needs of one version.
        head: the newest version, if it was just found.

    Raises:
        Corrupt: as `read`; `object-missing` only while the version is still the newest.
        Unavailable: `store-unavailable`.

    """
    found = await find_head(store, table) if head is None else head
    while found is not None:
        try:
            return await read(found)
        except Corrupt as error:
            if error.code != "object-missing":
                raise
            newer = await find_head(store, table)
            if newer is None or newer.version <= found.version:
                raise
            found = newer
    return None


async def existing_head(store: ObjectStore, table: TableName) -> HeadKey:
    """As `find_head`; a table without a root is an error.

    Raises:
        Invalid: `table-unknown`.
        Unavailable: `store-unavailable`.

    """
    head = await find_head(store, table)
    if head is None:
        raise Invalid(
            "table-unknown", f"{table}: no table has this name in this warehouse; `rootline table list` shows all"
        )
    return head
