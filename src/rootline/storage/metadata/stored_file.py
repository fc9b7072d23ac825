"""Reading an object that a root names: it exists, and is as long as its entry says.

Owns: under which key a location is read; turning "absent" and "of another length" into errors that name the object.
Does not own: what its bytes mean, which absolute keys a store reads (`rootline.adapters.absolute_keys`).
Invariants: never returns bytes of a length other than the expected one.
"""

from __future__ import annotations

from rootline.ports.object_store import LongObject, ObjectStore
from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import ObjectKey, TableName
from rootline.schemas.object_keys import is_absolute, key_of
from rootline.storage.whole_objects import get_up_to


def stored_key(table: TableName, location: str) -> ObjectKey:
    """The key that a location of `table` is read under: an absolute one is its own key, for `ObjectStore.get` only."""
    return ObjectKey(location) if is_absolute(location) else key_of(table, location)


async def read_stored(
    store: ObjectStore, table: TableName, location: str, *, code: str, length: int | None = None
) -> bytes:
    """The bytes at `location`; `code` is the error code when their number is not `length`.

    Raises:
        Corrupt: `object-missing`, or `code`.
        Invalid: `file-unreadable`, the store does not read such an absolute location.

    """
    key = stored_key(table, location)
    found = await (store.get(key) if length is None else get_up_to(store, key, length))
    if found is None:
        raise Corrupt("object-missing", f"{key}: the table names this object, but it does not exist")
    stored = found.length if isinstance(found, LongObject) else len(found.body)
    if isinstance(found, LongObject) or (length is not None and stored != length):
        raise Corrupt(code, f"{key}: {stored} bytes are stored, its entry says {length}")
    return found.body


async def read_file(store: ObjectStore, table: TableName, entry: ContentEntry, *, code: str) -> bytes:
    """The bytes of the file that `entry` names, as many as it says. Raises as `read_stored`."""
    return await read_stored(store, table, entry.location, code=code, length=entry.file_size_in_bytes)
