"""The manifests of a snapshot of Iceberg V1 to V3, and the rows of a root that name them.

Owns: which manifests there are (a list, or V1's own), reading them, statistics and counts that a list lacks. Does not
own: what entries mean (`manifest_codec`), rows of a list (`manifest_list_codec`), the rules (`rootline.tree`).
Invariants: reads only; a manifest in which nothing is live is left out; what a list says of a manifest is in its row,
and what it does not say is taken from the entries. Entries are gone through on threads, as they may be a million: the
loop hosts the coordinator of an embedded log too.

Source: the Iceberg specification, "Manifest Lists" and "Snapshots"; docs/decisions/0038.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pyroaring import BitMap

from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.foreign_avro import read_avro
from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.bytes.manifest_codec import (
    ListedManifest,
    decode_manifest,
    decode_manifest_list,
    uncounted_manifests,
)
from rootline.schemas.bytes.vector_codec import encode_inline
from rootline.schemas.content_entry import (
    ContentEntry,
    ContentType,
    DeletionVector,
    FileFormat,
    ManifestStats,
    Status,
    VersionInfo,
)
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.identifiers import TableName
from rootline.schemas.root_header import Snapshot
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.object_reader import read_leaves
from rootline.storage.stored_objects import read_stored
from rootline.tree.state.aggregates import LeafAggregates, aggregates_of

_READS_AT_ONCE: Final = 8
_NOTHING: Final = ManifestStats(0, 0, 0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class AdoptedManifests:
    """Rows of a root in the list's order, their leaves, and the next free row id after them."""

    rows: tuple[ContentEntry, ...] = ()
    leaves: Mapping[str, Leaf] = field(default_factory=dict)
    next_row_id: int = 0

    def manifest_vector(self, location: str, ordinals: BitMap, snapshot: Snapshot) -> ContentEntry:
        """The row of a manifest vector: these entries of a manifest were dead when it was adopted."""
        [leaf] = [row for row in self.rows if row.location == location]
        number = snapshot.sequence_number
        return ContentEntry(
            content_type=ContentType.MANIFEST_DV,
            location=location,
            file_format=FileFormat.PUFFIN,
            version_info=VersionInfo(Status.EXISTING, snapshot.snapshot_id, number, number),
            partition_spec_id=leaf.partition_spec_id,
            record_count=len(ordinals),
            deletion_vector=DeletionVector(inline_content=encode_inline(ordinals)),
            referenced_file=location,
        )


async def read_manifests(
    store: ObjectStore,
    table: TableName,
    definition: TableDefinition,
    snapshot: Mapping[str, Any] | None,
    next_row_id: int,
) -> AdoptedManifests:
    """The manifests of a snapshot of a table's metadata; none where there is no snapshot.

    Raises:
        Invalid: `adoption-unsupported`, `spec-unknown`, `file-unreadable`.
        Corrupt: `object-missing`, `leaf-corrupt`.

    """
    if snapshot is None:
        return AdoptedManifests(next_row_id=next_row_id)
    listed = snapshot.get("manifest-list")
    if listed is None:
        paths = snapshot.get("manifests") or ()
        rows, next_row_id = await _unlisted_rows(store, table, definition, paths, snapshot["snapshot-id"], next_row_id)
    else:
        body = await read_stored(store, table, listed, code="leaf-corrupt")
        reader = _Counting(store, table, definition)
        counted = await reader.counted(uncounted_manifests(body, name=listed))
        found = decode_manifest_list(body, definition, name=listed, next_row_id=next_row_id, counted=counted)
        rows, next_row_id = found.rows, found.next_row_id
    live = [row for row in rows if _has_live(row)]
    encrypted = [row.location for row in live if row.key_metadata is not None]
    if encrypted:
        raise Invalid(
            "adoption-unsupported",
            f"{encrypted[0]}: the manifest is encrypted, and this version does not read encrypted files",
        )
    leaves = await read_leaves(store, table, live, definition=definition)
    return AdoptedManifests(await asyncio.to_thread(_all_completed, live, leaves, definition), leaves, next_row_id)


def _has_live(row: ContentEntry) -> bool:
    stats = row.manifest_stats
    return stats is None or stats.added_files_count + stats.existing_files_count > 0


def _all_completed(
    rows: Iterable[ContentEntry], leaves: Mapping[str, Leaf], definition: TableDefinition
) -> tuple[ContentEntry, ...]:
    return tuple([_completed(row, leaves[row.location], definition) for row in rows])


def _completed(row: ContentEntry, leaf: Leaf, definition: TableDefinition) -> ContentEntry:
    """The row with statistics of all columns. Whether a partition has nulls and NaNs comes from the list."""
    found = dict(_aggregates(leaf, row, definition).content_stats)
    for member, said in row.content_stats.items():
        if member in found:
            one = found[member]
            nulls = said.null_value_count if one.null_value_count is None else one.null_value_count
            nans = said.nan_value_count if one.nan_value_count is None else one.nan_value_count
            found[member] = replace(one, null_value_count=nulls, nan_value_count=nans)
    return replace(row, content_stats=found)


def _aggregates(leaf: Leaf, row: ContentEntry, definition: TableDefinition) -> LeafAggregates:
    return aggregates_of(leaf, definition.spec_by_id(row.partition_spec_id).expr_ids)


@dataclass(frozen=True, slots=True)
class _Counting:
    store: ObjectStore
    table: TableName
    definition: TableDefinition

    async def counted(self, manifests: Iterable[ListedManifest]) -> dict[str, ManifestStats]:
        """Manifest → the counts of its entries, for lists of V1 that lack them."""
        slots = asyncio.Semaphore(_READS_AT_ONCE)

        async def one(listed: ListedManifest) -> tuple[str, ManifestStats]:
            async with slots:
                body = await read_stored(
                    self.store, self.table, listed.location, code="leaf-corrupt", length=listed.length
                )
                row = _row(listed.location, len(body), listed.partition_spec_id, listed.added_snapshot_id)
                return listed.location, await asyncio.to_thread(self._stats, body, row)

        return dict(await asyncio.gather(*map(one, manifests)))

    def _stats(self, body: bytes, row: ContentEntry) -> ManifestStats:
        leaf = decode_manifest(body, self.definition, row, name=row.location)
        return _aggregates(leaf, row, self.definition).manifest_stats


async def _unlisted_rows(
    store: ObjectStore,
    table: TableName,
    definition: TableDefinition,
    paths: Iterable[str],
    snapshot_id: int,
    next_row_id: int,
) -> tuple[tuple[ContentEntry, ...], int]:
    """Rows of manifests that a snapshot of V1 names itself, without a list; and the next free row id."""
    rows: list[ContentEntry] = []
    for path in paths:
        body = await read_stored(store, table, path, code="leaf-corrupt")
        row = await asyncio.to_thread(_unlisted_row, body, path, definition, snapshot_id)
        rows.append(replace(row, first_row_id=next_row_id))
        stats = row.manifest_stats or _NOTHING
        next_row_id += stats.added_rows_count + stats.existing_rows_count
    return tuple(rows), next_row_id


def _unlisted_row(body: bytes, path: str, definition: TableDefinition, snapshot_id: int) -> ContentEntry:
    first_spec = str(definition.partition_specs[0].spec_id)
    stated = read_avro(body, name=path).metadata.get("partition-spec-id", first_spec)
    if not stated.isdigit():
        raise Corrupt("leaf-corrupt", f"{path}: partition-spec-id is {stated:.20}")
    row = _row(path, len(body), int(stated), snapshot_id)
    leaf = decode_manifest(body, definition, row, name=path)
    return replace(row, record_count=leaf.length, manifest_stats=_aggregates(leaf, row, definition).manifest_stats)


def _row(location: str, length: int, spec_id: int, snapshot_id: int) -> ContentEntry:
    return ContentEntry(
        content_type=ContentType.DATA_MANIFEST,
        location=location,
        file_format=FileFormat.AVRO,
        version_info=VersionInfo(Status.EXISTING, snapshot_id, 0, 0),
        partition_spec_id=spec_id,
        record_count=0,
        file_size_in_bytes=length,
        manifest_stats=_NOTHING,
    )


__all__ = ["AdoptedManifests", "read_manifests"]
