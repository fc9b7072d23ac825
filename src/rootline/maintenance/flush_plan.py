"""What to move from a root into leaves, and how it is spread over them.

Owns: the choice of rows, their grouping into leaves, and their form as leaf entries. Does not own: thresholds
(`flush_limits`), writing the leaves (`rootline.workers.jobs.flush_job`), what happens to rows that changed since the
plan was made (`rootline.tree` masks them).
Invariants: a leaf holds one spec, and data or deletes; every entry is EXISTING with the explicit snapshot id,
sequence numbers and first row id of the root row that it came from; a vector goes to a delete leaf affiliated with
the data leaf of its data file, and stays in the root while its data file does; data leaves come first.

Source: architecture page, "The way of a flush"; protocol page, section 5.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pyroaring import BitMap

from rootline.maintenance.clustering import cluster, cut
from rootline.maintenance.flush_limits import FlushLimits
from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace, Status
from rootline.schemas.identifiers import Version
from rootline.schemas.leaf_codec import MAX_ENTRIES, Leaf, LeafContent
from rootline.schemas.root_codec import Root
from rootline.schemas.table_definition import TableDefinition
from rootline.schemas.vector_codec import decode_inline


@dataclass(frozen=True, slots=True)
class InPlan:
    """Affiliated with a data leaf of the same plan, by its index among the plan's leaves."""

    index: int


@dataclass(frozen=True, slots=True)
class InRoot:
    """Affiliated with a data leaf that the root names already."""

    location: str


@dataclass(frozen=True, slots=True)
class PlannedLeaf:
    """One leaf to write: its entries in order, of one spec. `affinity`: the data leaf that its vectors belong to."""

    content: LeafContent
    spec_id: int
    entries: tuple[ContentEntry, ...]
    affinity: InPlan | InRoot | None = None


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """Leaves to write, data leaves first. Empty: nothing is due, or nothing that is due can go."""

    made_from_version: Version
    leaves: tuple[PlannedLeaf, ...] = ()

    @property
    def entries(self) -> int:
        """Root rows that the plan moves."""
        return sum(len(leaf.entries) for leaf in self.leaves)


@dataclass(frozen=True, slots=True)
class RootLoad:
    """What of a root could live in leaves. `bytes` are encoded, before compression."""

    data_files: tuple[ContentEntry, ...]
    vectors_of_root: tuple[ContentEntry, ...]  # their data file is a row of the root
    vectors_of_leaves: tuple[ContentEntry, ...]
    equality_deletes: tuple[ContentEntry, ...]
    data_leaves: tuple[str, ...]
    bytes: int

    @staticmethod
    def of(root: Root) -> RootLoad:
        """The live rows of `root`, apart by what they are."""
        found: dict[ContentType, list[ContentEntry]] = defaultdict(list)
        size_in_bytes = 0
        for row in root.rows:
            if row.entry.version_info.status is Status.DELETED:
                continue
            found[row.entry.content_type].append(row.entry)
            if row.entry.content_type <= ContentType.EQUALITY_DELETE:
                size_in_bytes += len(row.tail)
        here = {entry.location for entry in found[ContentType.DATA]}
        vectors = found[ContentType.POSITION_DELETE]
        return RootLoad(
            data_files=tuple(found[ContentType.DATA]),
            vectors_of_root=tuple(vector for vector in vectors if vector.referenced_file in here),
            vectors_of_leaves=tuple(vector for vector in vectors if vector.referenced_file not in here),
            equality_deletes=tuple(found[ContentType.EQUALITY_DELETE]),
            data_leaves=tuple(entry.location for entry in found[ContentType.DATA_MANIFEST]),
            bytes=size_in_bytes,
        )

    def data_is_due(self, limits: FlushLimits) -> bool:
        """Whether data files go; their vectors go with them."""
        return bool(self.data_files) and (
            len(self.data_files) >= limits.data_files
            or len(self.vectors_of_root) >= limits.vectors
            or self.bytes >= limits.bytes_max
        )

    def deletes_are_due(self, limits: FlushLimits) -> bool:
        """Whether equality deletes go, and vectors whose data files are in leaves."""
        count = len(self.vectors_of_leaves) + len(self.equality_deletes)
        return count > 0 and (count >= limits.vectors or self.bytes >= limits.bytes_max or self.data_is_due(limits))

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
) -> FlushPlan:
    """What to flush from `root`. `leaves`: those of `RootLoad.leaves_to_read`; vectors of absent ones stay put.

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
        for vector, location in _vectors_of_leaves(root, load.vectors_of_leaves, leaves or {}):
            affiliated[InRoot(location)].append(vector)
    for affinity, vectors in affiliated.items():
        planned.extend(_leaves_of(LeafContent.DELETE, vectors, definition, MAX_ENTRIES, affinity))
    planned.extend(_leaves_of(LeafContent.DELETE, loose, definition, limits.leaf_entries, None))
    return FlushPlan(root.header.version, tuple(planned))


def _data_leaves(
    entries: Iterable[ContentEntry], definition: TableDefinition, limits: FlushLimits
) -> list[PlannedLeaf]:
    return _leaves_of(LeafContent.DATA, entries, definition, limits.leaf_entries, None)


def _leaves_of(
    content: LeafContent,
    entries: Iterable[ContentEntry],
    definition: TableDefinition,
    entries_max: int,
    affinity: InPlan | InRoot | None,
) -> list[PlannedLeaf]:
    of_spec: dict[int, list[ContentEntry]] = defaultdict(list)
    for entry in entries:
        of_spec[entry.partition_spec_id].append(_as_leaf_entry(entry))
    return [
        PlannedLeaf(content, spec_id, tuple(piece), affinity)
        for spec_id in sorted(of_spec)
        for piece in cut(cluster(of_spec[spec_id], definition, spec_id), entries_max)
    ]


def _as_leaf_entry(entry: ContentEntry) -> ContentEntry:
    return replace(entry, version_info=replace(entry.version_info, status=Status.EXISTING))


def _vectors_of_plan(planned: list[PlannedLeaf], vectors: Iterable[ContentEntry]) -> Iterable[tuple[ContentEntry, int]]:
    """(vector, index of the planned leaf that takes its data file)."""
    index_of = {entry.location: index for index, leaf in enumerate(planned) for entry in leaf.entries}
    for vector in vectors:
        index = index_of.get(vector.referenced_file or "")
        # a leaf holds one spec; a vector under another spec than its data file's has no leaf to go to
        if index is not None and planned[index].spec_id == vector.partition_spec_id:
            yield vector, index


def _vectors_of_leaves(
    root: Root, vectors: Iterable[ContentEntry], leaves: Mapping[str, Leaf]
) -> Iterable[tuple[ContentEntry, str]]:
    """(vector, location of the leaf in which its data file is live)."""
    rows = {row.entry.location: row.entry for row in root.rows if row.entry.content_type is ContentType.DATA_MANIFEST}
    dead = _dead_ordinals(root)
    for vector in vectors:
        if vector.referenced_file is None:
            continue
        place = EntryPlace(ContentType.DATA, vector.referenced_file)
        for location, leaf in leaves.items():
            row, masked = rows.get(location), dead.get(location, _NONE_DEAD)
            if row is None or masked is None or row.partition_spec_id != vector.partition_spec_id:
                continue
            ordinal = leaf.ordinal_of(place)
            if ordinal is not None and ordinal not in masked:
                yield vector, location
                break


_NONE_DEAD = BitMap()


def _dead_ordinals(root: Root) -> dict[str, BitMap | None]:
    """Leaf → its masked ordinals; `None` when they rest in a Puffin file, which a plan does not read."""
    dead: dict[str, BitMap | None] = {}
    for row in root.rows:
        entry = row.entry
        if entry.content_type is not ContentType.MANIFEST_DV or entry.version_info.status is Status.DELETED:
            continue
        inline = None if entry.deletion_vector is None else entry.deletion_vector.inline_content
        seen = dead.get(entry.location, _NONE_DEAD)
        if inline is None or seen is None:
            dead[entry.location] = None
        else:
            name = f"root {root.header.version}, manifest vector of {entry.location}"
            dead[entry.location] = seen | decode_inline(inline, name=name)
    return dead
