"""New data files on their way into an intent: named in it one by one, or in leaves that are written first.

Owns: when files are many, and writing their leaves. Does not own: the leaves' columns and order (`file_leaves`), their
bytes (`leaf_codec`), storing (`upload`), the intent.
Invariants: a leaf is in the store before anyone can name it; a leaf belongs to one intent, so each call writes its
own; files in a leaf are what the same files in the intent would be.

Source: format page, "Leaf manifest" and the limits of intents.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa

from rootline.client.session.session import Session
from rootline.client.session.upload import upload_all
from rootline.client.write.listed_dates import oldest_listed
from rootline.maintenance.file_leaves import (
    LEAF_ENTRIES,
    cluster,
    clustered,
    columns_of,
    cut,
    cut_evenly,
    leaf_columns,
    sort_ids,
)
from rootline.maintenance.limits import whole_number
from rootline.schemas.bytes.leaf_codec import EncodedLeaf, LeafContent, decode_leaf, encode_columns, encode_leaf
from rootline.schemas.bytes.leaf_schema import CONTENT_STATS
from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.content_entry import ContentEntry, ContentType, Status, VersionInfo
from rootline.schemas.identifiers import TableName
from rootline.schemas.intent import AddedManifest, DataFile
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.proof.leaf_statistics_rules import statistics_fault
from rootline.tree.proof.statistics_rules import statistics_of

FileList: TypeAlias = Sequence[DataFile] | pa.Table
"""Files one by one, or as columns: those that `rootline.maintenance.file_leaves.leaf_columns` names."""
LEAF_FILES_PROPERTY: Final = "rootline.append.leaf-files"
LEAF_FILES_DEFAULT: Final = 1_000
"""From so many files on a writer writes leaves itself: it is what the root would be flushed at anyway."""
INTENT_BYTES_MAX: Final = 500_000
"""About how many bytes of files an intent names: half of what it may have."""
_FILE_BYTES: Final = 64
_STATISTIC_BYTES: Final = 80


def leaf_files_of(properties: Mapping[str, str]) -> int:
    """From how many files on a writer writes leaves itself."""
    return whole_number(properties, LEAF_FILES_PROPERTY, LEAF_FILES_DEFAULT)


@dataclass(frozen=True, slots=True)
class NewFiles:
    """What an intent carries: `add_data_files` and `add_manifests`, one of them empty."""

    files: tuple[DataFile, ...] = ()
    leaves: tuple[AddedManifest, ...] = ()


@dataclass(frozen=True, slots=True)
class _MadeLeaf:
    encoded: EncodedLeaf
    entries: int
    spec_id: int

    @property
    def manifest(self) -> AddedManifest:
        return AddedManifest(
            location=self.encoded.location,
            content_type=ContentType.DATA_MANIFEST,
            file_size_in_bytes=len(self.encoded.body),
            record_count=self.entries,
            partition_spec_id=self.spec_id,
        )


def are_many(files: FileList, definition: TableDefinition) -> bool:
    """Whether `files` are to go into leaves."""
    least = leaf_files_of(definition.properties)
    if len(files) >= least or isinstance(files, pa.Table):
        return len(files) >= least
    return sum(map(_size_of, files)) > INTENT_BYTES_MAX


async def for_intent(session: Session, table: TableName, definition: TableDefinition, files: FileList) -> NewFiles:
    """`files` as an intent is to carry them; leaves, if they are many, are in the store then.

    Raises:
        Invalid: `rows-invalid`, the columns are not those of files; `statistics-invalid`, `statistics-missing`.
        Unavailable: `store-unavailable`.

    """
    if are_many(files, definition):
        return NewFiles(leaves=await write_leaves(session, table, definition, files))
    if isinstance(files, pa.Table):
        files = await asyncio.to_thread(_one_by_one, files, definition)
    return NewFiles(files=tuple(files))


async def write_leaves(
    session: Session, table: TableName, definition: TableDefinition, files: FileList, spec_id: int | None = None
) -> tuple[AddedManifest, ...]:
    """Leaves of `files`, in the store, for the `add_manifests` of one intent.

    `spec_id`: of files that are given as columns; the table's default spec without it. Raises as `for_intent`.
    """

    def leaf_uuid() -> uuid.UUID:
        return uuid.UUID(hex=session.environment.fresh_id())

    async def store(made: _MadeLeaf) -> AddedManifest:
        await upload_all(session, table, [(made.encoded.location, made.encoded.body)])
        return made.manifest

    async def of_columns(piece: pa.Table, spec: int) -> AddedManifest:
        made = await asyncio.to_thread(encode_columns, piece, leaf_uuid=leaf_uuid(), content=LeafContent.DATA)
        return await store(_MadeLeaf(made, len(piece), spec))

    async def of_entries(piece: Sequence[ContentEntry], spec: int) -> AddedManifest:
        made = await asyncio.to_thread(encode_leaf, piece, definition, leaf_uuid=leaf_uuid(), content=LeafContent.DATA)
        return await store(_MadeLeaf(made, len(piece), spec))

    if not len(files):
        return ()
    if isinstance(files, pa.Table):
        spec = definition.default_spec_id if spec_id is None else spec_id
        columns = await asyncio.to_thread(_clustered_columns, files, definition, spec)
        written = [of_columns(piece, spec) for piece in cut_evenly(columns)]
    else:
        written = []
        for spec, of_spec in _by_spec(files):
            listed = await asyncio.to_thread(_listed, of_spec, definition, spec)
            if isinstance(listed, pa.Table):
                written += [of_columns(piece, spec) for piece in cut_evenly(listed)]
            else:
                written += [of_entries(piece, spec) for piece in cut(listed, LEAF_ENTRIES)]
    leaves = tuple(await asyncio.gather(*written))
    named = files.column("location").to_pylist() if isinstance(files, pa.Table) else [file.location for file in files]
    oldest_ms = await oldest_listed(session, table, named)
    session.uploads.note_leaves(table, [leaf.location for leaf in leaves], oldest_ms)
    return leaves


def _clustered_columns(files: pa.Table, definition: TableDefinition, spec_id: int) -> pa.Table:
    return clustered(leaf_columns(files, definition, spec_id), definition, spec_id)


def _by_spec(files: Sequence[DataFile]) -> list[tuple[int, list[DataFile]]]:
    found: dict[int, list[DataFile]] = defaultdict(list)
    for file in files:
        found[file.partition_spec_id].append(file)
    return sorted(found.items())


def _listed(files: Sequence[DataFile], definition: TableDefinition, spec_id: int) -> pa.Table | list[ContentEntry]:
    """Files of one spec in order: by columns where that works out, else one by one, which says what is wrong."""
    columns = columns_of(files, definition)
    if columns is not None:
        leaf = leaf_columns(columns, definition, spec_id)
        statistics = leaf.column(CONTENT_STATS).chunk(0) if CONTENT_STATS in leaf.column_names else None
        spec_ids = definition.spec_by_id(spec_id).expr_ids
        if statistics_fault(statistics, leaf.column("record_count").chunk(0), definition, spec_ids) is None:
            return clustered(leaf, definition, spec_id)
    codec = EntryCodec.of_definition(definition)
    entries = [entry_of(file, definition, codec) for file in files]
    return cluster(entries, definition, spec_id) if sort_ids(definition, spec_id) else entries


def entry_of(file: DataFile, definition: TableDefinition, codec: EntryCodec) -> ContentEntry:
    """The entry that a file becomes. Raises `Invalid`: `statistics-missing`, `statistics-invalid`, `spec-unknown`."""
    return ContentEntry(
        content_type=ContentType.DATA,
        location=file.location,
        file_format=file.file_format,
        version_info=VersionInfo(Status.ADDED),
        partition_spec_id=file.partition_spec_id,
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
        sort_order_id=file.sort_order_id,
        key_metadata=file.key_metadata,
        split_offsets=file.split_offsets,
        content_stats=statistics_of(file, definition, codec),
    )


def _one_by_one(files: pa.Table, definition: TableDefinition) -> list[DataFile]:
    """A few files given as columns, as an intent names them."""
    if not len(files):
        return []
    codec = EntryCodec.of_definition(definition).statistics
    columns = leaf_columns(files, definition, definition.default_spec_id)
    encoded = encode_columns(columns, leaf_uuid=uuid.UUID(int=0), content=LeafContent.DATA)
    return [
        DataFile(
            location=entry.location,
            file_format=entry.file_format,
            partition_spec_id=entry.partition_spec_id,
            record_count=entry.record_count,
            file_size_in_bytes=entry.file_size_in_bytes or 0,
            content_stats=codec.encode(entry.content_stats),
            stats_schema=codec.fingerprint,
            sort_order_id=entry.sort_order_id,
            split_offsets=entry.split_offsets,
            key_metadata=entry.key_metadata,
        )
        for entry in decode_leaf(encoded.body, location=encoded.location).entries()
    ]


def _size_of(file: DataFile) -> int:
    statistics = len(file.content_stats or b"") + _STATISTIC_BYTES * len(file.statistics)
    return _FILE_BYTES + len(file.location) + statistics
