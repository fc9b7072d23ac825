"""Scan planning: the leaves to read, then the files to read, each with its deletes and its residual filter.

Owns: planning over a root and its leaves.
Does not own: fetching leaves (`rootline.storage.metadata.table_loader`), masks over a leaf (`leaf_pruning`), the tasks
(`file_task`), finding delete files (`delete_index`).
Invariants: The order is deterministic: data files of the root in its order, then those of each leaf by ordinal (the
entry's index in the leaf). A plan has no dead entry: one that a manifest vector in the root marks as removed from its
leaf. A task has every live vector and delete file that may delete one of its requested rows.

Source: format page, "Manifest vectors" and the Iceberg specification, "Scan Planning".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from rootline.schemas.arrow_values import numpy_from
from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.bytes.vector_codec import decode_inline
from rootline.schemas.content_entry import LEAF_TYPES, ContentEntry, ContentType, Status
from rootline.schemas.errors import Corrupt
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.filter.pruning import PruningFilter, entry_may_match, entry_must_match
from rootline.tree.scan.delete_index import DeleteIndex
from rootline.tree.scan.file_task import FilesOfLeaf, FileTask, TaskContext, VectorsOfLeaf, VectorSource
from rootline.tree.scan.leaf_pruning import prune_leaf


class DeletesFor(Enum):
    """The rows for which a plan contains all delete files."""

    MATCHING_ROWS = "matching rows"  # delete files that cannot delete a matching row are omitted
    EVERY_ROW = "every row"  # of the planned files, for callers that also rewrite rows that do not match


@dataclass(frozen=True, slots=True)
class LeavesToRead:
    """The root rows of the leaves that a plan needs. They can all be read concurrently.

    `pruned` has the data leaves that cannot match or have no live entry.
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
        """Iterate over the tasks in the plan's order. Each is made when it is reached."""
        yield from self.in_root
        for files in self.in_leaves:
            yield from files.tasks()

    def locations(self) -> Iterator[str]:
        """The locations of the files in the plan's order, without making tasks."""
        yield from (task.location for task in self.in_root)
        for files in self.in_leaves:
            yield from files.locations()

    def tasks_at(self, locations: Set[str]) -> Iterator[FileTask]:
        """The tasks of the plan whose files are at `locations`, in the plan's order."""
        yield from (task for task in self.in_root if task.location in locations)
        wanted = pa.array(locations, pa.string())
        for files in self.in_leaves:
            yield from files.at(wanted).tasks()

    def __iter__(self) -> Iterator[FileTask]:
        return self.tasks()

    def __len__(self) -> int:
        return len(self.in_root) + sum(len(files) for files in self.in_leaves)

    def row_count(self) -> int | None:
        """The number of rows that the scan yields, or `None` if it is unknown before reading files."""
        in_root = [task.row_count() for task in self.in_root]
        counts = [*in_root, *(files.row_count() for files in self.in_leaves)]
        return None if None in counts else sum(count for count in counts if count is not None)


def manifest_vectors(root: Root, stored: Mapping[tuple[str, int], BitMap] | None = None) -> dict[str, BitMap]:
    """The dead ordinals of each leaf (by location), from its EXISTING and ADDED manifest vectors.

    Vectors written by Rootline are inline in the root. `stored` has those of Puffin files, by location and offset.

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

    A delete leaf is not needed if it belongs to a pruned data leaf, or if none of its partitions can match. A leaf
    without a live entry is not needed. The next compaction removes it.
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
    """The locations of the leaves whose entries are all dead by vectors that are inline in the root.

    Raises:
        Corrupt: `vector-corrupt`, a vector cannot be decoded. Only vectors of leaves that may be dead are decoded.

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
    """The union of a leaf's inline vectors. Two vectors may contain the same ordinal if another writer made them."""
    dead = BitMap()
    for entry in vectors:
        inline = None if entry.deletion_vector is None else entry.deletion_vector.inline_content
        if inline is not None:
            dead |= decode_inline(inline, name=f"vector of {entry.location}", cardinality=entry.record_count)
    return dead


def _may_touch(pruning: PruningFilter, delete_leaf: ContentEntry) -> bool:
    """Whether deletes of the leaf may apply to data files that match the filter.

    Only the leaf's partition values can prove that none applies, for every kind of delete.
    """
    members = pruning.members_of(delete_leaf.partition_spec_id)
    stats = {member: delete_leaf.content_stats[member] for member in members if member in delete_leaf.content_stats}
    return not stats or pruning.may(stats, None, frozenset())


@dataclass
class ScanPlanner:
    """The planning of one scan. A caller reads all leaves that are `missing`, then calls `plan`."""

    root: Root
    definition: TableDefinition
    pruning: PruningFilter
    deletes_for: DeletesFor = DeletesFor.MATCHING_ROWS
    wanted: LeavesToRead = field(init=False)

    def __post_init__(self) -> None:
        self.wanted = leaves_to_read(self.root, self.pruning)

    def missing(self, leaves: Mapping[str, Leaf]) -> tuple[ContentEntry, ...]:
        """The root rows of those needed leaves that are not in `leaves`."""
        return tuple(row for row in (*self.wanted.data, *self.wanted.delete) if row.location not in leaves)

    def plan(self, leaves: Mapping[str, Leaf], dead: Mapping[str, BitMap]) -> ScanPlan:
        """Plan the scan from the leaves that it needs and their dead ordinals (`manifest_vectors`).

        Raises:
            Corrupt: `object-missing`, a leaf is not in `leaves`; `leaf-corrupt`, `entry-invalid`.
            Invalid: `equality-delete-unread`.

        """
        for row in self.missing(leaves):
            raise Corrupt("object-missing", f"leaf {row.location} was not read")
        for row in (*self.wanted.data, *self.wanted.delete):
            if len(leaves[row.location]) != row.record_count:
                counts = f"contains {len(leaves[row.location])} entries, its root row says {row.record_count}"
                raise Corrupt("leaf-corrupt", f"{row.location}: {counts}")
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
    """One flag for each entry: it is neither DELETED nor in the leaf's vectors."""
    statuses = leaf.columns(["version_info.status"]).column(0).combine_chunks().field("status")
    live: np.ndarray[tuple[int], np.dtype[np.bool_]] = numpy_from(statuses) != Status.DELETED
    if dead:
        if dead.max() >= len(leaf):
            raise Corrupt("vector-corrupt", f"{leaf.location}: its vector has entry {dead.max()} of {len(leaf)}")
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
    """Plan a scan whose leaves have all been read. `dead` defaults to `manifest_vectors(root)`.

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
