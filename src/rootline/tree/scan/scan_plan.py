"""What a scan reads: which leaves, then which files, each with its vectors and what is left of the filter.

Owns: planning over a root and its leaves. Does not own: fetching leaves (`rootline.storage.metadata.table_loader`),
masks over a leaf (`leaf_pruning`), the tasks themselves (`file_task`), which delete files go with which data files
(`delete_index`).
Invariants: deterministic order (the root's data files in its order, then each leaf's by ordinal); never a dead entry;
every live vector and delete file that may delete a row of a file which is asked for is on its task.

Source: format page, "Manifest vectors"; the Iceberg specification, "Scan Planning".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.bytes.vector_codec import decode_inline
from rootline.schemas.content_entry import LEAF_TYPES, ContentEntry, ContentType, Status
from rootline.schemas.errors import Corrupt
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.filter.prune import PruningFilter, entry_may_match, entry_must_match
from rootline.tree.scan.delete_index import DeleteIndex
from rootline.tree.scan.file_task import FilesOfLeaf, FileTask, TaskContext, VectorsOfLeaf, VectorSource
from rootline.tree.scan.leaf_pruning import prune_leaf


class DeletesFor(Enum):
    """Which rows the delete files of a plan must be right for."""

    MATCHING_ROWS = "matching rows"  # delete files that touch no row which matches the filter are left out
    EVERY_ROW = "every row"  # of the planned files: for callers that rewrite the rows that do not match


@dataclass(frozen=True, slots=True)
class LeavesToRead:
    """Root rows of the leaves that a plan needs, all of them read at once.

    `pruned`: data leaves that cannot match, or have no live entry.
    """

    data: tuple[ContentEntry, ...]
    delete: tuple[ContentEntry, ...]
    pruned: tuple[ContentEntry, ...] = ()


@dataclass(frozen=True)
class ScanPlan:
    """The files of a scan. `leaves_read` and `leaves_pruned` count data leaves."""

    in_root: tuple[FileTask, ...]
    in_leaves: tuple[FilesOfLeaf, ...]
    leaves_read: int = 0
    leaves_pruned: int = 0

    def tasks(self) -> Iterator[FileTask]:
        """Every task, in the plan's order; made as they are asked for."""
        yield from self.in_root
        for files in self.in_leaves:
            yield from files.tasks()

    def locations(self) -> Iterator[str]:
        """The files' locations, in the plan's order; no task is made."""
        yield from (task.location for task in self.in_root)
        for files in self.in_leaves:
            yield from files.locations()

    def tasks_at(self, locations: Set[str]) -> Iterator[FileTask]:
        """The tasks of the files at `locations`, as far as they are in the plan, in its order."""
        yield from (task for task in self.in_root if task.location in locations)
        wanted = pa.array(locations, pa.string())
        for files in self.in_leaves:
            yield from files.at(wanted).tasks()

    def __iter__(self) -> Iterator[FileTask]:
        return self.tasks()

    def __len__(self) -> int:
        return len(self.in_root) + sum(len(files) for files in self.in_leaves)

    def row_count(self) -> int | None:
        """Rows that the scan yields, if the entries alone say so: no file has a residual or two vectors."""
        in_root = [task.row_count() for task in self.in_root]
        counts = [*in_root, *(files.row_count() for files in self.in_leaves)]
        return None if None in counts else sum(count for count in counts if count is not None)


def manifest_vectors(root: Root, stored: Mapping[tuple[str, int], BitMap] | None = None) -> dict[str, BitMap]:
    """Leaf location → dead ordinals, EXISTING and ADDED vectors together.

    `stored`: (location, offset) → the vectors that are stored in Puffin files; ours are inline.

    Raises:
        Corrupt: `vector-corrupt`, a vector cannot be decoded or is not in `stored`.

    """
    found: dict[str, BitMap] = {}
    for row in root.rows:
        entry, vector = row.entry, row.entry.deletion_vector
        if entry.content_type is not ContentType.MANIFEST_DV or entry.version_info.status is Status.DELETED:
            continue
        leaf = entry.referenced_file or entry.location
        if vector is not None and vector.inline_content is not None:
            dead = decode_inline(vector.inline_content, name=f"vector of {leaf}", cardinality=entry.record_count)
        else:
            place = (entry.location, -1 if vector is None or vector.offset is None else vector.offset)
            if stored is None or place not in stored:
                raise Corrupt("vector-corrupt", f"the vector of leaf {leaf} at {place} was not read")
            dead = stored[place]
        found[leaf] = found[leaf] | dead if leaf in found else dead
    return found


def leaves_to_read(root: Root, pruning: PruningFilter) -> LeavesToRead:
    """The leaves that a plan needs, by the root's statistics of them.

    A delete leaf that belongs to a pruned data leaf is not needed, nor one of whose partitions none can match. A leaf
    without a live entry, which waits for the next compaction, is not needed either.
    """
    emptied = leaves_without_live_entries(root)
    data: list[ContentEntry] = []
    pruned: list[ContentEntry] = []
    deletes: list[ContentEntry] = []
    for row in root.rows:
        entry = row.entry
        if entry.version_info.status is Status.DELETED:
            continue
        if entry.content_type is ContentType.DATA_MANIFEST:
            is_wanted = entry.location not in emptied and entry_may_match(pruning, entry)
            (data if is_wanted else pruned).append(entry)
        elif entry.content_type is ContentType.DELETE_MANIFEST and entry.location not in emptied:
            deletes.append(entry)
    unwanted = {entry.location for entry in pruned}
    rest = [entry for entry in deletes if entry.referenced_file not in unwanted and _may_touch(pruning, entry)]
    return LeavesToRead(tuple(data), tuple(rest), tuple(pruned))


def leaves_without_live_entries(root: Root) -> set[str]:
    """The leaves all of whose entries are dead by vectors that are inline in the root.

    Raises:
        Corrupt: `vector-corrupt`, a vector of a leaf that may be dead cannot be decoded.

    """
    live = [row.entry for row in root.rows if row.entry.version_info.status is not Status.DELETED]
    vectors: dict[str, list[ContentEntry]] = {}
    for entry in live:
        if entry.content_type is ContentType.MANIFEST_DV:
            vectors.setdefault(entry.referenced_file or entry.location, []).append(entry)
    found: set[str] = set()
    for entry in live if vectors else ():
        of_leaf = vectors.get(entry.location, ()) if entry.content_type in LEAF_TYPES else ()
        if of_leaf and sum(vector.record_count for vector in of_leaf) >= entry.record_count:
            dead = _inline_ordinals(of_leaf)
            if len(dead) == entry.record_count and dead.max() < entry.record_count:
                found.add(entry.location)
    return found


def _inline_ordinals(vectors: Sequence[ContentEntry]) -> BitMap:
    """The union of the inline ones: another writer's two vectors of a leaf may name the same ordinals."""
    dead = BitMap()
    for entry in vectors:
        inline = None if entry.deletion_vector is None else entry.deletion_vector.inline_content
        if inline is not None:
            dead |= decode_inline(inline, name=f"vector of {entry.location}", cardinality=entry.record_count)
    return dead


def _may_touch(pruning: PruningFilter, delete_leaf: ContentEntry) -> bool:
    """Whether its deletes may be of data files that match: only partition values say that of every kind of delete."""
    members = pruning.members_of(delete_leaf.partition_spec_id)
    stats = {member: delete_leaf.content_stats[member] for member in members if member in delete_leaf.content_stats}
    return not stats or pruning.may(stats, None, frozenset())


@dataclass
class ScanPlanner:
    """One scan's planning: read the leaves that are `missing`, data and delete leaves at once, then `plan`."""

    root: Root
    definition: TableDefinition
    pruning: PruningFilter
    deletes_for: DeletesFor = DeletesFor.MATCHING_ROWS
    wanted: LeavesToRead = field(init=False)

    def __post_init__(self) -> None:
        self.wanted = leaves_to_read(self.root, self.pruning)

    def missing(self, leaves: Mapping[str, Leaf]) -> tuple[ContentEntry, ...]:
        """Root rows of leaves that are needed and not in `leaves`."""
        return tuple(row for row in (*self.wanted.data, *self.wanted.delete) if row.location not in leaves)

    def plan(self, leaves: Mapping[str, Leaf], dead: Mapping[str, BitMap]) -> ScanPlan:
        """The plan, from all leaves that it needs and the ordinals that are dead in them (`manifest_vectors`).

        Raises:
            Corrupt: `object-missing`, a leaf is not in `leaves`; `leaf-corrupt`, `entry-invalid`.
            Invalid: `equality-delete-unread`.

        """
        for row in self.missing(leaves):
            raise Corrupt("object-missing", f"leaf {row.location} was not read")
        for row in (*self.wanted.data, *self.wanted.delete):
            if len(leaves[row.location]) != row.record_count:
                held = f"holds {len(leaves[row.location])} entries, its root row says {row.record_count}"
                raise Corrupt("leaf-corrupt", f"{row.location}: {held}")
        vectors = VectorsOfLeaf()
        in_root: list[ContentEntry] = []
        delete_files: list[ContentEntry] = []
        for root_row in self.root.rows:
            entry = root_row.entry
            if entry.version_info.status is Status.DELETED:
                continue
            if entry.content_type is ContentType.DATA:
                in_root.append(entry)
            elif entry.content_type is ContentType.POSITION_DELETE:
                vectors.add(entry.referenced_file or "", VectorSource(entry, entry.record_count))
            elif entry.content_type is ContentType.EQUALITY_DELETE:
                delete_files.append(entry)
        for row in self.wanted.delete:
            delete_files.extend(vectors.take(leaves[row.location].of_row(row), dead.get(row.location)))
        asked = self.pruning if self.deletes_for is DeletesFor.MATCHING_ROWS else None
        index = DeleteIndex.of(delete_files, self.definition, asked) if delete_files else None
        context = TaskContext(self.pruning, index)
        return ScanPlan(
            tuple(self._task(entry, context, vectors) for entry in in_root if entry_may_match(self.pruning, entry)),
            tuple(
                self._matching(row, leaves[row.location].of_row(row), dead.get(row.location), context, vectors)
                for row in self.wanted.data
            ),
            len(self.wanted.data),
            len(self.wanted.pruned),
        )

    def _task(self, entry: ContentEntry, context: TaskContext, vectors: VectorsOfLeaf) -> FileTask:
        whole = entry_must_match(self.pruning, entry)
        return FileTask.of_plan(context, entry, vectors.of(entry.location), is_whole=whole)

    def _matching(
        self, row: ContentEntry, leaf: Leaf, dead: BitMap | None, context: TaskContext, vectors: VectorsOfLeaf
    ) -> FilesOfLeaf:
        masks = prune_leaf(self.pruning, leaf, row.partition_spec_id)
        ordinals = np.flatnonzero(masks.may & live_flags(leaf, dead))
        return FilesOfLeaf(leaf, row, ordinals, masks.must[ordinals], context, vectors)


def live_flags(leaf: Leaf, dead: BitMap | None) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """One flag an entry: neither DELETED nor in the leaf's vectors."""
    statuses = leaf.columns(["version_info.status"]).column(0).combine_chunks().field("status")
    live: np.ndarray[tuple[int], np.dtype[np.bool_]] = statuses.to_numpy(zero_copy_only=False) != Status.DELETED
    if dead:
        if dead.max() >= len(leaf):
            raise Corrupt("vector-corrupt", f"the vector of {leaf.location} names ordinal {dead.max()} of {len(leaf)}")
        live[np.asarray(dead.to_array(), dtype=np.int64)] = False
    return live


def plan(
    root: Root,
    definition: TableDefinition,
    leaves: Mapping[str, Leaf],
    pruning: PruningFilter,
    dead: Mapping[str, BitMap] | None = None,
    deletes_for: DeletesFor = DeletesFor.MATCHING_ROWS,
) -> ScanPlan:
    """The plan of a scan whose leaves are all at hand; `dead` is `manifest_vectors(root)` unless given.

    Raises:
        Corrupt: `object-missing`, `vector-corrupt`, `entry-invalid`.
        Invalid: `equality-delete-unread`.

    """
    known = manifest_vectors(root) if dead is None else dead
    return ScanPlanner(root, definition, pruning, deletes_for).plan(leaves, known)


__all__ = [
    "DeletesFor",
    "FileTask",
    "LeavesToRead",
    "ScanPlan",
    "ScanPlanner",
    "leaves_to_read",
    "leaves_without_live_entries",
    "live_flags",
    "manifest_vectors",
    "plan",
]
