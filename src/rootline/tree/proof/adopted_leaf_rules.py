"""What must hold for the entries of manifests that a table is going to be adopted with.

Owns: the rules of one such leaf, and those across all of them. Does not own: the rows of the root that name the leaves
(`adoption`), the shape that every leaf that was read has (`leaf_columns`).
Invariants: pure; the first fault of a leaf is named with its leaf and entry; a leaf that passes keeps every rule that
later roots are checked by.

Source: docs/decisions/0038; invariants page, numbers 10, 11, 20.
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
    """The first rule that a leaf breaks, under the root row that names it; `None` when it keeps all."""
    fault = next(_faults(row, leaf, header, definition), None)
    return None if fault is None else f"manifest {row.location}: {fault}"


def _faults(row: ContentEntry, leaf: Leaf, header: RootHeader, definition: TableDefinition) -> Iterator[str]:
    if leaf.length != row.record_count or leaf.size_in_bytes != row.file_size_in_bytes:
        yield f"{leaf.length} entries in {leaf.size_in_bytes} bytes, its row says otherwise"
    if leaf.content is not _CONTENT[row.content_type]:
        yield f"it lists {leaf.content} files, its row says otherwise"
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
        yield f"its row ids from {entry.first_row_id} reach the next free one, {header.next_row_id}"
    missing = [member for member in members if member not in entry.content_stats]
    if missing:
        yield f"its partition values of {missing} cannot be read"
    if entry.key_metadata is not None:
        yield "it is encrypted, which this version does not read"
    try:
        check_adopted_location(entry.location)
    except Invalid as error:
        yield error.message


def fault_across(state: TableState) -> str | None:
    """The first rule that the leaves break together; `None` when they keep all."""
    return next(_faults_across(state), None)


def _faults_across(state: TableState) -> Iterator[str]:
    for location, dead in state.live.dead.items():
        columns = state.leaves[location].columns(["version_info.status"])
        if not dead <= BitMap(pc.indices_nonzero(live_mask(columns)).to_pylist()):
            yield f"manifest {location}: its vector names entries that it does not have, or that are deleted anyway"
    files = live_files(state.leaves.values(), state.live.dead)
    twice = _first_twice(files)
    if twice is not None:
        yield f"data file {twice!r} is listed twice: its rows would count twice, and leave twice"
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
        yield f"a deletion vector is of {sorted(absent)[0]!r}, which is no live data file"


def check_adopted_location(location: str) -> None:
    """Raises `Invalid` (`location-invalid`) unless an adopted manifest, or a file that it lists, may be there."""
    check_location(location, is_live=is_absolute)


def live_files(leaves: Iterable[Leaf], dead: Mapping[str, BitMap]) -> pa.ChunkedArray:
    """The locations of the live data files; `dead`: leaf → its ordinals that are not."""
    chunks: list[pa.Array] = []
    for leaf in leaves:
        if leaf.content is LeafContent.DATA:
            columns = leaf.columns(["location", "version_info.status"])
            chunks += columns.column("location").filter(live_mask(columns, dead.get(leaf.location))).chunks
    return pa.chunked_array(chunks, pa.string())


def live_deletes(leaves: Iterable[Leaf], dead: Mapping[str, BitMap]) -> Iterator[tuple[Leaf, int, ContentEntry]]:
    """(leaf, ordinal, entry) of every live delete; arguments as of `live_files`."""
    for leaf in leaves:
        if leaf.content is LeafContent.DELETE:
            gone = dead.get(leaf.location, BitMap())
            for ordinal, entry in enumerate(leaf.entries()):
                if entry.version_info.status is not Status.DELETED and ordinal not in gone:
                    yield leaf, ordinal, entry


def absent_among(targets: Sequence[str], files: pa.ChunkedArray) -> set[str]:
    """Those of `targets` that are none of `files`."""
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
