"""The stored exports that are still needed, the objects that they name, and the check whether they are complete.

Owns: the choice of exports, reading metadata.json, manifest lists and manifests for the names in them, the part of
`rootline check` for exports. Does not own: listing exports, deletion (`rootline.workers`), the rest of a check
(`rootline.storage.check`).
Invariants: changes nothing. An export whose version can be read is retained, and so is the newest of each folder in any
case. An export that engines may just have read is retained, whoever made it. An unreadable object is an error for a
sweep and a finding for a check, and is never skipped.

Source: docs/export.md, "What goes", decision 0036.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rootline.catalog.export_keys import ENCODINGS, ExportFolder, FormatVersion, is_list_of, version_of_metadata
from rootline.catalog.manifest_list_encoder import ManifestRecord, decode_manifest_list_records
from rootline.catalog.table_metadata import VERSION, SnapshotJson, StoredMetadata, damaged, read_metadata
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.leaf import LeafContent
from rootline.schemas.bytes.manifest_codec import files_named
from rootline.schemas.errors import Corrupt
from rootline.schemas.identifiers import ObjectKey, TableName, Version
from rootline.schemas.object_keys import OwnKind, is_absolute, key_of, own_kind, table_prefix
from rootline.schemas.parts.name import NameState
from rootline.schemas.root_header import RootHeader
from rootline.storage.check.findings import CheckSummary, Finding, FindingBook
from rootline.storage.metadata.page_reader import read_kept
from rootline.storage.metadata.root_reader import at_head, read_root
from rootline.tree.state.addressable import Addressable


@dataclass(frozen=True, slots=True)
class FoundExport:
    """A stored metadata.json whose objects are all there.

    `lists`: the Rootline manifest lists that it names, and their versions. `logged`: the locations of the earlier
    metadata.json files in its metadata log. A log may name versions that have expired, whose other objects are deleted.
    """

    location: str
    folder: ExportFolder
    metadata: StoredMetadata
    lists: Mapping[str, Version]
    logged: Sequence[str] = ()


def newest_of_each(locations: Iterable[str]) -> set[str]:
    """The newest in each folder among the locations of metadata.json files. Exporters continue from it."""
    newest: dict[str, tuple[int, str]] = {}
    for location in locations:
        version = version_of_metadata(location)
        if version is not None:
            folder = location.rpartition("/")[0]
            newest[folder] = max(newest.get(folder, (-1, "")), (int(version), location))
    return {location for _, location in newest.values()}


def is_needed(header: RootHeader, addressable: Addressable, location: str, newest: Collection[str]) -> bool:
    """Whether the head needs an export that is not new: its version can be requested, or later exports continue from
    it.

    A dropped table may be restored with its exports, unless it was purged.
    """
    version = version_of_metadata(location)
    if version is None:
        return True
    is_purged = header.is_tombstone and header.name.drops[-1].is_purged
    if header.name.state is NameState.VIEW or is_purged:
        return False
    return addressable.has(version) or location in newest


def is_of_head(export: FoundExport, header: RootHeader, addressable: Addressable) -> bool:
    """Whether a needed export that was read is of the head's table. No exporter continues from the newest export that
    an older release wrote, so such an export is needed only while its version can be requested.
    """
    version = version_of_metadata(export.location)
    is_continued = not export.folder.is_superseded or (version is not None and addressable.has(version))
    return export.metadata.table_uuid == header.table_uuid and is_continued


@dataclass(slots=True)
class ExportReader:
    """Reads exports of one table. A manifest list or manifest that several exports name is read once."""

    store: ObjectStore
    table: TableName
    _lists: dict[str, Sequence[ManifestRecord]] = field(default_factory=dict)
    _manifests: set[str] = field(default_factory=set)

    async def metadata(self, location: str) -> FoundExport | None:
        """The metadata.json at a location relative to the table, or `None` if it was deleted.

        Raises:
            Corrupt: `export-corrupt`.
            Unavailable: `store-unavailable`.
        """
        key = key_of(self.table, location)
        found = await self.store.get(key)
        return None if found is None else await asyncio.to_thread(_read, found.body, self.table, location)

    async def records(self, of: FoundExport, location: str) -> Sequence[ManifestRecord]:
        """The manifests in one of its lists. Raises the errors of `metadata`, and `export-corrupt` if the list is
        missing.
        """
        known = self._lists.get(location)
        if known is None:
            name, named_by = of.folder.key(location), of.folder.key(of.location)
            found = await self.store.get(name)
            if found is None:
                raise damaged(named_by, f"it names the manifest list {name}, which does not exist")
            if not is_list_of(location, found.body):
                raise damaged(name, "its bytes do not match the hash in its name", named_by=named_by)
            known = self._lists[location] = await asyncio.to_thread(decode_manifest_list_records, found.body, name=name)
        return known

    async def names(
        self, of: FoundExport, has_root: Callable[[Version], bool] = lambda _: False
    ) -> AsyncIterator[Sequence[str]]:
        """Yield all locations that an export names, in pieces: lists, manifests, converted deletes, vectors, data
        files.

        Objects in the table's folder are named relative to it.

        Args:
            of: the export.
            has_root: whether the objects that a version's root names are known. Its data manifests are not opened then.

        Raises: the errors of `records`.
        """
        for location, version in of.lists.items():
            is_known = location in self._lists
            records = await self.records(of, location)
            start = f"{of.folder.base}/"
            yield [location, *(record.path.removeprefix(start) for record in records)]
            if is_known:
                continue
            for record in records:
                if record.path in self._manifests or (record.content is LeafContent.DATA and has_root(version)):
                    continue
                self._manifests.add(record.path)
                key = of.folder.key(record.path.removeprefix(start))
                found = await self.store.get(key)
                named_by = of.folder.key(of.location)
                if found is None:
                    raise damaged(named_by, f"it needs the manifest {key}, which does not exist")
                if len(found.body) != record.length:
                    reason = f"it has {len(found.body)} bytes, and its list states {record.length}"
                    raise damaged(key, reason, named_by=named_by)
                names = await asyncio.to_thread(_names_in, found.body, key)
                yield [name.removeprefix(start) for name in names]


async def _with_log(of: FoundExport, names: AsyncIterator[Sequence[str]]) -> AsyncIterator[Sequence[str]]:
    yield of.logged
    async for some in names:
        yield some


def metadata_locations(table_folder: str, keys: Iterable[str]) -> list[str]:
    """The locations of metadata.json files among the keys of a listing."""
    locations = (key.removeprefix(table_folder) for key in keys)
    return [location for location in locations if own_kind(location) is OwnKind.EXPORT_METADATA]


def _read(body: bytes, table: TableName, location: str) -> FoundExport:
    name, version = key_of(table, location), version_of_metadata(location)
    try:
        stated = json.loads(body)
        of_table = (table, FormatVersion(stated["format-version"]), str(stated["location"]))
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(name, f"it is not the metadata of an export: {error!s:.200}") from error
    folders = [ExportFolder(*of_table, encoding) for encoding in ENCODINGS]
    folder = next((one for one in folders if version is not None and one.metadata(version) == location), None)
    if version is None or folder is None:
        raise damaged(name, f"it belongs to {of_table[2]}, format {int(of_table[1])}, and not in this folder")
    metadata = read_metadata(body, folder, version, None)
    lists: dict[str, Version] = {}
    start = f"{folder.base}/"
    for snapshot in metadata.in_folder:
        lists[str(snapshot["manifest-list"]).removeprefix(start)] = _version_of(snapshot, name)
    logged = () if metadata.log is None else tuple(map(folder.metadata, metadata.log.times))
    return FoundExport(location, folder, metadata, lists, logged)


def _version_of(snapshot: SnapshotJson, name: ObjectKey) -> Version:
    try:
        return Version(int(snapshot["summary"][VERSION]))
    except (KeyError, ValueError, TypeError) as error:
        raise damaged(name, f"a snapshot does not state its version: {error!s:.100}") from error


def _names_in(body: bytes, name: str) -> list[str]:
    try:
        return files_named(body, name=name)
    except Corrupt as error:
        raise damaged(name, f"it is not a manifest: {error!s:.200}") from error


async def check_exports(
    store: ObjectStore, table: TableName, summary: CheckSummary | None = None
) -> AsyncIterator[Finding]:
    """Yield every fault of the needed exports that would break an engine. Sound exports yield nothing.

    Args:
        store: the warehouse.
        table: its name.
        summary: the summary of the table's own check, to be extended.

    Raises:
        Unavailable: the store cannot be reached.
    """
    counted = CheckSummary() if summary is None else summary
    book = FindingBook(counted)
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
            if export is None or not is_of_head(export, header, addressable):
                continue
            counted.exports += 1
            async for names in _with_log(export, reader.names(export, addressable.has)):
                for name in names:
                    named = export.folder.key(name)
                    if not is_absolute(name) and named not in present and await store.get(named) is None:
                        book.add(named, "object-missing", f"export {key} names this object, but it does not exist")
        except Corrupt as error:
            book.add_error(key, error)
        for finding in book.take():
            yield finding
