"""The rules between a root and the next one, checked before every PUT.

Owns: the predicates on two versions. Does not own: the rules of parts and pages (`rootline.tree.parts`), the predicates
on a single version (only tests check them), the reaction to a violation (the commit machine refuses to write).
Invariants: Pure. Reads only the changes, and derives them from the new root's rows, not from the values that `apply`
computed.

Source: invariants page, numbers 5-8, 10, 11, 17, 20, 21.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Final

from pyroaring import BitMap

from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.content_entry import LEAF_TYPES, ContentEntry, ContentType, EntryPlace, Status
from rootline.schemas.identifiers import NOTHING_ACKNOWLEDGED, Acknowledged, snapshot_id_of
from rootline.schemas.root_header import RootHeader
from rootline.tree.check.rewrite_rules import NO_REWRITES, faults_of_operation, faults_of_rewrites, rewrites_of
from rootline.tree.parts.header_limits import HEADER_LIMITS, HeaderLimits
from rootline.tree.parts.name import purges, starts_new_table
from rootline.tree.parts.part_table import page_violations, part_violations
from rootline.tree.parts.restores import REPLACED_TABLE, RESTORED_VERSIONS
from rootline.tree.proof.adoption import faults_of_first, has_older_deletes, totals_of_leaves
from rootline.tree.state.aggregates import tally_of_leaf
from rootline.tree.state.live_index import ordinals_of_vector
from rootline.tree.state.table_state import TableState
from rootline.tree.state.totals import Tally, totals_after

_COUNTED: Final = ("data_files", "vectors", "equality_deletes", "rows", "deleted_rows", "data_bytes")
_counts_in: Final = attrgetter(*_COUNTED)
_MANY: Final = 1_000
"""From this number on, entries removed from one leaf are counted by columns, if the table has no vectors."""


def violations(
    old: TableState | None,
    new: TableState,
    *,
    acknowledged: Acknowledged = NOTHING_ACKNOWLEDGED,
    limits: HeaderLimits = HEADER_LIMITS,
) -> list[str]:
    """The rules that the step from `old` to `new` breaks, as sentences. Incremental and cheap. `acknowledged` and
    `limits`: the values with which `new` was made.
    """
    sentences = list(faults_of_first(new.header, _leaf_rows(new)) if old is None else _chain(old, new))
    is_same_table = old is not None and not (starts_new_table(old.header, new.header) or purges(old.header, new.header))
    return [
        *sentences,
        *page_violations(old, new, acknowledged, limits),
        *_contents(old if is_same_table else None, new),
    ]


def _chain(old: TableState, new: TableState) -> Iterator[str]:
    before, after = old.header, new.header
    if after.version != before.version + 1:
        yield f"version {after.version} follows {before.version}"
    if after.parent_digest != old.root.digest:
        yield "its parent digest is not the digest of the parent"
    is_another = starts_new_table(before, after)
    if after.table != before.table or (after.table_uuid != before.table_uuid and not is_another):
        yield f"the table is {after.table} ({after.table_uuid}), but the parent's {before.table} ({before.table_uuid})"
    if after.snapshot.parent_id != before.snapshot.snapshot_id and not is_another:
        yield "its parent snapshot id is not the snapshot id of the parent"
    if after.snapshot.sequence_number <= before.snapshot.sequence_number:
        yield f"sequence number {after.snapshot.sequence_number} follows {before.snapshot.sequence_number}"
    if after.snapshot.timestamp_ms <= before.snapshot.timestamp_ms:
        yield f"timestamp {after.snapshot.timestamp_ms} follows {before.snapshot.timestamp_ms}"
    if after.earlier_bytes != before.earlier_bytes + old.root.size_in_bytes:
        yield f"{after.earlier_bytes} bytes of earlier roots do not follow from the parent's {before.earlier_bytes}"
    yield from (sentence for _, sentence in part_violations(before, after, is_own=True))


def _contents(old: TableState | None, new: TableState) -> Iterator[str]:
    header = new.header
    if header.snapshot.snapshot_id != snapshot_id_of(header.table_uuid, header.version):
        yield f"snapshot id {header.snapshot.snapshot_id} does not follow from the version"
    added, removed = Tally(), Tally()
    first = 0 if old is None else old.header.snapshot.sequence_number
    for entry in _shown(new):
        if entry.version_info.status is Status.ADDED:
            added.count(entry)
            yield from _added(entry, new, first)
        else:
            removed.count(entry)
            yield from _removed(entry, new)
    for entry, live in _added_leaves(new):
        added.take(live)
        yield from _added_leaf(entry, new, first)
    for leaf, ordinals in _removed_in_leaves(old, new):
        if len(ordinals) < _MANY or new.header.totals.vectors:
            for entry in leaf.entries_at(list(ordinals)):
                removed.count(entry)
                yield from _removed(entry, new)
        else:
            removed.take(tally_of_leaf(leaf, BitMap(range(leaf.length)) - ordinals))
    yield from faults_of_operation(header.snapshot.operation, added.types, removed.types)
    if removed.data_files or removed.equality_deletes:
        yield from _remembered(header, first)
    rewrites = rewrites_of(old, new)
    is_exact = old is None or not (old.header.totals.equality_deletes or has_older_deletes(_leaf_rows(old)))
    before = None if old is None else old.header
    yield from faults_of_rewrites(rewrites, before, new.header, is_exact=is_exact, is_own=True)
    if rewrites is not NO_REWRITES:
        added.take(rewrites.added_tally)
        removed.take(rewrites.removed_tally)
    yield from _manifest_vectors(old, new)
    yield from _counted(old, new, added, removed)


def _leaf_rows(state: TableState) -> Iterator[ContentEntry]:
    return (row.entry for row in state.live.leaf_rows.values())


def _shown(new: TableState) -> Iterator[ContentEntry]:
    """Entries of files in the root (content types 0 to 2) that this snapshot added or removed."""
    for ordinal in new.live.unsettled:
        for row in new.root.blocks[ordinal].rows:
            entry = row.entry
            if entry.version_info.status is not Status.EXISTING and entry.content_type <= ContentType.EQUALITY_DELETE:
                yield entry


def _added_leaves(new: TableState) -> Iterator[tuple[ContentEntry, Tally]]:
    """Yield the root row of each leaf that this snapshot added, and the counts of its live entries, taken from the
    leaf.
    """
    for ordinal in new.live.unsettled:
        for row in new.root.blocks[ordinal].rows:
            entry = row.entry
            if entry.version_info.status is Status.ADDED and entry.content_type in LEAF_TYPES:
                yield entry, tally_of_leaf(new.leaves[entry.location], new.live.dead.get(entry.location))


def _removed_in_leaves(old: TableState | None, new: TableState) -> Iterator[tuple[Leaf, BitMap]]:
    """Yield each leaf of which this snapshot removed entries, and the ordinals of these entries."""
    for location, rows in new.live.manifest_vector_rows.items():
        if old is not None and old.live.manifest_vector_rows.get(location) is rows:
            continue
        for row in rows:
            if row.entry.version_info.status is Status.ADDED:
                yield new.leaves[location], ordinals_of_vector(row.entry, new.live.stored)


def _added_leaf(entry: ContentEntry, new: TableState, first: int) -> Iterator[str]:
    info, stats = entry.version_info, entry.manifest_stats
    snapshot = new.header.snapshot
    number = info.sequence_number
    if number is None or number != info.file_sequence_number or not first < number <= snapshot.sequence_number:
        yield f"{entry.location}: sequence number {number} is not one of this root's"
    if info.snapshot_id != snapshot.snapshot_id:
        yield f"{entry.location}: ADDED by another snapshot"
    if stats is None or stats.added_files_count != entry.record_count:
        yield f"{entry.location}: the leaf is ADDED, but not all of its entries are"
    elif stats.min_sequence_number != number and not (
        stats.min_sequence_number <= first and RESTORED_VERSIONS in snapshot.summary
    ):
        yield f"{entry.location}: sequence number {stats.min_sequence_number} is not one of this root's"
    if entry.content_type is ContentType.DELETE_MANIFEST:
        for target, ordinal in new.live.lookups[entry.location].vectors.items():
            is_live = not new.live.is_dead(entry.location, ordinal)
            if is_live and new.live.find(EntryPlace(ContentType.DATA, target)) is None:
                yield f"{entry.location}: a vector of {target}, which is not live"
    elif stats is not None and (
        entry.first_row_id is None or entry.first_row_id + stats.added_rows_count > new.header.row_ids.next
    ):
        yield f"{entry.location}: row ids from {entry.first_row_id} are not below {new.header.row_ids.next}"


def _added(entry: ContentEntry, new: TableState, first: int) -> Iterator[str]:
    info = entry.version_info
    snapshot = new.header.snapshot
    number, file_number = info.sequence_number, info.file_sequence_number
    if number is None or file_number is None or not first < file_number <= snapshot.sequence_number:
        yield f"{entry.location}: file sequence number {file_number} is not one of this root's"
    elif number != file_number and not (number <= first and RESTORED_VERSIONS in snapshot.summary):
        yield f"{entry.location}: sequence number {number} is not one of this root's"
    if info.snapshot_id != snapshot.snapshot_id:
        yield f"{entry.location}: ADDED by another snapshot"
    if entry.content_type is ContentType.POSITION_DELETE:
        target = entry.referenced_file or ""
        if new.live.find(EntryPlace(ContentType.DATA, target)) is None:
            yield f"{entry.location}: a vector of {target}, which is not live"
    elif entry.content_type is ContentType.DATA and (
        entry.first_row_id is None or entry.first_row_id + entry.record_count > new.header.row_ids.next
    ):
        yield f"{entry.location}: row ids from {entry.first_row_id} are not below {new.header.row_ids.next}"


def _removed(entry: ContentEntry, new: TableState) -> Iterator[str]:
    if (
        entry.content_type is ContentType.DATA
        and new.live.vector_of(entry.location) is not None
        and new.live.find(entry.place) is None
    ):
        yield f"{entry.location} was removed without its vector"


def _remembered(header: RootHeader, first: int) -> Iterator[str]:
    """Check that a serializable intent will detect this snapshot's removals, or its restore or replace."""
    newest = 0
    if header.removals is not None:
        newest = max([header.removals.forgotten, *(item.sequence_number for item in header.removals.newest)])
    has_own_number = not {RESTORED_VERSIONS, REPLACED_TABLE}.isdisjoint(header.snapshot.summary)
    if newest <= first and not has_own_number:
        yield f"files were removed after sequence number {first}, but the newest recorded removal is {newest}"


def _manifest_vectors(old: TableState | None, new: TableState) -> Iterator[str]:
    for location, rows in new.live.manifest_vector_rows.items():
        if old is not None and old.live.manifest_vector_rows.get(location) is rows:
            continue
        statuses = [row.entry.version_info.status for row in rows]
        if len(set(statuses)) != len(statuses) or Status.DELETED in statuses:
            yield f"{location} has manifest vectors of status {statuses}"
        dead = new.live.dead[location]
        if dead.max() >= new.live.leaf_rows[location].entry.record_count:
            yield f"the manifest vector of {location} has entry {dead.max()}, which the leaf does not have"
        before = None if old is None else old.live.dead.get(location)
        if before is not None and not before <= dead:
            yield f"bits of the manifest vector of {location} were cleared"


def _counted(old: TableState | None, new: TableState, added: Tally, removed: Tally) -> Iterator[str]:
    """Check that the new totals are the old ones plus `added` minus `removed`, and that as many entries and leaves are
    live as they count.
    """
    totals = new.header.totals
    expected = totals_after(totals_of_leaves(new) if old is None else old.header.totals, added, removed)
    for name, stated, shown in zip(_COUNTED, _counts_in(totals), _counts_in(expected), strict=True):
        if stated != shown:
            yield f"total {name} is {stated}, but by the root's rows {shown}"
    in_leaves = sum(_listed(row.entry) for row in new.live.leaf_rows.values())
    live = len(new.live.rows) + in_leaves - sum(len(dead) for dead in new.live.dead.values())
    counted = totals.data_files + totals.vectors + totals.equality_deletes
    if live != counted:
        yield f"{live} entries are live, but the totals count {counted}"
    leaves = totals.data_manifests + totals.delete_manifests
    if leaves != len(new.live.leaf_rows) or new.leaves.keys() != new.live.leaf_rows.keys():
        yield f"the root has {len(new.live.leaf_rows)} leaves, the totals count {leaves}, {len(new.leaves)} are loaded"


def _listed(leaf: ContentEntry) -> int:
    """The entries of a leaf that were live when it was written. Leaves of older formats also list DELETED entries."""
    return leaf.record_count - (0 if leaf.manifest_stats is None else leaf.manifest_stats.deleted_files_count)
