"""What an Iceberg table of V1 to V3 would be as a table of ours, found without writing anything.

Owns: reading metadata, manifest list and manifests; the rows of the first root; counts and warnings. Does not
own: the definition (`adopted_definition`), rows of a list and entries of a manifest (`rootline.schemas`), the rules
that the coordinator checks (`rootline.tree.proof.adoption`), publishing (`rootline.client`).
Invariants: reads only; what the coordinator would refuse is refused here, with the same code; a table that is read
twice gives the same root.

Source: the Iceberg specification, "Table Metadata", "Snapshots" and "Manifest Lists"; docs/decisions/0038.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pyroaring import BitMap

from rootline.catalog.adopt.adopted_definition import adopted_definition, unsupported
from rootline.catalog.adopt.adopted_manifests import AdoptedManifests, read_manifests
from rootline.ports.object_store import ObjectStore
from rootline.schemas.content_entry import ContentType, FileFormat
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.identifiers import SequenceNumber, SnapshotId, TableName
from rootline.schemas.intent import AdoptedRoot
from rootline.schemas.root_header import Operation, Snapshot, Totals
from rootline.schemas.table_definition import TableDefinition
from rootline.storage.stored_objects import read_stored
from rootline.tree.proof.adopted_leaf_rules import absent_among, live_deletes, live_files
from rootline.tree.proof.adoption import NO_SNAPSHOT, adopted_location, adopted_state, encode_adopted, proven_adopted
from rootline.tree.state.leaf_tally import tally_of_leaf
from rootline.tree.state.totals import Tally, totals_after

METADATA_BYTES_MAX: Final = 256 * 1024 * 1024
_GZIP: Final = b"\x1f\x8b"
_MAIN: Final = "main"


@dataclass(frozen=True, slots=True)
class DeleteCounts:
    """Live deletes by kind. `orphan_vectors`: their data files are gone, so they have no effect."""

    vectors: int = 0
    position_delete_files: int = 0
    equality_delete_files: int = 0
    orphan_vectors: int = 0


@dataclass(frozen=True, slots=True)
class AdoptionPlan:
    """What `location` would be as `table`. `snapshot_id`: the current snapshot there; `None`: the table is empty."""

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
    """The first root, to be stored as `named` says."""


async def plan_adoption(store: ObjectStore, table: TableName, location: str) -> AdoptionPlan:
    """Read the Iceberg table whose metadata is stored at `location`, which is absolute, and plan its adoption.

    Raises:
        Invalid: `adoption-unsupported`, `metadata-unreadable`, `adoption-invalid`, `file-unreadable`.
        Corrupt: `object-missing`, `leaf-corrupt`: an object that the metadata names.

    """
    metadata = await read_metadata(store, table, location)
    adopted = adopted_definition(metadata, location, table)
    try:
        snapshot = _current(metadata)
        warnings = [*adopted.warnings, *_left_behind(metadata)]
    except (KeyError, TypeError, AttributeError) as error:
        raise Invalid("metadata-unreadable", f"{location}: this is not table metadata: {error!r:.200}") from error
    definition = adopted.definition
    manifests = await read_manifests(store, table, definition, snapshot, _count(metadata, "next-row-id"))
    return await asyncio.to_thread(_plan, table, location, metadata, definition, snapshot, manifests, warnings)


async def read_metadata(store: ObjectStore, table: TableName, location: str) -> Mapping[str, Any]:
    """The table metadata JSON at `location`, which may be compressed. Raises `Invalid`: `metadata-unreadable`."""
    try:
        body = await read_stored(store, table, location, code="metadata-unreadable")
    except Corrupt as error:
        raise Invalid(
            "metadata-unreadable",
            f"{location}: there is no such object; give the location of the table's current metadata.json",
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


def _left_behind(metadata: Mapping[str, Any]) -> list[str]:
    """What the adoption leaves out of the metadata, in sentences."""
    found = [
        f"{ref['type']} {name!r} is left out: only {_MAIN} is adopted"
        for name, ref in sorted((metadata.get("refs") or {}).items())
        if name != _MAIN
    ]
    if metadata.get("statistics") or metadata.get("partition-statistics"):
        found.append("statistics files (Puffin, partition statistics) are left out")
    return found


def _count(metadata: Mapping[str, Any], key: str) -> int:
    value = metadata.get(key) or 0
    if not isinstance(value, int) or value < 0:
        raise Invalid("metadata-unreadable", f"{key} is {value!r:.40}, not a number")
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
        reason = "belong to data files that are gone; they are ignored"
        warnings.append(f"{deletes.orphan_vectors} deletion vectors {reason}")
    rows = [*manifests.rows, *(manifests.manifest_vector(name, gone, snapshot) for name, gone in sorted(dead.items()))]
    tally = Tally()
    for row in manifests.rows:
        tally.count(row)
        tally.take(tally_of_leaf(leaves[row.location], dead.get(row.location)))
    totals = totals_after(Totals(), tally, Tally())
    root, body = encode_adopted(table, definition, snapshot, rows, manifests.next_row_id, totals)
    named = AdoptedRoot(location=adopted_location(root.digest), file_size_in_bytes=len(body), digest=root.digest)
    try:  # what the commit will do
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
    """The current snapshot as a snapshot of ours; its parent and its operation are in the old metadata."""
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
    """Leaf → ordinals of vectors whose data files are gone, which engines ignore; and the counts of the others."""
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


__all__ = ["AdoptionPlan", "DeleteCounts", "plan_adoption", "read_metadata"]
