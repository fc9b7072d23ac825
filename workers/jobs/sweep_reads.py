"""Reads the inputs of a sweep: the stored objects, the references of every existing root, and those of exports.

Owns: the reads and their order, the signs of a folder that is not swept. Does not own: the choice
(`orphan_sweep_plan`), the exports that are still needed and the files that they name
(`rootline.catalog.retained_exports`), deletion (`sweep_job`).
Words: an *inventory* is the set of a table's stored objects. A root or export *names* an object that it references, and
the object is then *marked*, so that the sweep keeps it. An *export* is Iceberg metadata of a version for other engines.
Invariants: the head was read before anything else. A required root or leaf that is missing or cannot be read ends the
sweep with an error. While an export that cannot be read exists, everything that exports may name is kept. Memory grows
by some tens of bytes for each object, and by a few leaves.

Source: definitions page, section 4; decision 0063.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

from rootline.catalog.retained_exports import (
    ExportReader,
    FoundExport,
    is_needed,
    is_of_head,
    newest_of_each,
)
from rootline.library_log import library_logger
from rootline.maintenance.orphan_sweep_plan import Inventory, InventoryNotes, Stored, locations_of
from rootline.ports.object_remover import ObjectRemover
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import LEAF_TYPES, ContentEntry, FileFormat
from rootline.schemas.errors import Corrupt, Invalid, Unavailable
from rootline.schemas.identifiers import ObjectKey, TableName, Version
from rootline.schemas.location_hashes import location_hash
from rootline.schemas.object_keys import (
    OwnKind,
    key_fault,
    own_kind,
    root_key,
    roots_prefix,
    table_prefix,
    version_of_root_key,
)
from rootline.schemas.root_header import RootHeader
from rootline.storage.metadata.object_reader import read_leaf
from rootline.storage.metadata.page_reader import read_kept
from rootline.storage.metadata.root_reader import read_definition, read_root
from rootline.tree.state.addressable import Addressable

_FOREIGN: Final = re.compile(
    r"metadata/[^/]*\.metadata\.json(?:\.gz)?|metadata/version-hint\.text|metadata/snap-[^/]*\.avro|_delta_log/.*"
)
"""Metadata of other formats in the same folder. It may name files that no Rootline root names.

A manifest list alone does not stop the sweep of a table that clients of the REST catalog write. It is of a client that
ignored `write.metadata.path`, and no root names it.
"""


@dataclass(frozen=True, slots=True)
class Listed:
    """The stored objects of one table.

    * `roots`, `pages`, `exports`: the store's dates (ms) of roots, of pages that condemn, and of exports'
      metadata.json.
    * `has_unread`: whether it is not known which objects some exports name.
    * `troubles`: a sentence on objects that no sweep can delete, because the store refuses their names as keys.
    """

    inventory: Inventory
    roots: Mapping[Version, int]
    pages: Mapping[str, int]
    exports: Mapping[str, int]
    has_unread: bool
    troubles: tuple[str, ...] = ()


class Marks(Protocol):
    """Receives the locations that roots name. It is an inventory, or a set of names outside the table's folder."""

    def reference(self, locations: Iterable[str], *, is_readable: bool) -> None:
        """Mark `locations`, which one root names.

        `is_readable`: whether the root is readable. Otherwise it is expired but still stored.
        """
        ...


@dataclass(slots=True)
class References:
    """Reads roots and marks all objects that they reference. Readable roots are marked first."""

    store: ObjectStore
    root: Root
    marks: Marks
    readable: set[Version] = field(default_factory=set)
    _blocks: set[bytes] = field(default_factory=set)
    _leaves: set[str] = field(default_factory=set)

    async def read(self, roots: Iterable[Version]) -> None:
        """Read every root in `roots` up to the head, and the leaves that it names.

        Raises:
            Corrupt: an object that is needed is missing or damaged.
            Unavailable: the store does not answer, or a readable root expired meanwhile.
        """
        head = self.root.header
        known = Addressable.of(head, await read_kept(self.store, head))
        readable: list[Version] = []
        expired: list[Version] = []
        for version in sorted(roots):
            if version < head.version:
                (readable if known.has(version) else expired).append(version)
        wanted = {*range(head.versions.oldest, head.version), *known.older()} - {head.version}
        absent = wanted - set(readable)
        if absent:
            raise Unavailable(
                "store-unavailable",
                f"{head.table}: root {min(absent)} is readable, but the store did not list it: retry",
            )
        await self._read_one(self.root, is_readable=True)
        newer = self.root
        for version in reversed(readable):
            newer = await read_root(self.store, head.table, version, known=newer)
            await self._read_one(newer, is_readable=True)
        for version in reversed(expired):
            newer = await self._expired(version, newer)

    async def _expired(self, version: Version, newer: Root) -> Root:
        """Read an expired root. It and the objects that it names may be deleted at any moment."""
        if await self.store.get(root_key(self.root.header.table, version)) is None:
            return newer
        root = await read_root(self.store, self.root.header.table, version, known=newer)
        await self._read_one(root, is_readable=False)
        return root

    async def _read_one(self, root: Root, *, is_readable: bool) -> None:
        header = root.header
        self.marks.reference(locations_of(header), is_readable=is_readable)
        fresh = [block for block in root.blocks if block.digest not in self._blocks]
        self._blocks.update(block.digest for block in fresh)
        entries = [row.entry for block in fresh for row in block.rows]
        await asyncio.to_thread(self.marks.reference, [entry.location for entry in entries], is_readable=is_readable)
        for entry in entries:
            if entry.content_type in LEAF_TYPES and entry.location not in self._leaves:
                self._leaves.add(entry.location)
                await self._leaf(entry, header, is_readable=is_readable)
        if is_readable:
            self.readable.add(header.version)

    async def _leaf(self, row: ContentEntry, header: RootHeader, *, is_readable: bool) -> None:
        try:
            is_ours = row.file_format is FileFormat.PARQUET
            definition = None if is_ours else await read_definition(self.store, header)
            leaf = await read_leaf(self.store, header.table, row, definition=definition)
        except Corrupt as error:
            if is_readable or error.code != "object-missing":
                raise
            return
        names: list[str] = await asyncio.to_thread(lambda: leaf.columns(["location"]).column(0).to_pylist())
        await asyncio.to_thread(self.marks.reference, names, is_readable=is_readable)


async def list_table(remover: ObjectRemover, table: TableName, *, of_clients: bool) -> Listed:
    """List all objects below the table's folder. `of_clients`: see `own_kind`.

    Raises:
        Invalid: `sweep-refused`, the folder contains metadata of other software.
        Unavailable: the store does not answer.
    """
    prefix, roots_folder = table_prefix(table), roots_prefix(table)
    notes = InventoryNotes(of_clients=of_clients)
    roots: dict[Version, int] = {}
    pages: dict[str, int] = {}
    exports: dict[str, int] = {}
    has_unread = False
    refused: list[ObjectKey] = []
    async for listed in remover.inventory(prefix):
        for item in listed:
            location = item.key.removeprefix(prefix)
            if item.key.startswith(roots_folder):
                version = version_of_root_key(item.key)
                if version is not None and item.key == root_key(table, version):
                    roots[version] = item.last_modified_ms
                continue
            kind = own_kind(location, of_clients=of_clients)
            if kind is None and _FOREIGN.fullmatch(location):
                raise Invalid(
                    "sweep-refused",
                    f"{table}: {item.key} is metadata of other software, which may name any file here: move it away, "
                    "or do not sweep this table",
                )
            if location.startswith("export/"):
                has_unread = has_unread or kind is None
                if kind is OwnKind.EXPORT_METADATA:
                    exports[location] = item.last_modified_ms
            if location.startswith("metadata/pages/"):
                pages[location] = item.last_modified_ms
            if key_fault(item.key) is not None:
                if kind is not None:
                    refused.append(item.key)
                continue
            notes.add(Stored(location, item.length, item.last_modified_ms))
    inventory = await asyncio.to_thread(notes.inventory)
    return Listed(inventory, roots, pages, exports, has_unread, tuple(_of_refused(table, refused)))


def _of_refused(table: TableName, keys: Sequence[ObjectKey]) -> Iterator[str]:
    if keys:
        yield (
            f"{table}: {len(keys)} objects have names that no store takes as a key, the first is {keys[0][:300]!r}, "
            f"which {key_fault(keys[0])}: they are never swept. No root names them: delete them by other means"
        )


async def keys_of(
    remover: ObjectRemover, table: TableName, wanted: Mapping[bytes, int], *, of_clients: bool
) -> AsyncIterator[list[ObjectKey]]:
    """Find the keys of objects, in batches. `wanted`: hash of the location → the store's date (ms) of the object.
    `of_clients`: see `own_kind`.

    An object that was stored anew since, and so has another date, is omitted.
    """
    prefix = table_prefix(table)
    async for listed in remover.inventory(prefix):
        found: list[ObjectKey] = []
        for item in listed:
            location = item.key.removeprefix(prefix)
            kind = own_kind(location, of_clients=of_clients)
            if kind and wanted.get(location_hash(location)) == item.last_modified_ms:
                found.append(item.key)
        if found:
            yield found


_log = library_logger("rootline.workers")


class ExportMarks(Marks, Protocol):
    """Receives the locations that exports name, and the locations of exports that are kept."""

    def keep(self, locations: Iterable[str]) -> None:
        """Keep these locations."""
        ...


async def mark_exports(
    store: ObjectStore,
    header: RootHeader,
    exports: Mapping[str, int],
    inventory: ExportMarks,
    *,
    young_ms: int,
    roots: Collection[Version],
) -> bool:
    """Mark the objects that `exports` name. Returns whether every needed export was read.

    Objects of an unneeded export are marked too, until its metadata.json is deleted. So no metadata.json ever exists
    without all the objects that it names, unless only a metadata log of a needed export names it.

    Args:
        store: the warehouse.
        header: the head's header, read before the exports were listed.
        exports: locations of all metadata.json files, and the store's dates.
        inventory: receives the marks.
        young_ms: every export stored at or after this time (ms) is needed.
        roots: the readable versions, whose roots are marked already.

    Raises:
        Unavailable: `store-unavailable`.
    """
    addressable = Addressable.of(header, await read_kept(store, header))
    newest = newest_of_each(exports)
    reader = ExportReader(store, header.table)

    async def mark(export: FoundExport, *, is_readable: bool) -> None:
        async for names in reader.names(export, roots.__contains__):
            await asyncio.to_thread(inventory.reference, names, is_readable=is_readable)

    others: list[str] = []
    logged: set[str] = set()
    for location, stored_ms in sorted(exports.items()):
        is_young = stored_ms >= young_ms
        if not is_young and not is_needed(header, addressable, location, newest):
            others.append(location)
            continue
        try:
            export = await reader.metadata(location)
            if export is not None and not is_young and not is_of_head(export, header, addressable):
                others.append(location)
            elif export is not None:
                inventory.keep([location, *export.logged])
                logged.update(export.logged)
                await mark(export, is_readable=True)
        except Corrupt as error:
            _log.warning(
                "an export cannot be read: nothing that exports may name is swept",
                action="sweep-export-unreadable",
                table=header.table,
                reason=str(error),
            )
            return False
    for location in others:
        if location in logged:
            continue
        with suppress(Corrupt):  # an engine cannot read it either
            export = await reader.metadata(location)
            if export is not None:
                await mark(export, is_readable=False)
    return True
