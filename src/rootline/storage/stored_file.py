"""One object that a root names: there, and as long as its entry says.

Owns: turning "absent" and "of another length" into errors that name the object. Does not own: what its bytes mean.
Invariants: never returns bytes of a length other than the expected one.
"""

from __future__ import annotations

from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.identifiers import ObjectKey, TableName
from rootline.schemas.object_keys import key_of


def stored_key(table: TableName, location: str) -> ObjectKey:
    """The key of a location of `table`.

    Raises:
        Invalid: `file-unreadable`, the location is absolute: this version reads files under the table's prefix only.

    """
    if "://" in location or location.startswith("/"):
        raise Invalid("file-unreadable", f"{location}: files outside the table's own folder are not read")
    return key_of(table, location)


async def read_stored(
    store: ObjectStore, table: TableName, location: str, *, code: str, length: int | None = None
) -> bytes:
    """The bytes at `location`; `code` is the error code when their number is not `length`.

    Raises:
        Corrupt: `object-missing`, or `code`.
        Invalid: `file-unreadable`, as `stored_key`.

    """
    key = stored_key(table, location)
    found = await store.get(key)
    if found is None:
        raise Corrupt("object-missing", f"{key}: the table names this object, but it does not exist")
    if length is not None and len(found.body) != length:
        raise Corrupt(code, f"{key}: {len(found.body)} bytes are stored, its entry says {length}")
    return found.body
