"""Adoption: the first metadata of a table that continues a table of Iceberg V1 to V3.

Owns: the adopted root, which the client makes and the coordinator checks, its rules, and the rules for the Iceberg
manifests that are its leaves, for each alone and across all of them.
Does not own: reading the Iceberg table (`rootline.catalog`) and its manifests (`manifest_codec`), the shape of every
leaf (`leaf_columns`), leaves that Rootline wrote, making the first root of the new table (`apply`).
Invariants:
* Adopted metadata obeys every rule of later roots, or the adoption is refused with the rule that it breaks. The first
  fault is reported with its leaf and entry.
* Counts that the client states are recomputed. The blocks of the root are re-encoded.
* Stated bounds of a leaf's row contain those of every live entry. Absent bounds are not a fault, because a manifest
  list has bounds for partitions only.

Source: docs/decisions/0038, format page, "Aggregates" and invariants page, numbers 10, 11, 20, 21.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from rootline.schemas.bytes.leaf import Leaf, LeafContent
from rootline.schemas.bytes.root.entry_codec import EntryCodec
from rootline.schemas.bytes.root.root_codec import Root, Row, decode_root, encode_root, seal, sync_marker
from rootline.schemas.content_entry import LEAF_TYPES, ContentEntry, ContentType, FileFormat, Status
from rootline.schemas.entry_rules import ManifestKind, entry_violations
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.identifiers import CommitId, SnapshotId, TableName, Version
from rootline.schemas.intent import AdoptedRoot
from rootline.schemas.intent_rules import check_location
from rootline.schemas.object_keys import is_absolute
from rootline.schemas.parts.definition import DefinitionReference
from rootline.schemas.parts.row_ids import RowIds
from rootline.schemas.root_header import RootHeader, Snapshot, Totals
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.state.aggregates import LeafAggregates, aggregates_of, tally_of_leaf
from rootline.tree.state.leaf_lookup import live_mask
from rootline.tree.state.live_index import ordinals_of_vector
from rootline.tree.state.table_state import TableState
from rootline.tree.state.totals import Tally, totals_after

__all__ = [
    "ADOPTED_PREFIX",
    "ADOPTED_SNAPSHOT",
    "ENTRIES_MAX",
    "LEAVES_BYTES_MAX",
    "LEAVES_MAX",
    "NO_SNAPSHOT",
    "ROOT_BYTES_MAX",
    "absent_among",
    "adopted_location",
    "adopted_state",
    "check_adopted_location",
    "check_named",
    "encode_adopted",
    "excess_of_leaves",
    "fault_across",
    "fault_of_leaf",
    "faults_of_first",
    "invalid",
    "is_adopted_location",
    "leaves_of",
    "live_deletes",
    "live_files",
    "proven_adopted",
    "totals_of_leaves",
]


def is_adopted(row: ContentEntry) -> bool:
    """Whether a leaf's root row names an Avro manifest of Iceberg V1 to V3."""
    return row.file_format is FileFormat.AVRO


def has_older_deletes(leaf_rows: Iterable[ContentEntry]) -> bool:
    """Whether a leaf of these rows may contain position delete files, which must be read to count deleted rows."""
    return any(row.content_type is ContentType.DELETE_MANIFEST and is_adopted(row) for row in leaf_rows)


def faults_of_adopted(row: ContentEntry, recomputed: LeafAggregates) -> Iterator[str]:
    """The rules that a leaf's root row breaks, as ends of error messages. `recomputed` are the values from the leaf
    itself.
    """
    stated, found = row.manifest_stats, recomputed.manifest_stats
    if stated is not None and replace(stated, min_sequence_number=0) != replace(found, min_sequence_number=0):
        yield f"its row says {stated}, its entries add up to {found}"
    if stated is not None and stated.min_sequence_number > found.min_sequence_number and found.existing_files_count:
        yield f"its least sequence number is {found.min_sequence_number}, but its row has {stated.min_sequence_number}"
    for tracked_id, outer in row.content_stats.items():
        inner = recomputed.content_stats.get(tracked_id)
        if inner is None:
            continue
        low, high = inner.lower_bound, inner.upper_bound
        if outer.lower_bound is not None and low is not None and low < outer.lower_bound:  # type: ignore[operator]
            yield f"its row has lower bound {outer.lower_bound!r} for id {tracked_id}, but an entry has {low!r}"
        if outer.upper_bound is not None and high is not None and high > outer.upper_bound:  # type: ignore[operator]
            yield f"its row has upper bound {outer.upper_bound!r} for id {tracked_id}, but an entry has {high!r}"


_CONTENT: Final = {ContentType.DATA_MANIFEST: LeafContent.DATA, ContentType.DELETE_MANIFEST: LeafContent.DELETE}


def fault_of_leaf(row: ContentEntry, leaf: Leaf, header: RootHeader, definition: TableDefinition) -> str | None:
    """The first rule that a leaf breaks, given the root row that names it, or `None`."""
    fault = next(_faults(row, leaf, header, definition), None)
    return None if fault is None else f"manifest {row.location}: {fault}"


def _faults(row: ContentEntry, leaf: Leaf, header: RootHeader, definition: TableDefinition) -> Iterator[str]:
    if leaf.length != row.record_count or leaf.size_in_bytes != row.file_size_in_bytes:
        yield (
            f"it has {leaf.length} entries in {leaf.size_in_bytes} bytes, but its row states {row.record_count} in "
            f"{row.file_size_in_bytes}"
        )
    if leaf.content is not _CONTENT[row.content_type]:
        yield f"it lists {leaf.content} files, but its row states {_CONTENT[row.content_type]}"
    members = definition.spec_by_id(row.partition_spec_id).expr_ids
    yield from faults_of_adopted(row, aggregates_of(leaf, members))
    for ordinal, entry in enumerate(leaf.entries()):
        for fault in _entry(entry, members, header):
            yield f"entry {ordinal}, {entry.location[:200]!r}: {fault}"


def _entry(entry: ContentEntry, members: tuple[int, ...], header: RootHeader) -> Iterator[str]:
    yield from entry_violations(entry, ManifestKind.ADOPTED_LEAF)
    info = entry.version_info
    if (info.sequence_number or 0) > header.snapshot.sequence_number:
        yield f"its sequence number {info.sequence_number} is after the snapshot's, {header.snapshot.sequence_number}"
    if entry.first_row_id is not None and entry.first_row_id + entry.record_count > header.row_ids.next:
        yield f"its row ids from {entry.first_row_id} are not all below the next free one, {header.row_ids.next}"
    missing = [member for member in members if member not in entry.content_stats]
    if missing:
        yield f"its partition values of ids {missing} cannot be read"
    if entry.key_metadata is not None:
        yield "it is encrypted, which this version does not read"
    try:
        check_adopted_location(entry.location)
    except Invalid as error:
        yield error.message


def fault_across(state: TableState) -> str | None:
    """The first rule that the leaves break together, or `None`."""
    return next(_faults_across(state), None)


def _faults_across(state: TableState) -> Iterator[str]:
    for location, dead in state.live.dead.items():
        columns = state.leaves[location].columns(["version_info.status"])
        if not dead <= BitMap(pc.indices_nonzero(live_mask(columns)).to_pylist()):
            yield f"manifest {location}: its vector names entries that do not exist, or are deleted already"
    files = live_files(state.leaves.values(), state.live.dead)
    twice = _first_twice(files)
    if twice is not None:
        yield f"data file {twice!r} is listed twice: its rows would be counted twice"
    places: Counter[tuple[str, int | None]] = Counter()
    targets: Counter[str] = Counter()
    for leaf, ordinal, entry in live_deletes(state.leaves.values(), state.live.dead):
        place = (entry.location, None if entry.deletion_vector is None else entry.deletion_vector.offset)
        places[place] += 1
        if places[place] > 1:
            yield f"manifest {leaf.location}: entry {ordinal}, {entry.location!r}: this delete is listed twice"
        if entry.deletion_vector is not None:
            targets[entry.referenced_file or ""] += 1
    for target, count in targets.items():
        if count > 1:
            yield f"data file {target!r} has {count} deletion vectors"
    absent = absent_among(list(targets), files)
    if absent:
        yield f"a deletion vector is of {sorted(absent)[0]!r}, which is not a live data file"


def check_adopted_location(location: str) -> None:
    """Raise `Invalid` (`location-invalid`) unless `location` is allowed for an adopted manifest or a file in one."""
    check_location(location, is_live=is_absolute)


def live_files(leaves: Iterable[Leaf], dead: Mapping[str, BitMap]) -> pa.ChunkedArray:
    """The locations of the live data files. `dead`: leaf location → the ordinals of its removed entries."""
    chunks: list[pa.Array] = []
    for leaf in leaves:
        if leaf.content is LeafContent.DATA:
            columns = leaf.columns(["location", "version_info.status"])
            chunks += columns.column("location").filter(live_mask(columns, dead.get(leaf.location))).chunks
    return pa.chunked_array(chunks, pa.string())


def live_deletes(leaves: Iterable[Leaf], dead: Mapping[str, BitMap]) -> Iterator[tuple[Leaf, int, ContentEntry]]:
    """Yield every live delete as (leaf, ordinal, entry). The arguments are those of `live_files`."""
    for leaf in leaves:
        if leaf.content is LeafContent.DELETE:
            dead_here = dead.get(leaf.location, BitMap())
            for ordinal, entry in enumerate(leaf.entries()):
                if entry.version_info.status is not Status.DELETED and ordinal not in dead_here:
                    yield leaf, ordinal, entry


def absent_among(targets: Sequence[str], files: pa.ChunkedArray) -> set[str]:
    """The `targets` that are not in `files`."""
    if not targets:
        return set()
    wanted = pa.array(targets, pa.string())
    return set(wanted.filter(pc.invert(pc.is_in(wanted, value_set=files.combine_chunks()))).to_pylist())


def _first_twice(files: pa.ChunkedArray) -> str | None:
    if pc.count_distinct(files).as_py() == len(files):
        return None
    counts = pc.value_counts(files)
    twice = counts.filter(pc.greater(pc.struct_field(counts, "counts"), 1))
    found: str = twice[0]["values"].as_py()
    return found


ADOPTED_PREFIX: Final = "metadata/adopted/"
_ADOPTED: Final = re.compile(f"{ADOPTED_PREFIX}[0-9a-f]{{32}}\\.avro")
ADOPTED_SNAPSHOT: Final = "rootline.adopted-snapshot"
"""The key in the summary of root 0 for the Iceberg snapshot that the table continues. Absent if there was none."""
NO_SNAPSHOT: Final = SnapshotId(0)
"""The snapshot id of an Iceberg table without any commit."""
LEAVES_MAX: Final = 100_000
LEAVES_BYTES_MAX: Final = 1024 * 1024 * 1024
ENTRIES_MAX: Final = 5_000_000
ROOT_BYTES_MAX: Final = 64 * 1024 * 1024
_NUMBER_MAX: Final = 2**62
_TIME_MAX_MS: Final = 7_258_118_400_000
"""The year 2200. Timestamps of snapshots never decrease, so a later one would stay in every snapshot that follows."""
_BLOCK_ROWS: Final = 256


def adopted_location(digest: bytes) -> str:
    """The location of an adopted root, relative to the new table's folder."""
    return f"{ADOPTED_PREFIX}{digest.hex()[:32]}.avro"


def is_adopted_location(location: str) -> bool:
    """Whether an intent may name an adopted root at `location`."""
    return _ADOPTED.fullmatch(location) is not None


def check_named(named: AdoptedRoot) -> None:
    """Raise `Invalid` (`location-invalid`, `intent-too-large`) unless an intent may name this root."""
    if named.location != adopted_location(named.digest):
        where = adopted_location(named.digest)
        raise Invalid(
            "location-invalid", f"adopted root {named.location[:120]!r}: name it {where}, as its digest requires"
        )
    if named.file_size_in_bytes > ROOT_BYTES_MAX:
        size = named.file_size_in_bytes
        raise Invalid("intent-too-large", f"the adopted root has {size} bytes, {ROOT_BYTES_MAX} are allowed")


def encode_adopted(
    table: TableName,
    definition: TableDefinition,
    snapshot: Snapshot,
    rows: Sequence[ContentEntry],
    next_row_id: int,
    totals: Totals,
) -> tuple[Root, bytes]:
    """Encode an adopted root. Returns the root and its bytes, which are the same for the same arguments.

    Args:
        table: the name of the new table.
        definition: the definition in the intent.
        snapshot: the current snapshot of the Iceberg table.
        rows: the root rows of its manifests, and of vectors that mark entries without effect as dead.
        next_row_id: the next free row id.
        totals: the totals of the live files.
    """
    codec, sync = EntryCodec.of_definition(definition), sync_marker(definition.table_uuid)
    header = RootHeader(
        table=table,
        table_uuid=definition.table_uuid,
        version=Version(0),
        parent_digest=None,
        snapshot=snapshot,
        definition=DefinitionReference("", _digest_of(definition)),
        commit_id=CommitId("0" * 32),
        coordinator_id="adopted",
        row_ids=RowIds(next=next_row_id),
        totals=totals,
    )
    made = [Row.of(row, codec) for row in rows]
    blocks = [seal(made[at : at + _BLOCK_ROWS], codec, sync) for at in range(0, len(made), _BLOCK_ROWS)]
    return encode_root(header, blocks, codec, sync)


def proven_adopted(body: bytes, named: AdoptedRoot, table: TableName, definition: TableDefinition) -> Root:
    """Check that `body` is the adopted root that an intent names, and that its header and rows obey every rule.

    Returns the root with its rows and blocks re-encoded. The leaves are not checked.

    Raises:
        Invalid: `adoption-invalid`, `location-invalid`, `spec-unknown`.

    """
    name = f"adopted root {named.location!r}"
    if len(body) != named.file_size_in_bytes:
        raise invalid(f"{name}: it has {len(body)} bytes, the intent says {named.file_size_in_bytes}")
    try:
        root = decode_root(body, name=name)
    except Corrupt as error:
        raise invalid(error.message) from error
    if root.digest != named.digest:
        raise invalid(f"{name}: its digest is {root.digest.hex()}, the intent says {named.digest.hex()}")
    for reason in (_fault_of_header(root.header, table, definition), _fault_of_rows(root, definition)):
        if reason is not None:
            raise invalid(f"{name}: {reason}")
    header = root.header
    rows = [row.entry for row in root.rows]
    return encode_adopted(table, definition, header.snapshot, rows, header.row_ids.next, header.totals)[0]


def leaves_of(root: Root) -> list[ContentEntry]:
    """The rows of an adopted root that name leaves."""
    return [row.entry for row in root.rows if row.entry.content_type in LEAF_TYPES]


def adopted_state(root: Root, definition: TableDefinition, leaves: Mapping[str, Leaf]) -> TableState:
    """Check every entry of the leaves, and return the state from which the new table is made.

    Raises:
        Invalid: `adoption-invalid`, with the leaf, the entry and the rule in the message.
    """
    for row in leaves_of(root):
        fault = fault_of_leaf(row, leaves[row.location], root.header, definition)
        if fault is not None:
            raise invalid(fault)
    try:
        state = TableState.of(root, definition, leaves)
    except Corrupt as error:
        raise invalid(error.message) from error
    doubled = fault_across(state)
    if doubled is not None:
        raise invalid(doubled)
    found = totals_of_leaves(state)
    if found != root.header.totals:
        raise invalid(f"the adopted root says {root.header.totals}, its leaves add up to {found}")
    return state


def totals_of_leaves(state: TableState) -> Totals:
    """The number of files, rows and bytes in the adopted Iceberg manifests, which are the Avro leaves of the table."""
    tally = Tally()
    for location, row in state.live.leaf_rows.items():
        if row.entry.file_format is FileFormat.AVRO:
            tally.count(row.entry)
            tally.take(tally_of_leaf(state.leaves[location], _dead_before(state, location)))
    return totals_after(Totals(), tally, Tally())


def _dead_before(state: TableState, location: str) -> BitMap | None:
    """The ordinals of the EXISTING manifest vector of a leaf: entries that were removed before this root."""
    rows = (row.entry for row in state.live.manifest_vector_rows.get(location, ()))
    vectors = [ordinals_of_vector(entry) for entry in rows if entry.version_info.status is Status.EXISTING]
    return vectors[0] if vectors else None


def faults_of_first(header: RootHeader, leaf_rows: Iterable[ContentEntry]) -> Iterable[str]:
    """The rules that the first root of a table breaks, as sentences: its version, its parent, and the Iceberg snapshot
    that it continues.
    """
    stated, parent = header.snapshot.summary.get(ADOPTED_SNAPSHOT), header.snapshot.parent_id
    if header.version != 0 or header.parent_digest is not None:
        yield f"root {header.version} has no earlier root, yet it is not 0, or names a parent"
    if stated != (None if parent is None else str(parent)):
        yield f"its parent is snapshot {parent}, its summary says that it was adopted from {stated}"
    if parent is None and any(entry.file_format is FileFormat.AVRO for entry in leaf_rows):
        yield "it has Avro leaves, but no parent snapshot that wrote them"


def _fault_of_header(header: RootHeader, table: TableName, definition: TableDefinition) -> str | None:
    snapshot = header.snapshot
    if (header.table, header.table_uuid) != (table, definition.table_uuid):
        return f"it is of table {header.table} ({header.table_uuid}), not of {table} ({definition.table_uuid})"
    if header.definition.digest != _digest_of(definition):
        return "it was made for another definition"
    if header.version != 0 or header.parent_digest is not None:
        return "it is not a first root"
    numbers = (snapshot.snapshot_id, snapshot.sequence_number, header.row_ids.next)
    if max(snapshot.sequence_number, header.row_ids.next) > _NUMBER_MAX:
        return f"its snapshot id, sequence number and next row id {numbers} are too close to the maximum"
    if snapshot.timestamp_ms > _TIME_MAX_MS:
        return f"its snapshot has timestamp {snapshot.timestamp_ms} ms, which is after the year 2200"
    return None


def _fault_of_rows(root: Root, definition: TableDefinition) -> str | None:
    if root.codec != EntryCodec.of_definition(definition):
        return "its rows have statistics of another definition"
    rows = [row.entry for row in root.rows]
    leaves = {entry.location: entry for entry in rows if entry.content_type in LEAF_TYPES}
    vectors = {entry.location for entry in rows if entry.content_type is ContentType.MANIFEST_DV}
    if len(leaves) + len(vectors) != len(rows) or not vectors <= leaves.keys():
        return "it has rows other than distinct leaves and at most one vector for each"
    too_much = excess_of_leaves(leaves.values())
    if too_much is not None:
        return too_much
    if root.header.snapshot.snapshot_id == NO_SNAPSHOT and rows:
        return "it has rows, but the Iceberg table has no snapshot"
    return next(
        (f"{entry.location}: {fault}" for entry in rows for fault in _row_faults(entry, root, definition)), None
    )


def excess_of_leaves(leaves: Collection[ContentEntry]) -> str | None:
    """The reason why an adopted table has too many leaves or too long ones, or `None`. No leaf is read for it."""
    size = sum(entry.file_size_in_bytes or 0 for entry in leaves)
    count = sum(entry.record_count for entry in leaves)
    if len(leaves) <= LEAVES_MAX and size <= LEAVES_BYTES_MAX and count <= ENTRIES_MAX:
        return None
    found = f"{len(leaves)} manifests of {size} bytes with {count} entries"
    allowed = f"{LEAVES_MAX}, {LEAVES_BYTES_MAX} and {ENTRIES_MAX}"
    return f"it has {found}, {allowed} are allowed: rewrite the manifests or expire snapshots with Iceberg first"


def _row_faults(entry: ContentEntry, root: Root, definition: TableDefinition) -> Iterable[str]:
    header, info = root.header, entry.version_info
    yield from entry_violations(entry, ManifestKind.ROOT)
    if info.status is not Status.EXISTING:
        yield f"its status is {info.status.name}: adopted entries must be EXISTING"
    if (info.sequence_number or 0) > header.snapshot.sequence_number:
        yield f"its sequence number {info.sequence_number} is after the snapshot's, {header.snapshot.sequence_number}"
    definition.spec_by_id(entry.partition_spec_id)
    if entry.content_type is ContentType.MANIFEST_DV:
        if entry.deletion_vector is None or entry.deletion_vector.inline_content is None:
            yield "its vector is not inline"
        return
    check_adopted_location(entry.location)
    if entry.file_format is not FileFormat.AVRO:
        yield f"its format is {entry.file_format}: only Avro manifests can be adopted"
    if entry.referenced_file is not None:
        yield "a manifest must not have a referenced_file"
    if entry.key_metadata is not None:
        yield "the manifest is encrypted: encrypted manifests cannot be adopted"
    if entry.content_type is ContentType.DATA_MANIFEST and entry.manifest_stats is not None:
        rows = entry.manifest_stats.added_rows_count + entry.manifest_stats.existing_rows_count
        if entry.first_row_id is None or entry.first_row_id + rows > header.row_ids.next:
            yield f"its row ids from {entry.first_row_id} are not below {header.row_ids.next}"


def _digest_of(definition: TableDefinition) -> bytes:
    return hashlib.sha256(definition.to_json()).digest()


def invalid(reason: str) -> Invalid:
    """The error of a rejected adoption (`adoption-invalid`)."""
    return Invalid("adoption-invalid", reason)
