"""The plan of an adoption: an Iceberg table of V1 to V3 as a table of this lake, read without writing.

Owns: reading metadata, manifest list and manifests, the rows of the first root, statistics and counts that a list
lacks, warnings, and the snapshots from before the adoption that an export names. Does not own: the definition
(`adopted_definition`), rows of a list and entries of a manifest (`manifest_codec`), the coordinator's rules
(`rootline.tree.proof.adoption`), publishing (`rootline.client`).
Invariants: reads only. A table that the coordinator would refuse is refused here, with the same code. Reading a table
twice produces the same root. A manifest without live entries is skipped. The counts of a manifest list are kept
in the rows of the root, and missing ones are counted from the entries. A snapshot from before the adoption is kept
unchanged or omitted. If the old metadata was deleted, the history is missing, never the table. Entries are processed on
threads, because there may be a million, and the event loop may also run the coordinator of an embedded log.

Source: the Iceberg specification, "Table Metadata", "Snapshots" and "Manifest Lists", docs/decisions/0038.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pyroaring import BitMap

from rootline.catalog.adopted_definition import ADOPTED_FROM, adopted_definition, unsupported
from rootline.catalog.export_keys import FormatVersion
from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.foreign_avro import MANIFEST_LIMITS, read_avro
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
from rootline.schemas.identifiers import SequenceNumber, SnapshotId, TableName
from rootline.schemas.intent import AdoptedRoot
from rootline.schemas.root_header import Operation, Snapshot, Totals
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.metadata.object_reader import read_leaves
from rootline.storage.stored_objects import read_stored
from rootline.tree.proof.adoption import (
    NO_SNAPSHOT,
    absent_among,
    adopted_location,
    adopted_state,
    encode_adopted,
    excess_of_leaves,
    live_deletes,
    live_files,
    proven_adopted,
)
from rootline.tree.state.aggregates import LeafAggregates, aggregates_of, tally_of_leaf
from rootline.tree.state.totals import Tally, totals_after

__all__ = [
    "NO_HISTORY",
    "AdoptedHistory",
    "AdoptedManifests",
    "AdoptionPlan",
    "DeleteCounts",
    "history_of",
    "plan_adoption",
    "read_history",
    "read_manifests",
    "read_metadata",
]

_READS_AT_ONCE: Final = 8
_NOTHING: Final = ManifestStats(0, 0, 0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class AdoptedManifests:
    """The manifests of a snapshot, as rows of a root, in the order of the manifest list.

    `leaves`: location → the decoded entries of a manifest. `next_row_id`: the next free row id after them.
    """

    rows: tuple[ContentEntry, ...] = ()
    leaves: Mapping[str, Leaf] = field(default_factory=dict)
    next_row_id: int = 0

    def manifest_vector(self, location: str, ordinals: BitMap, snapshot: Snapshot) -> ContentEntry:
        """The row of a manifest vector for entries of a manifest that were dead when it was adopted."""
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
    """The manifests of a snapshot of a table's metadata, empty without a snapshot.

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
        body = await _read_manifest(store, table, listed)
        reader = _Counting(store, table, definition)
        counted = await reader.counted(await asyncio.to_thread(uncounted_manifests, body, name=listed))
        found = await asyncio.to_thread(
            decode_manifest_list, body, definition, name=listed, next_row_id=next_row_id, counted=counted
        )
        rows, next_row_id = found.rows, found.next_row_id
    live = [row for row in rows if _has_live(row)]
    encrypted = [row.location for row in live if row.key_metadata is not None]
    if encrypted:
        raise Invalid(
            "adoption-unsupported",
            f"{encrypted[0]}: the manifest is encrypted, and this version does not read encrypted files",
        )
    too_much = excess_of_leaves(live)
    if too_much is not None:
        raise Invalid("adoption-unsupported", f"{listed or table}: {too_much}")
    leaves = await read_leaves(store, table, live, definition=definition)
    return AdoptedManifests(await asyncio.to_thread(_all_completed, live, leaves, definition), leaves, next_row_id)


async def _read_manifest(store: ObjectStore, table: TableName, location: str, length: int | None = None) -> bytes:
    """The bytes of a manifest or a manifest list."""
    most = MANIFEST_LIMITS.object_bytes
    return await read_stored(store, table, location, code="leaf-corrupt", length=length, bytes_max=most)


def _has_live(row: ContentEntry) -> bool:
    stats = row.manifest_stats
    return stats is None or stats.added_files_count + stats.existing_files_count > 0


def _all_completed(
    rows: Iterable[ContentEntry], leaves: Mapping[str, Leaf], definition: TableDefinition
) -> tuple[ContentEntry, ...]:
    return tuple([_completed(row, leaves[row.location], definition) for row in rows])


def _completed(row: ContentEntry, leaf: Leaf, definition: TableDefinition) -> ContentEntry:
    """The row with statistics of all columns. The list states whether a partition contains nulls and NaNs."""
    found = dict(_aggregates(leaf, row, definition).content_stats)
    for member, stated in row.content_stats.items():
        if member in found:
            one = found[member]
            nulls = stated.null_value_count if one.null_value_count is None else one.null_value_count
            nans = stated.nan_value_count if one.nan_value_count is None else one.nan_value_count
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
                body = await _read_manifest(self.store, self.table, listed.location, listed.length)
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
    """Rows of manifests that a snapshot of V1 names directly, without a list, and the next free row id."""
    rows: list[ContentEntry] = []
    for path in paths:
        body = await _read_manifest(store, table, path)
        row = await asyncio.to_thread(_unlisted_row, body, path, definition, snapshot_id)
        rows.append(replace(row, first_row_id=next_row_id))
        stats = row.manifest_stats or _NOTHING
        next_row_id += stats.added_rows_count + stats.existing_rows_count
    return tuple(rows), next_row_id


def _unlisted_row(body: bytes, path: str, definition: TableDefinition, snapshot_id: int) -> ContentEntry:
    first_spec = str(definition.partition_specs[0].spec_id)
    stated = read_avro(body, name=path).metadata.get("partition-spec-id", first_spec)
    if not stated.isdigit():
        raise Corrupt("leaf-corrupt", f"{path}: the manifest names partition spec {stated!r:.20}, not a number")
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


METADATA_BYTES_MAX: Final = 256 * 1024 * 1024
_GZIP: Final = b"\x1f\x8b"
_MAIN: Final = "main"


@dataclass(frozen=True, slots=True)
class DeleteCounts:
    """Live deletes by kind. `orphan_vectors` have no effect, because their data files were removed."""

    vectors: int = 0
    position_delete_files: int = 0
    equality_delete_files: int = 0
    orphan_vectors: int = 0


@dataclass(frozen=True, slots=True)
class AdoptionPlan:
    """The plan to adopt `location` as `table`. `snapshot_id`: the current snapshot, or `None` for an empty table."""

    table: TableName
    location: str
    format_version: int
    definition: TableDefinition
    snapshot_id: int | None
    sequence_number: int
    next_row_id: int
    snapshots_before: int
    totals: Totals
    deletes: DeleteCounts
    manifest_bytes: int
    warnings: tuple[str, ...]
    named: AdoptedRoot
    body: bytes = field(repr=False)
    """The first root's bytes, to be stored at the location in `named`."""


async def plan_adoption(store: ObjectStore, table: TableName, location: str) -> AdoptionPlan:
    """Read the Iceberg table whose metadata is at the absolute `location`, and plan its adoption.

    Raises:
        Invalid: `adoption-unsupported`, `metadata-unreadable`, `adoption-invalid`, `file-unreadable`.
        Corrupt: `object-missing`, `leaf-corrupt`: an object that the metadata names is missing or damaged.
    """
    metadata = await read_metadata(store, table, location)
    adopted = adopted_definition(metadata, location, table)
    try:
        snapshot = _current(metadata)
        warnings = [*adopted.warnings, *_omissions(metadata)]
    except (KeyError, TypeError, AttributeError) as error:
        raise Invalid("metadata-unreadable", f"{location}: this is not table metadata: {error!r:.200}") from error
    definition = adopted.definition
    manifests = await read_manifests(store, table, definition, snapshot, _count(metadata, "next-row-id"))
    return await asyncio.to_thread(_plan, table, location, metadata, definition, snapshot, manifests, warnings)


async def read_metadata(store: ObjectStore, table: TableName, location: str) -> Mapping[str, Any]:
    """The table metadata JSON at `location`, which may be compressed. Raises `Invalid`: `metadata-unreadable`."""
    try:
        body = await read_stored(store, table, location, code="metadata-unreadable", bytes_max=METADATA_BYTES_MAX)
    except Corrupt as error:
        if error.code == "metadata-unreadable":
            raise Invalid(error.code, error.message) from error
        raise Invalid(
            "metadata-unreadable",
            f"{location}: this object does not exist; give the location of the table's current metadata.json",
        ) from error
    try:
        metadata = json.loads(_unzipped(body) if body[:2] == _GZIP else body)
    except (ValueError, RecursionError, zlib.error) as error:
        raise Invalid("metadata-unreadable", f"{location}: this is not JSON: {error!s:.200}") from error
    if not isinstance(metadata, dict) or "format-version" not in metadata:
        reason = "this is not table metadata: give the metadata.json that the table's catalog names as current"
        raise Invalid("metadata-unreadable", f"{location}: {reason}")
    return metadata


def _unzipped(body: bytes) -> bytes:
    reading = zlib.decompressobj(wbits=31)
    found = reading.decompress(body, METADATA_BYTES_MAX)
    if reading.unconsumed_tail:
        raise ValueError(f"it has more than {METADATA_BYTES_MAX} bytes")
    return found


def _current(metadata: Mapping[str, Any]) -> Mapping[str, Any] | None:
    wanted = metadata.get("current-snapshot-id")
    main = (metadata.get("refs") or {}).get(_MAIN)
    if main is not None:
        wanted = main["snapshot-id"]
    if wanted is None or wanted == -1:
        return None
    for snapshot in metadata.get("snapshots") or ():
        if snapshot["snapshot-id"] == wanted:
            return dict(snapshot)
    raise KeyError(f"snapshot {wanted}")


def _omissions(metadata: Mapping[str, Any]) -> list[str]:
    """Sentences about the parts of the metadata that the adoption omits."""
    found = [
        f"{ref['type']} {name!r} is omitted: only {_MAIN} is adopted"
        for name, ref in sorted((metadata.get("refs") or {}).items())
        if name != _MAIN
    ]
    if metadata.get("statistics") or metadata.get("partition-statistics"):
        found.append("statistics files (Puffin, partition statistics) are omitted")
    return found


def _count(metadata: Mapping[str, Any], key: str) -> int:
    value = metadata.get(key) or 0
    if not isinstance(value, int) or value < 0:
        raise Invalid(
            "metadata-unreadable",
            f"{key} in the table's metadata is {value!r:.40}, not a whole number: give the metadata.json that the "
            "table's catalog names as current",
        )
    return value


def _plan(
    table: TableName,
    location: str,
    metadata: Mapping[str, Any],
    definition: TableDefinition,
    current: Mapping[str, Any] | None,
    manifests: AdoptedManifests,
    warnings: list[str],
) -> AdoptionPlan:
    number = _count(metadata, "last-sequence-number")
    snapshot = _snapshot(metadata, current, number)
    leaves = manifests.leaves
    dead, deletes = _without_effect(manifests)
    if deletes.orphan_vectors:
        reason = "belong to data files that were removed; they are ignored"
        warnings.append(f"{deletes.orphan_vectors} deletion vectors {reason}")
    rows = [
        *manifests.rows,
        *(manifests.manifest_vector(name, ordinals, snapshot) for name, ordinals in sorted(dead.items())),
    ]
    tally = Tally()
    for row in manifests.rows:
        tally.count(row)
        tally.take(tally_of_leaf(leaves[row.location], dead.get(row.location)))
    totals = totals_after(Totals(), tally, Tally())
    root, body = encode_adopted(table, definition, snapshot, rows, manifests.next_row_id, totals)
    named = AdoptedRoot(location=adopted_location(root.digest), file_size_in_bytes=len(body), digest=root.digest)
    try:  # the same checks as the commit's
        adopted_state(proven_adopted(body, named, table, definition), definition, leaves)
    except Invalid as error:
        raise unsupported(location, error.message) from error
    return AdoptionPlan(
        table=table,
        location=location,
        format_version=metadata["format-version"],
        definition=definition,
        snapshot_id=None if current is None else snapshot.snapshot_id,
        sequence_number=number,
        next_row_id=manifests.next_row_id,
        snapshots_before=len(metadata.get("snapshots") or ()),
        totals=totals,
        deletes=deletes,
        manifest_bytes=sum(row.file_size_in_bytes or 0 for row in manifests.rows),
        warnings=tuple(warnings),
        named=named,
        body=body,
    )


def _snapshot(metadata: Mapping[str, Any], current: Mapping[str, Any] | None, number: int) -> Snapshot:
    """The current snapshot as a Rootline snapshot. Its parent and operation exist only in the old metadata."""
    return Snapshot(
        snapshot_id=NO_SNAPSHOT if current is None else SnapshotId(current["snapshot-id"]),
        parent_id=None,
        sequence_number=SequenceNumber(number),
        timestamp_ms=_count(
            metadata if current is None else current, "last-updated-ms" if current is None else "timestamp-ms"
        ),
        operation=Operation.REPLACE,
        summary={},
    )


def _without_effect(manifests: AdoptedManifests) -> tuple[dict[str, BitMap], DeleteCounts]:
    """Manifest → the ordinals of its vectors without effect, and the counts of all deletes.

    A vector has no effect if its data file was removed. Engines ignore it.
    """
    leaves = manifests.leaves
    found = list(live_deletes(leaves.values(), {}))
    vectors = [entry.referenced_file or "" for _, _, entry in found if entry.deletion_vector is not None]
    absent = absent_among(vectors, live_files(leaves.values(), {}))
    dead: dict[str, BitMap] = {}
    counts = DeleteCounts()
    for leaf, ordinal, entry in found:
        if entry.content_type is ContentType.EQUALITY_DELETE:
            counts = replace(counts, equality_delete_files=counts.equality_delete_files + 1)
        elif entry.file_format is not FileFormat.PUFFIN:
            counts = replace(counts, position_delete_files=counts.position_delete_files + 1)
        elif (entry.referenced_file or "") in absent:
            dead.setdefault(leaf.location, BitMap()).add(ordinal)
            counts = replace(counts, orphan_vectors=counts.orphan_vectors + 1)
        else:
            counts = replace(counts, vectors=counts.vectors + 1)
    return dead, counts


SnapshotJson = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AdoptedHistory:
    """Snapshots and their log, the oldest first. `next_row_id`: the next free row id at adoption, 0 before V3."""

    snapshots: tuple[SnapshotJson, ...] = ()
    log: tuple[Mapping[str, int], ...] = ()
    next_row_id: int = 0


NO_HISTORY: Final = AdoptedHistory()


async def read_history(
    store: ObjectStore, table: TableName, definition: TableDefinition, format_version: FormatVersion
) -> AdoptedHistory:
    """The history of a table before it was adopted, empty for a table that was not adopted.

    Raises:
        Invalid: `file-unreadable`, this store does not read absolute locations.
        Unavailable: `store-unavailable`.
    """
    location = definition.properties.get(ADOPTED_FROM)
    if location is None:
        return NO_HISTORY
    try:
        return history_of(await read_metadata(store, table, location), format_version)
    except Invalid as error:
        if error.code != "metadata-unreadable":
            raise
        return NO_HISTORY  # engines delete old metadata files, and the table does not depend on them


def history_of(metadata: Mapping[str, Any], format_version: FormatVersion) -> AdoptedHistory:
    """The part of the history in another engine's table metadata that an export of `format_version` can repeat.

    It omits snapshots of a newer format, and snapshots of V1 without a manifest list.
    """
    try:
        next_row_id = int(metadata.get("next-row-id") or 0)
        if int(metadata["format-version"]) > format_version:
            return AdoptedHistory(next_row_id=next_row_id)
        found = [snapshot for snapshot in metadata.get("snapshots") or () if snapshot.get("manifest-list")]
        found.sort(key=lambda snapshot: (snapshot.get("sequence-number", 0), snapshot["timestamp-ms"]))
        ids = {snapshot["snapshot-id"] for snapshot in found}
        log = [entry for entry in metadata.get("snapshot-log") or () if entry["snapshot-id"] in ids]
        return AdoptedHistory(tuple(found), tuple(log), next_row_id)
    except (KeyError, TypeError, ValueError, AttributeError):
        return NO_HISTORY
