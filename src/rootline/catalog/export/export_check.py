"""Whether the exports that are still needed are whole: the part of `rootline check` that looks at them.

Owns: what is looked at. Does not own: which exports are needed, reading them (`retained_exports`), the rest of a check
(`rootline.storage.check`).
Invariants: changes nothing; what stored bytes hold never raises, it becomes a finding.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from rootline.catalog.export.retained_exports import (
    ExportReader,
    is_needed,
    metadata_locations,
    newest_of_each,
)
from rootline.ports.object_store import ObjectStore
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import TableName
from rootline.schemas.object_keys import is_absolute, key_of, table_prefix
from rootline.storage.check.findings import CheckSummary, Finding, FindingBook
from rootline.storage.metadata.object_reader import read_kept
from rootline.storage.metadata.root_reader import at_head, read_root
from rootline.tree.state.addressable import Addressable


async def check_exports(
    store: ObjectStore, table: TableName, summary: CheckSummary | None = None
) -> AsyncIterator[Finding]:
    """Everything that an engine would miss of the exports that are still needed; nothing when all is well.

    Args:
        store: the warehouse.
        table: its name.
        summary: of the check of the table itself, to be added to.

    Raises:
        Unavailable: the store cannot be reached.

    """
    told = CheckSummary() if summary is None else summary
    book = FindingBook(told)
    try:
        head = await at_head(store, table, lambda at: read_root(store, table, at.version))
        kept = None if head is None else await read_kept(store, head.header)
    except Corrupt:
        return  # a finding of the table itself
    if head is None:
        return
    header = head.header
    present = set((await store.list(table_prefix(table))).keys)
    locations = metadata_locations(table_prefix(table), present)
    addressable, newest = Addressable.of(header, kept), newest_of_each(locations)
    reader = ExportReader(store, table)
    for location in sorted(locations):
        if not is_needed(header, addressable, location, newest):
            continue
        key = key_of(table, location)
        try:
            export = await reader.metadata(location)
            if export is None or export.metadata.table_uuid != header.table_uuid:
                continue
            told.exports += 1
            async for names in reader.names(export, addressable.has):
                for name in names:
                    named = export.folder.key(name)
                    if not is_absolute(name) and named not in present and await store.get(named) is None:
                        book.add(named, "object-missing", f"export {key} names this object, but it does not exist")
        except Corrupt as error:
            book.add_error(key, error)
        for finding in book.take():
            yield finding
