"""Rules for the entries of Iceberg manifests that a table adopts.

Owns: the rules for one such manifest (a leaf of the table), and the rules across all of them.
Does not own: the root rows that name the leaves (`adoption`), the shape of every leaf (`leaf_columns`).
Invariants: The first fault is reported with its leaf and entry. A leaf that passes obeys every rule that later roots
are checked by.

Source: docs/decisions/0038 and invariants page, numbers 10, 11, 20.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from rootline.schemas.bytes.leaf import Leaf, LeafContent
from rootline.schemas.content_entry import ContentEntry, ContentType, Status
from rootline.schemas.entry_rules import ManifestKind, entry_violations
from rootline.schemas.errors import Invalid
from rootline.schemas.intent_rules import check_location
from rootline.schemas.object_keys import is_absolute
from rootline.schemas.root_header import RootHeader
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.proof.adopted_rows import faults_of_adopted
from rootline.tree.state.aggregates import aggregates_of
from rootline.tree.state.live_mask import live_mask
from rootline.tree.state.table_state import TableState

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
    if entry.first_row_id is not None and entry.first_row_id + entry.record_count > header.next_row_id:
        yield f"its row ids from {entry.first_row_id} are not all below the next free one, {header.next_row_id}"
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
    """The locations of the live data files. `dead` has the dead ordinals of each leaf."""
    chunks: list[pa.Array] = []
    for leaf in leaves:
        if leaf.content is LeafContent.DATA:
            columns = leaf.columns(["location", "version_info.status"])
            chunks += columns.column("location").filter(live_mask(columns, dead.get(leaf.location))).chunks
    return pa.chunked_array(chunks, pa.string())


def live_deletes(leaves: Iterable[Leaf], dead: Mapping[str, BitMap]) -> Iterator[tuple[Leaf, int, ContentEntry]]:
    """Every live delete, as (leaf, ordinal, entry). See `live_files` for the arguments."""
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


__all__ = [
    "absent_among",
    "check_adopted_location",
    "fault_across",
    "fault_of_leaf",
    "live_deletes",
    "live_files",
]
