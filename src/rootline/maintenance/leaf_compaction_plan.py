"""Plans compactions of leaves: many small ones, and those with many dead entries.

Owns: the counts of live and dead entries of each leaf from the root alone, the choice of leaves, the new leaves and
their affinities, the check that a Parquet leaf can represent the entries of an adopted Avro manifest. Does not own:
thresholds (`rootline.maintenance.limits`), the order inside a leaf (`file_leaves`), storing and publishing
(`metadata_jobs`), later changes (`rootline.tree`).
Words: a delete leaf has an *affinity* to the data leaf that lists all data files of its deletion vectors. An *ordinal*
is the position of an entry in its leaf. An *adopted* leaf is an Avro manifest of a table that Rootline took over.
Invariants: pure. The choice uses only counts in rows of the root. Small leaves are merged with leaves of similar size,
so that an entry is rewritten only a few times, however many flushes there are. Delete leaves in Avro are never
replaced, because no other leaf may name their position delete files. Every live entry of a replaced leaf is in one new
leaf, EXISTING, with its former numbers and row ids. A vector moves to a delete leaf with an affinity to the data leaf
that lists its data file, old or new. Data leaves are first. Checking an adopted leaf needs no loop over entries.
Entries that are DELETED or dead are not checked, because they do not move.

Source: protocol page, section 5; format page, "Leaf: Parquet"; decisions 0034 and 0038.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from rootline.maintenance.limits import ENTRIES_MAX, CompactionLimits
from rootline.maintenance.plan import (
    InPlan,
    InRoot,
    IntentStamp,
    PlannedLeaf,
    WrittenPlan,
    planned_leaves,
    write_leaves,
)
from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.bytes.leaf_codec import MAX_ENTRIES, LeafContent
from rootline.schemas.bytes.leaf_columns import RULED_COLUMNS, column_violation
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace, Status
from rootline.schemas.identifiers import Version
from rootline.schemas.intent import IntentKind, Reaffiliation
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.proof.adoption import is_adopted

_BITS_A_TIER: Final = 3
"""Leaves are of similar size when their live entries differ by less than a factor of about eight."""


@dataclass(frozen=True, slots=True)
class LoadedLeaf:
    """The row of one leaf in the root, and the number of the leaf's live entries."""

    row: ContentEntry
    live: int

    @property
    def location(self) -> str:
        """The location of the leaf."""
        return self.row.location

    @property
    def is_data(self) -> bool:
        """Whether the leaf lists data files."""
        return self.row.content_type is ContentType.DATA_MANIFEST

    @property
    def is_adopted(self) -> bool:
        """Whether the leaf is an Avro manifest, whose entries cost hundreds of times as much to read as in Parquet."""
        return is_adopted(self.row)

    def is_mostly_dead(self, limits: CompactionLimits) -> bool:
        """Whether the leaf has so many dead entries that it is rewritten. False if no entry is live: it is removed."""
        dead = self.row.record_count - self.live
        return self.live > 0 and dead * 100 >= limits.dead_percent * self.row.record_count


@dataclass(frozen=True, slots=True)
class LeafLoad:
    """The leaves of a root that a compaction may replace."""

    leaves: tuple[LoadedLeaf, ...]

    @staticmethod
    def of(root: Root) -> LeafLoad:
        """The live leaves of `root`."""
        rows: list[ContentEntry] = []
        dead: dict[str, int] = defaultdict(int)
        for row in root.rows:
            entry = row.entry
            if entry.version_info.status is Status.DELETED:
                continue
            if entry.content_type is ContentType.MANIFEST_DV:
                dead[entry.referenced_file or entry.location] += entry.record_count
            elif entry.content_type is ContentType.DATA_MANIFEST or (
                entry.content_type is ContentType.DELETE_MANIFEST and not is_adopted(entry)
            ):
                rows.append(entry)
        return LeafLoad(tuple(LoadedLeaf(row, row.record_count - _gone(row) - dead[row.location]) for row in rows))

    def without(self, locations: Collection[str]) -> LeafLoad:
        """A copy without the leaves at `locations`."""
        return LeafLoad(tuple(leaf for leaf in self.leaves if leaf.location not in locations))

    @property
    def dead(self) -> tuple[str, ...]:
        """The leaves without a live entry."""
        once = (leaf for leaf in self.leaves if leaf.row.record_count > _gone(leaf.row))
        return tuple(leaf.location for leaf in once if leaf.live == 0)

    def chosen(self, limits: CompactionLimits) -> tuple[LoadedLeaf, ...]:
        """The leaves to replace: data leaves first, each with the delete leaves that are replaced with it."""
        data = _bounded(_due([leaf for leaf in self.leaves if leaf.is_data], limits))
        owners = {leaf.location for leaf in data}
        of_owner: dict[tuple[str | None, int], list[LoadedLeaf]] = defaultdict(list)
        for leaf in self.leaves:
            if not leaf.is_data and leaf.live:
                of_owner[leaf.row.referenced_file, leaf.row.partition_spec_id].append(leaf)
        following = sum(len(leaves) for (owner, _), leaves in of_owner.items() if owner in owners)
        deletes: list[LoadedLeaf] = []
        for (
            owner,
            _,
        ), leaves in of_owner.items():  # a leaf has one spec, so leaves of different specs are never merged
            if owner is None:  # a rewrite of large ones yields large ones
                leaves = [leaf for leaf in leaves if leaf.live <= limits.small or leaf.is_mostly_dead(limits)]
            follows = owner in owners and (following > 1 or leaves[0].live < leaves[0].row.record_count)
            if follows or len(leaves) >= limits.leaves:
                deletes += leaves
            else:
                deletes += [leaf for leaf in leaves if leaf.is_mostly_dead(limits)]
        return (*data, *_bounded(deletes))


def _gone(row: ContentEntry) -> int:
    return 0 if row.manifest_stats is None else row.manifest_stats.deleted_files_count


def _due(leaves: Iterable[LoadedLeaf], limits: CompactionLimits) -> list[LoadedLeaf]:
    """The data leaves that must be replaced.

    They are groups of small leaves of one spec and similar size, leaves that are mostly dead, and adopted leaves.
    """
    due: list[LoadedLeaf] = []
    tiers: dict[tuple[int, int], list[LoadedLeaf]] = defaultdict(list)
    for leaf in leaves:
        if leaf.is_adopted:
            due += [leaf] if limits.adopted and leaf.live else []
        elif leaf.is_mostly_dead(limits):
            due.append(leaf)
        elif 0 < leaf.live <= limits.small:
            tier = leaf.live.bit_length() // _BITS_A_TIER if limits.leaves > 2 else 0
            tiers[leaf.row.partition_spec_id, tier].append(leaf)
    for same in tiers.values():
        if len(same) >= limits.leaves:
            due += same
    return due


def _bounded(leaves: Iterable[LoadedLeaf]) -> list[LoadedLeaf]:
    """The smallest leaves whose live entries together fit into one compaction, at least one leaf if there is any."""
    found: list[LoadedLeaf] = []
    entries = 0
    for leaf in sorted(leaves, key=lambda leaf: (leaf.live, leaf.location)):
        entries += leaf.live
        if found and entries > ENTRIES_MAX:
            break
        found.append(leaf)
    return found


OWNERS_MAX = 64
"""Delete leaves that one compaction writes for single data leaves. Other vectors move to leaves without an affinity."""


@dataclass(frozen=True, slots=True)
class LeafCompactionPlan:
    """A compaction of leaves.

    * `leaves`: the new leaves.
    * `replaces`: the locations of replaced leaves, and of leaves without a live entry.
    * `reaffiliate`: delete leaves that are not replaced, each with the new data leaf to which it gets its affinity.
    """

    made_from_version: Version
    leaves: tuple[PlannedLeaf, ...] = ()
    replaces: tuple[str, ...] = ()
    reaffiliate: tuple[tuple[str, InPlan], ...] = ()

    @property
    def entries(self) -> int:
        """The number of live entries that move."""
        return sum(len(leaf.entries) for leaf in self.leaves)

    @property
    def leaf_count(self) -> int:
        """The number of new leaves."""
        return len(self.leaves)

    def write(self, stamp: IntentStamp, definition: TableDefinition) -> WrittenPlan:
        """Encode the new leaves, and make the intent that replaces the old leaves with them."""
        written = write_leaves(self.leaves, definition, stamp.object_uuid)
        moved = [
            Reaffiliation(location=location, referenced_file=written.manifests[owner.index].location)
            for location, owner in self.reaffiliate
        ]
        intent = stamp.intent(
            IntentKind.COMPACT_LEAVES,
            self.made_from_version,
            add_manifests=written.manifests,
            replaces=self.replaces,
            reaffiliate=tuple(moved),
        )
        return WrittenPlan(written.objects, intent)


def plan_leaf_compaction(
    root: Root,
    definition: TableDefinition,
    limits: CompactionLimits,
    *,
    load: LeafLoad,
    chosen: Sequence[LoadedLeaf],
    leaves: Mapping[str, Leaf],
    dead: Mapping[str, BitMap],
) -> LeafCompactionPlan:
    """Plan to replace the `chosen` leaves.

    Args:
        root: the root from which the plan is made.
        definition: the table's definition.
        limits: the table's limits.
        load: the leaves of `root`.
        chosen: the result of `load.chosen(limits)`.
        leaves: location → leaf, for all leaves that `leaves_to_read` names.
        dead: location of a leaf → ordinals of its dead entries.
    """
    sources = [leaf for leaf in chosen if leaf.is_data]
    planned = _data_leaves(sources, definition, limits, leaves, dead)
    homes = {entry.location: InPlan(index) for index, leaf in enumerate(planned) for entry in leaf.entries}
    others = {leaf.location: leaves[leaf.location] for leaf in load.leaves if leaf.is_data and leaf.location in leaves}
    replaced = {leaf.location for leaf in chosen}
    affiliated: dict[InPlan | InRoot | None, list[ContentEntry]] = defaultdict(list)
    for source in chosen:
        for entry in () if source.is_data else _live_entries(leaves[source.location], dead.get(source.location)):
            owner = _home(entry, source, homes, others, replaced, dead)
            affiliated[owner].append(entry)
    owners = sorted((each for each in affiliated if each is not None), key=lambda each: -len(affiliated[each]))
    for owner_of_few in owners[OWNERS_MAX:]:
        affiliated[None] += affiliated.pop(owner_of_few)
    for owner, entries in affiliated.items():
        most = limits.leaf_entries if owner is None else MAX_ENTRIES
        planned += planned_leaves(LeafContent.DELETE, entries, definition, most, owner)
    return LeafCompactionPlan(
        root.header.version,
        tuple(planned),
        (*(leaf.location for leaf in chosen), *load.dead),
        _moved_along(load, sources, replaced, planned),
    )


def leaves_to_read(load: LeafLoad, chosen: Sequence[LoadedLeaf]) -> tuple[ContentEntry, ...]:
    """The rows of the leaves that `plan_leaf_compaction` reads.

    They are the chosen leaves, and all data leaves in Parquet if vectors of a delete leaf without an affinity move.
    """
    is_loose = any(not leaf.is_data and leaf.row.referenced_file is None for leaf in chosen)
    wanted = {leaf.location for leaf in chosen}
    return tuple(
        leaf.row
        for leaf in load.leaves
        if leaf.location in wanted or (is_loose and leaf.is_data and not leaf.is_adopted)
    )


def _data_leaves(
    sources: Sequence[LoadedLeaf],
    definition: TableDefinition,
    limits: CompactionLimits,
    leaves: Mapping[str, Leaf],
    dead: Mapping[str, BitMap],
) -> list[PlannedLeaf]:
    entries = [
        entry for source in sources for entry in _live_entries(leaves[source.location], dead.get(source.location))
    ]
    return planned_leaves(LeafContent.DATA, entries, definition, limits.leaf_entries, None)


def _live_entries(leaf: Leaf, dead: BitMap | None) -> list[ContentEntry]:
    return [
        entry
        for ordinal, entry in enumerate(leaf.entries())
        if entry.version_info.status is not Status.DELETED and (dead is None or ordinal not in dead)
    ]


def _home(
    entry: ContentEntry,
    source: LoadedLeaf,
    homes: Mapping[str, InPlan],
    others: Mapping[str, Leaf],
    replaced: set[str],
    dead: Mapping[str, BitMap],
) -> InPlan | InRoot | None:
    """The data leaf that lists the data file of vector `entry` after the compaction.

    `None` if it is not known, or if `entry` is not a vector.
    """
    target = entry.referenced_file
    if entry.content_type is not ContentType.POSITION_DELETE or target is None:
        return None
    if target in homes:
        return homes[target]
    owner = source.row.referenced_file
    if owner is not None:
        return None if owner in replaced else InRoot(owner)
    place = EntryPlace(ContentType.DATA, target)
    for location, leaf in others.items():
        ordinal = None if location in replaced else leaf.ordinal_of(place)
        if ordinal is not None and ordinal not in dead.get(location, _NONE):
            return InRoot(location)
    return None


def _moved_along(
    load: LeafLoad, sources: Sequence[LoadedLeaf], replaced: set[str], planned: Sequence[PlannedLeaf]
) -> tuple[tuple[str, InPlan], ...]:
    """The delete leaves that stay, but whose data leaf is replaced, each with the new data leaf.

    Empty if several data leaves are new. Then these delete leaves lose their affinity.
    """
    new = [index for index, leaf in enumerate(planned) if leaf.content is LeafContent.DATA]
    left = {leaf.location for leaf in sources}
    if len(new) != 1:
        return ()
    return tuple(
        (leaf.location, InPlan(new[0]))
        for leaf in load.leaves
        if not leaf.is_data and leaf.row.referenced_file in left and leaf.location not in replaced
    )


_NONE = BitMap()


_VERSION_INFO: Final = "version_info"
_LOCATION: Final = "location"


def fault_in_columns(row: ContentEntry, leaf: Leaf, dead: BitMap | None, definition: TableDefinition) -> str | None:
    """The first reason why a live entry of `leaf` cannot move to a Parquet leaf, or `None` if all can.

    Raises:
        Corrupt: `leaf-corrupt`, a column cannot be read.
        Invalid: `spec-unknown`.
    """
    table = leaf.columns([*RULED_COLUMNS, _LOCATION])
    alive = pc.not_equal(pc.struct_field(table.column(_VERSION_INFO), "status"), int(Status.DELETED))
    ordinals = sorted(BitMap(pc.indices_nonzero(alive).to_pylist()) - (dead or BitMap()))
    if not ordinals:
        return None
    table = _as_existing(table.take(pa.array(ordinals, pa.int64())))
    violations = column_violation(table)
    if violations is not None:
        return violations
    locations = table.column(_LOCATION)
    if pc.any(pc.equal(locations, "")).as_py() or pc.count_distinct(locations).as_py() < len(locations):
        return "a location is empty, or occurs twice"
    statistics = leaf.statistics_at(ordinals)
    for member in definition.spec_by_id(row.partition_spec_id).expr_ids:
        if member not in statistics or statistics[member].null_count:
            return f"the partition value of id {member} is not known for every entry"
    return None


def _as_existing(table: pa.Table) -> pa.Table:
    at = table.column_names.index(_VERSION_INFO)
    info = table.column(at).combine_chunks()
    members = [
        pa.repeat(pa.scalar(int(Status.EXISTING), field.type), len(values)) if field.name == "status" else values
        for field, values in zip(info.type, info.flatten(), strict=True)
    ]
    return table.set_column(at, table.schema.field(at), pa.StructArray.from_arrays(members, fields=list(info.type)))
