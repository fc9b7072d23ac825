"""What to move from a root into leaves, and how it is spread over them.

Owns: the choice of rows, and which leaf a vector goes to. Does not own: how entries fill leaves (`planned_leaf`),
thresholds (`flush_limits`), what is read to plan (`rootline.workers.jobs.flush_job`), what happens to rows that changed
since the plan was made (they are dead in the new leaf).
Invariants: a leaf holds one spec, and data or deletes; every entry is EXISTING with the explicit snapshot id,
sequence numbers and first row id of the root row that it came from; a vector goes to a delete leaf affiliated with
the data leaf of its data file, or, where these are many, to one that belongs to none; it stays in the root while its
data file does; data leaves come first.

Source: architecture page, "The way of a flush"; protocol page, section 5.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyroaring import BitMap

from rootline.maintenance.flush_limits import FlushLimits
from rootline.maintenance.plan import IntentStamp, WrittenPlan
from rootline.maintenance.planned_leaf import InPlan, InRoot, PlannedLeaf, planned_leaves, write_leaves
from rootline.schemas.bytes.leaf_codec import MAX_ENTRIES, Leaf, LeafContent
from rootline.schemas.bytes.root.root_codec import Root, Row
from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace, Status
from rootline.schemas.identifiers import Version
from rootline.schemas.intent import IntentKind
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.scan.scan_plan import manifest_vectors


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """Leaves to write, data leaves first. Empty: nothing is due, or nothing that is due can go."""

    made_from_version: Version
    leaves: tuple[PlannedLeaf, ...] = ()

    @property
    def entries(self) -> int:
        """Root rows that the plan moves."""
        return sum(len(leaf.entries) for leaf in self.leaves)

    @property
    def leaf_count(self) -> int:
        """New leaves."""
        return len(self.leaves)

    def write(self, stamp: IntentStamp, definition: TableDefinition) -> WrittenPlan:
        """The leaves, and the intent that names them; as `Plan.write`."""
        written = write_leaves(self.leaves, definition, stamp.object_uuid)
        intent = stamp.intent(IntentKind.FLUSH, self.made_from_version, add_manifests=written.manifests)
        return WrittenPlan(written.objects, intent)


@dataclass(frozen=True, slots=True)
class RootLoad:
    """What of a root could live in leaves; bytes are encoded, before compression.

    `vector_bytes`: of vectors of files in the root; `delete_bytes`: of vectors of files in leaves and equality deletes.
    """

    data_files: tuple[ContentEntry, ...]
    vectors_of_root: tuple[ContentEntry, ...]  # their data file is a row of the root
    vectors_of_leaves: tuple[ContentEntry, ...]
    equality_deletes: tuple[ContentEntry, ...]
    data_leaves: tuple[str, ...]
    data_bytes: int
    vector_bytes: int
    delete_bytes: int

    @staticmethod
    def of(root: Root) -> RootLoad:
        """The live rows of `root`, apart by what they are."""
        found: dict[ContentType, list[Row]] = defaultdict(list)
        for row in root.rows:
            if row.entry.version_info.status is not Status.DELETED:
                found[row.entry.content_type].append(row)
        data, equality = found[ContentType.DATA], found[ContentType.EQUALITY_DELETE]
        here = {row.entry.location for row in data}
        of_root: list[Row] = []
        of_leaves: list[Row] = []
        for row in found[ContentType.POSITION_DELETE]:
            (of_root if row.entry.referenced_file in here else of_leaves).append(row)
        return RootLoad(
            data_files=_entries(data),
            vectors_of_root=_entries(of_root),
            vectors_of_leaves=_entries(of_leaves),
            equality_deletes=_entries(equality),
            data_leaves=tuple(row.entry.location for row in found[ContentType.DATA_MANIFEST]),
            data_bytes=_bytes(data),
            vector_bytes=_bytes(of_root),
            delete_bytes=_bytes(of_leaves) + _bytes(equality),
        )

    def data_is_due(self, limits: FlushLimits) -> bool:
        """Whether data files go; their vectors go with them."""
        return bool(self.data_files) and (
            len(self.data_files) >= limits.data_files
            or len(self.vectors_of_root) >= limits.vectors
            or self.data_bytes >= limits.bytes_max
            or self.vector_bytes >= limits.vector_bytes_max
        )

    def deletes_are_due(self, limits: FlushLimits) -> bool:
        """Whether equality deletes go, and vectors whose data files are in leaves."""
        count = len(self.vectors_of_leaves) + len(self.equality_deletes)
        is_much = count >= limits.vectors or self.delete_bytes >= limits.vector_bytes_max
        return count > 0 and (is_much or self.data_is_due(limits))

    def leaves_to_read(self, limits: FlushLimits) -> tuple[str, ...]:
        """The leaves without which `plan_flush` cannot tell where vectors belong; none when none are to go."""
        return self.data_leaves if self.vectors_of_leaves and self.deletes_are_due(limits) else ()


def plan_flush(
    root: Root,
    definition: TableDefinition,
    limits: FlushLimits,
    *,
    load: RootLoad | None = None,
    leaves: Mapping[str, Leaf] | None = None,
    dead: Mapping[str, BitMap] | None = None,
) -> FlushPlan:
    """What to flush from `root`. `leaves`: those of `RootLoad.leaves_to_read`; vectors of absent ones stay put.

    `dead`: leaf → dead ordinals; `None`: read from the root, where all of them are inline.

    Raises:
        Corrupt: `vector-corrupt`, a manifest vector in the root.

    """
    load = RootLoad.of(root) if load is None else load
    planned: list[PlannedLeaf] = []
    affiliated: dict[InPlan | InRoot, list[ContentEntry]] = defaultdict(list)
    if load.data_is_due(limits):
        planned = _data_leaves(load.data_files, definition, limits)
        for vector, index in _vectors_of_plan(planned, load.vectors_of_root):
            affiliated[InPlan(index)].append(vector)
    loose: list[ContentEntry] = []
    if load.deletes_are_due(limits):
        loose.extend(load.equality_deletes)
        of_leaf: dict[str, list[ContentEntry]] = defaultdict(list)
        for vector, location in _vectors_of_leaves(root, load.vectors_of_leaves, leaves or {}, dead):
            of_leaf[location].append(vector)
        most_first = sorted(of_leaf, key=lambda location: -len(of_leaf[location]))
        affiliated |= {InRoot(location): of_leaf[location] for location in most_first[: limits.delete_leaves]}
        loose += [vector for location in most_first[limits.delete_leaves :] for vector in of_leaf[location]]
    for affinity, vectors in affiliated.items():
        planned.extend(planned_leaves(LeafContent.DELETE, vectors, definition, MAX_ENTRIES, affinity))
    planned.extend(planned_leaves(LeafContent.DELETE, loose, definition, limits.leaf_entries, None))
    return FlushPlan(root.header.version, tuple(planned))


def _entries(rows: Iterable[Row]) -> tuple[ContentEntry, ...]:
    return tuple(row.entry for row in rows)


def _bytes(rows: Iterable[Row]) -> int:
    return sum(len(row.tail) for row in rows)


def _data_leaves(
    entries: Iterable[ContentEntry], definition: TableDefinition, limits: FlushLimits
) -> list[PlannedLeaf]:
    return planned_leaves(LeafContent.DATA, entries, definition, limits.leaf_entries, None)


def _vectors_of_plan(planned: list[PlannedLeaf], vectors: Iterable[ContentEntry]) -> Iterable[tuple[ContentEntry, int]]:
    """(vector, index of the planned leaf that takes its data file)."""
    index_of = {entry.location: index for index, leaf in enumerate(planned) for entry in leaf.entries}
    for vector in vectors:
        index = index_of.get(vector.referenced_file or "")
        # a leaf holds one spec; a vector under another spec than its data file's has no leaf to go to
        if index is not None and planned[index].spec_id == vector.partition_spec_id:
            yield vector, index


def _vectors_of_leaves(
    root: Root, vectors: Iterable[ContentEntry], leaves: Mapping[str, Leaf], dead: Mapping[str, BitMap] | None
) -> Iterable[tuple[ContentEntry, str]]:
    """(vector, location of the leaf in which its data file is live)."""
    rows = {row.entry.location: row.entry for row in root.rows if row.entry.content_type is ContentType.DATA_MANIFEST}
    dead = manifest_vectors(root) if dead is None else dead
    for vector in vectors:
        if vector.referenced_file is None:
            continue
        place = EntryPlace(ContentType.DATA, vector.referenced_file)
        for location, leaf in leaves.items():
            row, gone = rows.get(location), dead.get(location, _NONE_DEAD)
            if row is None or row.partition_spec_id != vector.partition_spec_id:
                continue
            ordinal = leaf.ordinal_of(place)
            if ordinal is not None and ordinal not in gone:
                yield vector, location
                break


_NONE_DEAD = BitMap()
