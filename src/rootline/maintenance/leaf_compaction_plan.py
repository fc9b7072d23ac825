"""What many small leaves, and leaves with many dead entries, become.

Owns: the new leaves, and what delete leaves belong to afterwards. Does not own: which leaves are due (`leaf_load`), the
order inside a leaf (`clustering`), storing and publishing (`rootline.workers.jobs`), what changed since
(`rootline.tree`).
Invariants: every live entry of a replaced leaf is in one new leaf, EXISTING, with the numbers and row ids that it had;
a vector goes to a delete leaf of the data leaf that holds its data file, old or new; data leaves come first.

Source: protocol page, section 5; decision 0024.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyroaring import BitMap

from rootline.maintenance.compaction_limits import CompactionLimits
from rootline.maintenance.leaf_load import LeafLoad, LoadedLeaf
from rootline.maintenance.plan import IntentStamp, WrittenPlan
from rootline.maintenance.planned_leaf import InPlan, InRoot, PlannedLeaf, planned_leaves, write_leaves
from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.bytes.leaf_codec import MAX_ENTRIES, LeafContent
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace, Status
from rootline.schemas.identifiers import Version
from rootline.schemas.intent import IntentKind, Reaffiliation
from rootline.schemas.table_definition import TableDefinition

OWNERS_MAX = 64
"""Delete leaves that one compaction writes for single data leaves; what is left goes to leaves that belong to none."""


@dataclass(frozen=True, slots=True)
class LeafCompactionPlan:
    """Leaves to write, those that they replace or that are dead, and delete leaves that belong to another one then."""

    made_from_version: Version
    leaves: tuple[PlannedLeaf, ...] = ()
    replaces: tuple[str, ...] = ()
    reaffiliate: tuple[tuple[str, InPlan], ...] = ()

    @property
    def entries(self) -> int:
        """Live entries that the plan moves."""
        return sum(len(leaf.entries) for leaf in self.leaves)

    @property
    def leaf_count(self) -> int:
        """New leaves."""
        return len(self.leaves)

    def write(self, stamp: IntentStamp, definition: TableDefinition) -> WrittenPlan:
        """The new leaves, and the intent that puts them in the place of the old ones; as `Plan.write`."""
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
    """What the `chosen` leaves become.

    Args:
        root: the plan is made from.
        definition: the table's.
        limits: the table's.
        load: of `root`.
        chosen: `load.chosen(limits)`.
        leaves: the chosen ones, and those of `leaves_to_read`; by location.
        dead: leaf → its dead ordinals.

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
    """Root rows of the leaves that a plan needs: the chosen ones, and all data leaves in columns when loose vectors are
    moved.
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
    """The data leaf that holds a vector's data file after the compaction; `None`: unknown, or it is no vector."""
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
    """Delete leaves that stay although what they belong to is replaced by one leaf; by several, they lose it."""
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
