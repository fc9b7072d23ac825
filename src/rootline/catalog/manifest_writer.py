"""The manifests of one exported version: divided into units, and made and stored if they are missing.

Owns: dividing a root and its leaves into units, the names and entries of units, the reads for missing ones, the number
of concurrent requests. Does not own: the bytes of manifests (`manifest_encoder`, `leaf_chunk_encoder`), converted
deletes (`converted_deletes`).
Invariants: every live data file, vector and position delete file is in exactly one unit, unless a converted delete
replaces it. A data file is DELETED in the version that removed or rewrote it. The unchanged part of a table has the
same units from root to root, which are not opened. No unit contains an equality delete. A leaf is read only for a
missing unit, to convert deletes, or to find rewritten files. Every manifest of the index is stored. The list may be
stored before its last manifests, so it must not be named before `write` returns. Encoding never blocks the event loop.

Theory. There are five kinds of unit: the rows of one block of the root (a compressed group of rows), 4,096 consecutive
ordinals of a leaf without the dead ones, the entries of a leaf that this root removes, converted deletes, and the files
that this root's rewrites replaced. Blocks and leaves never change, so their names, with the dead ordinals, identify the
unit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from typing import Final

import numpy as np
from pyroaring import BitMap

from rootline.catalog.converted_deletes import ConvertedDeletes, files_to_merge
from rootline.catalog.export_keys import FormatVersion, hash_of
from rootline.catalog.export_memory import Index, TableMemory, write
from rootline.catalog.exported_definition import ExportedDefinition
from rootline.catalog.leaf_chunk_encoder import encode_leaf_chunk
from rootline.catalog.manifest_encoder import EncodedManifest, encode_manifest
from rootline.catalog.manifest_list_encoder import ManifestRecord
from rootline.catalog.manifest_schema import same_avro
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.leaf import Leaf, LeafContent
from rootline.schemas.bytes.leaf_columns import inherited_from
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import ContentEntry, ContentType, FileFormat, Status, VersionInfo
from rootline.schemas.identifiers import SnapshotId
from rootline.storage.metadata.object_reader import read_leaf
from rootline.storage.metadata.read_cache import ReadCache
from rootline.storage.metadata.scan_loader import plan_scan
from rootline.storage.metadata.scan_loader import read_root_vectors as read_stored_manifest_vectors
from rootline.storage.stored_objects import plain_task_group
from rootline.tree.check.replaced_files import ReplacedFiles
from rootline.tree.filter.pruning import PruningFilter
from rootline.tree.scan.scan_plan import DeletesFor
from rootline.tree.state.live_index import StoredAt, ordinals_of_vector

CHUNK_ENTRIES: Final = 4_096
_NOTHING: Final = BitMap()


@dataclass(frozen=True, slots=True)
class GivenEntries:
    """Entries in memory: a block's rows, converted deletes, or replaced files."""

    entries: tuple[ContentEntry, ...]


@dataclass(frozen=True, slots=True)
class LeafChunk:
    """The entries from `start` up to `stop` of the leaf that `row` names, without those in `omitted`."""

    row: ContentEntry
    start: int
    stop: int
    omitted: BitMap


@dataclass(frozen=True, slots=True)
class RemovedFromLeaf:
    """The entries at `ordinals` of the leaf that `row` names, removed by snapshot `snapshot_id`."""

    row: ContentEntry
    ordinals: BitMap
    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True)
class Unit:
    """The content of one manifest. `name`: a hash of all its inputs, 32 hex digits."""

    name: str
    spec_id: int
    content: LeafContent
    part: GivenEntries | LeafChunk | RemovedFromLeaf


@dataclass(frozen=True, slots=True)
class Merged:
    """Converted deletes: `entries` replace all deletes of the data files `locations`.

    `leaves`: location → delete leaf, for all delete leaves if there are such data files.
    """

    entries: tuple[ContentEntry, ...] = ()
    locations: frozenset[str] = frozenset()
    leaves: Mapping[str, Leaf] = field(default_factory=dict)


NOTHING_MERGED: Final = Merged()


def units_of(
    root: Root,
    exported: ExportedDefinition,
    stored_vectors: Mapping[StoredAt, BitMap] | None = None,
    merged: Merged = NOTHING_MERGED,
    replaced: Sequence[ContentEntry] = (),
) -> list[Unit]:
    """The units of `root`, in a fixed order.

    Args:
        root: of any version.
        exported: the definition of that version.
        stored_vectors: the manifest vectors in Puffin files. The others are inline.
        merged: the converted deletes. Deletes that they replace are in no other unit.
        replaced: the data files that the root's rewrites replaced, by partition spec and location.

    Raises:
        Corrupt: `vector-corrupt`, a manifest vector cannot be decoded.
    """
    cut = _Cut(root, exported, stored_vectors, merged)
    own = root.header.snapshot.snapshot_id
    removed = [as_removed(entry, own) for entry in replaced]
    return [*cut.units(), *cut.of_entries("replaced", LeafContent.DATA, removed)]


def as_removed(entry: ContentEntry, snapshot_id: SnapshotId) -> ContentEntry:
    """The entry with status DELETED, removed by snapshot `snapshot_id`."""
    info = entry.version_info
    numbers = info.sequence_number, info.file_sequence_number
    return entry.with_version_info(VersionInfo(Status.DELETED, snapshot_id, *numbers))


def is_empty(row: ContentEntry, dead: BitMap) -> bool:
    """Whether the leaf of `row` certainly has no live entry."""
    stats = row.manifest_stats
    return len(dead) + (0 if stats is None else stats.deleted_files_count) >= row.record_count


def entries_of_chunk(chunk: LeafChunk, leaf: Leaf) -> list[int]:
    """The ordinals of the entries in the manifest of `chunk`: live, without equality deletes."""
    rows = leaf.rows.slice(chunk.start, chunk.stop - chunk.start)
    statuses = rows.column("status").to_numpy()
    kinds = rows.column("content_type").to_numpy()
    included = (statuses != Status.DELETED) & (kinds != ContentType.EQUALITY_DELETE)
    deleted = np.asarray(chunk.omitted.to_array(), dtype=np.int64) - chunk.start
    included[deleted] = False
    ordinals: list[int] = (np.flatnonzero(included) + chunk.start).tolist()
    return ordinals


def removed_entries(part: RemovedFromLeaf, leaf: Leaf) -> list[ContentEntry]:
    """The removed entries, as DELETED entries of the snapshot. Entries that the snapshot itself added are omitted."""
    found: list[ContentEntry] = []
    for entry in leaf.entries_at(sorted(part.ordinals)):
        info = entry.version_info
        is_own = info.status is Status.ADDED and info.snapshot_id == part.snapshot_id
        if info.status is Status.DELETED or is_own:
            continue
        removed = as_removed(entry, part.snapshot_id)
        if is_exported(removed):
            found.append(removed)
    return found


def is_exported(entry: ContentEntry) -> bool:
    """Whether an entry of a data file or delete is exported.

    Equality deletes are not. A removed vector is not either, because engines do not need it.
    """
    if entry.content_type is ContentType.DATA:
        return True
    if entry.content_type is not ContentType.POSITION_DELETE:
        return False
    return entry.version_info.status is not Status.DELETED or entry.deletion_vector is None


class _Cut:
    def __init__(
        self,
        root: Root,
        exported: ExportedDefinition,
        stored_vectors: Mapping[StoredAt, BitMap] | None,
        merged: Merged,
    ) -> None:
        self._root = root
        self._exported = exported
        self._merged = merged
        self._inputs: dict[int, bytes] = {}
        self._vectors: dict[str, dict[Status, BitMap]] = {}
        for row in root.rows:
            entry, status = row.entry, row.entry.version_info.status
            if entry.content_type is ContentType.MANIFEST_DV and status is not Status.DELETED:
                of_leaf = self._vectors.setdefault(entry.referenced_file or entry.location, {})
                of_leaf[status] = of_leaf.get(status, _NOTHING) | ordinals_of_vector(entry, stored_vectors)

    def units(self) -> Iterator[Unit]:
        for block in self._root.blocks:
            yield from self._of_block(block.digest, [row.entry for row in block.rows])
        for row in self._root.rows:
            entry = row.entry
            is_leaf = entry.content_type in (ContentType.DATA_MANIFEST, ContentType.DELETE_MANIFEST)
            if is_leaf and entry.version_info.status is not Status.DELETED:
                yield from self._of_leaf(entry)
        merged = self._merged.entries
        in_order = sorted(merged, key=lambda one: (one.partition_spec_id, one.referenced_file or ""))
        yield from self.of_entries("converted", LeafContent.DELETE, in_order)

    def _of_block(self, digest: bytes, entries: Sequence[ContentEntry]) -> Iterator[Unit]:
        groups: dict[tuple[LeafContent, int], list[int]] = {}
        for index, entry in enumerate(entries):
            if is_exported(entry) and not self._is_replaced(entry):
                groups.setdefault((_content_of(entry), entry.partition_spec_id), []).append(index)
        for (content, spec_id), indexes in groups.items():
            name = self._name("block", content, spec_id, (digest, _bytes_of(indexes)))
            yield Unit(name, spec_id, content, GivenEntries(tuple(entries[index] for index in indexes)))

    def _of_leaf(self, row: ContentEntry) -> Iterator[Unit]:
        content = LeafContent.DATA if row.content_type is ContentType.DATA_MANIFEST else LeafContent.DELETE
        vectors = self._vectors.get(row.location, {})
        removed = vectors.get(Status.ADDED, _NOTHING)
        dead = vectors.get(Status.EXISTING, _NOTHING) | removed
        leaf = (row.location, *inherited_from(row))
        if not is_empty(row, dead):
            omitted = dead | self._replaced_in(row, content)
            for start in range(0, row.record_count, CHUNK_ENTRIES):
                stop = min(start + CHUNK_ENTRIES, row.record_count)
                out = omitted & BitMap(range(start, stop)) if omitted else _NOTHING
                if len(out) < stop - start:
                    name = self._name("chunk", content, row.partition_spec_id, (*leaf, start, _bytes_of(out)))
                    yield Unit(name, row.partition_spec_id, content, LeafChunk(row, start, stop, out))
        if removed:
            own = self._root.header.snapshot.snapshot_id
            name = self._name("removed", content, row.partition_spec_id, (*leaf, own, _bytes_of(removed)))
            yield Unit(name, row.partition_spec_id, content, RemovedFromLeaf(row, removed, own))

    def of_entries(self, kind: str, content: LeafContent, entries: Iterable[ContentEntry]) -> Iterator[Unit]:
        """The units of entries that are sorted by partition spec."""
        for spec_id, of_spec in groupby(entries, key=lambda entry: entry.partition_spec_id):
            while part := tuple(islice(of_spec, CHUNK_ENTRIES)):
                name = self._name(kind, content, spec_id, [_all_of(entry) for entry in part])
                yield Unit(name, spec_id, content, GivenEntries(part))

    def _is_replaced(self, entry: ContentEntry) -> bool:
        """Whether a converted delete replaces the vector."""
        return (
            entry.content_type is ContentType.POSITION_DELETE
            and entry.deletion_vector is not None
            and entry.referenced_file in self._merged.locations
        )

    def _replaced_in(self, row: ContentEntry, content: LeafContent) -> BitMap:
        leaf = self._merged.leaves.get(row.location)
        if content is LeafContent.DATA or leaf is None or not self._merged.locations:
            return _NOTHING
        has_vector = leaf.rows.column("deletion_vector").to_pylist()
        targets = leaf.rows.column("referenced_file").to_pylist()
        locations = self._merged.locations
        pairs = enumerate(zip(has_vector, targets, strict=True))
        return BitMap(ordinal for ordinal, (is_vector, target) in pairs if is_vector and target in locations)

    def _name(self, kind: str, content: LeafContent, spec_id: int, inputs: Iterable[bytes | str | int | None]) -> str:
        known = self._inputs.get(spec_id)
        if known is None:
            known = self._inputs[spec_id] = self._exported.manifest_inputs(spec_id)
        return hash_of([kind, str(content), known, *inputs])


def _content_of(entry: ContentEntry) -> LeafContent:
    return LeafContent.DATA if entry.content_type is ContentType.DATA else LeafContent.DELETE


def _bytes_of(ordinals: Iterable[int]) -> bytes:
    """The same bytes for the same set, which a bitmap's own serialization does not guarantee."""
    return np.fromiter(ordinals, np.dtype("<u4")).tobytes()


def _all_of(entry: ContentEntry) -> str:
    info, vector = entry.version_info, entry.deletion_vector
    return repr(
        (
            entry.location,
            entry.referenced_file,
            entry.record_count,
            entry.file_size_in_bytes,
            (int(info.status), info.snapshot_id, info.sequence_number, info.file_sequence_number),
            None if vector is None else (vector.offset, vector.size_in_bytes),
        )
    )


LEAVES_AT_ONCE: Final = 4
PUTS_AT_ONCE: Final = 16

ListStore = Callable[[Sequence[ManifestRecord]], Awaitable[None]]
"""Stores the manifest list with these records."""


@dataclass(frozen=True, slots=True)
class _MadeUnit:
    """A unit that is being made, or was made. `encoded`: its record, `None` if it is empty. `stored`: it is stored."""

    encoded: asyncio.Future[ManifestRecord | None] = field(default_factory=asyncio.Future)
    stored: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class SharedWork:
    """The limits of one export, and the work that its versions have in common.

    `units`: by name. `converting`: locked while equality deletes are converted, because other versions need the same
    conversions.
    """

    leaves: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LEAVES_AT_ONCE))
    puts: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(PUTS_AT_ONCE))
    units: dict[str, _MadeUnit] = field(default_factory=dict)
    converting: asyncio.Lock = field(default_factory=asyncio.Lock)


class ManifestWriter:
    """The manifests of one version in one format. `reads` uses `cache` for metadata."""

    def __init__(
        self,
        reads: ObjectStore,
        cache: ReadCache,
        memory: TableMemory,
        exported: ExportedDefinition,
        shared: SharedWork,
    ) -> None:
        self._reads = reads
        self._cache = cache
        self._memory = memory
        self._folder = memory.folder
        self._definition = exported.definition
        self._exported = exported
        self._converted: ConvertedDeletes | None = None
        self._once = asyncio.Lock()
        self._shared = shared

    async def write(self, root: Root, before: Root | None, index: Index, store_list: ListStore) -> list[str]:
        """Store the missing units of `root` and add them to `index`. Return the names of all units.

        Args:
            root: of any version.
            before: the root before it, if `root` replaced files and that root can be read.
            index: the stored manifests.
            store_list: called once all records are known, beside the last PUTs of manifests. It is called a second time
                if the store has other bytes of a manifest.

        Raises:
            Invalid: `export-unsupported`, `equality-delete-unread`, `file-unreadable`.
            Corrupt: an object is missing or damaged; `export-corrupt`.
            Unavailable: `store-unavailable`.
        """
        vectors = await read_stored_manifest_vectors(self._reads, root)
        merged = await self._merged(root)
        replaced = [] if before is None else await self._replaced(before, root, vectors)
        units = await asyncio.to_thread(units_of, root, self._exported, vectors, merged, replaced)
        missing: dict[str, list[Unit]] = {}
        given: list[Unit] = []
        by_others: list[asyncio.Event] = []
        for unit in units:
            if unit.name in index.manifests:
                continue
            if unit.name in self._shared.units:
                by_others.append(self._shared.units[unit.name].stored)
                continue
            self._shared.units[unit.name] = _MadeUnit()
            if isinstance(unit.part, GivenEntries):
                given.append(unit)
            else:
                missing.setdefault(unit.part.row.location, []).append(unit)
        async with plain_task_group() as group:
            for unit in given:
                group.create_task(self._make(unit, None, index))
            for of_leaf in missing.values():
                group.create_task(self._of_leaf(of_leaf, index))
            listing = group.create_task(self._list_early(units, index, store_list))
        for made in by_others:  # if another version fails, this one is cancelled
            await made.wait()
        records = [record for unit in units if (record := index.manifests[unit.name]) is not None]
        if records != listing.result():
            await store_list(records)
        return [unit.name for unit in units]

    async def _list_early(self, units: Sequence[Unit], index: Index, store_list: ListStore) -> Sequence[ManifestRecord]:
        """Store the list as soon as the records of all units are known. Return the records."""
        records: list[ManifestRecord] = []
        for unit in units:
            is_stored = unit.name in index.manifests
            made = None if is_stored else self._shared.units[unit.name].encoded
            record = index.manifests[unit.name] if made is None else await asyncio.shield(made)
            if record is not None:
                records.append(record)
        await store_list(records)
        return records

    async def _replaced(self, before: Root, root: Root, vectors: Mapping[StoredAt, BitMap]) -> list[ContentEntry]:
        """The data files that rewrites in `root` replaced."""
        earlier = await read_stored_manifest_vectors(self._reads, before)
        work = await asyncio.to_thread(ReplacedFiles, before, root, {**earlier, **vectors})
        wanted = {part.row.location: part.row for part in (*work.parts_before, *work.parts_after)}
        leaves = {location: await self._leaf(row) for location, row in wanted.items()}
        return await asyncio.to_thread(work.entries, lambda row: leaves[row.location].of_row(row))

    async def _merged(self, root: Root) -> Merged:
        """The conversions of deletes that no engine can read unchanged."""
        if not _may_merge(root, self._folder.format_version):
            return NOTHING_MERGED
        everything = PruningFilter.of(None, self._definition)
        plan = await plan_scan(
            self._reads, root, self._definition, everything, cache=self._cache, deletes_for=DeletesFor.EVERY_ROW
        )
        tasks = await asyncio.to_thread(files_to_merge, plan, self._folder.format_version)
        if not tasks:
            return NOTHING_MERGED
        async with self._shared.converting:
            entries = await (await self._conversion()).merged(tasks, root.header.snapshot.snapshot_id)
        rows = [row.entry for row in root.rows if row.entry.content_type is ContentType.DELETE_MANIFEST]
        live = [row for row in rows if row.version_info.status is not Status.DELETED]
        leaves = {row.location: await self._leaf(row) for row in live}
        return Merged(tuple(entries), frozenset(task.location for task in tasks), leaves)

    async def _of_leaf(self, units: Sequence[Unit], index: Index) -> None:
        async with self._shared.leaves:
            first = units[0].part
            assert not isinstance(first, GivenEntries)
            leaf = await self._leaf(first.row)
            async with plain_task_group() as group:
                for unit in units:
                    group.create_task(self._make(unit, leaf, index))

    async def _leaf(self, row: ContentEntry) -> Leaf:
        table = self._folder.table
        known = self._cache.leaf(table, row.location)
        if known is not None:
            return known.of_row(row)
        leaf = await read_leaf(self._reads, table, row, definition=self._definition)
        self._cache.keep_leaf(table, leaf)
        return leaf

    async def _make(self, unit: Unit, leaf: Leaf | None, index: Index) -> None:
        made = self._shared.units[unit.name]
        location = self._folder.manifest(unit.name, self._memory.salt)
        async with self._shared.puts:
            encoded, record = await self._encoded(unit, leaf), None
            if encoded is not None:
                record = replace(encoded.record, path=self._folder.absolute(location), length=len(encoded.body))
            made.encoded.set_result(record)
            if encoded is not None and record is not None:
                included = await write(self._reads, self._folder.key(location), encoded.body, same_avro)
                record = replace(record, length=len(included))
            index.manifests[unit.name] = record
            made.stored.set()

    async def _encoded(self, unit: Unit, leaf: Leaf | None) -> EncodedManifest | None:
        """The manifest, or `None` if it would be empty."""
        part = unit.part
        sync = bytes.fromhex(unit.name)
        if isinstance(part, GivenEntries):
            return await self._of_entries(unit, part.entries, sync)
        assert leaf is not None
        if isinstance(part, RemovedFromLeaf):
            deleted = await asyncio.to_thread(removed_entries, part, leaf)
            return await self._of_entries(unit, deleted, sync)
        ordinals = await asyncio.to_thread(entries_of_chunk, part, leaf)
        if not ordinals:
            return None
        if unit.content is LeafContent.DELETE:  # engines may need a converted copy
            return await self._of_entries(unit, await asyncio.to_thread(leaf.entries_at, ordinals), sync)
        return await asyncio.to_thread(
            encode_leaf_chunk,
            leaf,
            ordinals,
            self._exported,
            unit.spec_id,
            unit.content,
            absolute=self._folder.absolute,
            sync=sync,
        )

    async def _of_entries(self, unit: Unit, entries: Sequence[ContentEntry], sync: bytes) -> EncodedManifest | None:
        if not entries:
            return None
        if unit.content is LeafContent.DELETE:
            entries = await self._readable(entries)
        return await asyncio.to_thread(
            encode_manifest,
            entries,
            self._exported,
            unit.spec_id,
            unit.content,
            absolute=self._folder.absolute,
            sync=sync,
        )

    async def _readable(self, deletes: Sequence[ContentEntry]) -> Sequence[ContentEntry]:
        """The deletes, with vectors converted for engines of the format."""
        if not any(entry.deletion_vector is not None for entry in deletes):
            return deletes
        return await (await self._conversion()).vectors(deletes)

    async def _conversion(self) -> ConvertedDeletes:
        async with self._once:
            if self._converted is None:
                known = await self._memory.known_deletes(self._reads)
                table, absolute = self._folder.table, self._folder.absolute
                self._converted = ConvertedDeletes(
                    self._reads, table, self._definition, self._folder.format_version, absolute, known
                )
        return self._converted


def _may_merge(root: Root, format_version: FormatVersion) -> bool:
    """Whether deletes may have to be converted: equality deletes, or, in V3, vectors beside position delete files.

    Only manifests of older formats name position delete files.
    """
    totals = root.header.totals
    if totals.equality_deletes:
        return True
    rows = (row.entry for row in root.rows if row.entry.content_type is ContentType.DELETE_MANIFEST)
    return (
        format_version is FormatVersion.V3
        and totals.vectors > 0
        and any(entry.file_format is FileFormat.AVRO for entry in rows)
    )
