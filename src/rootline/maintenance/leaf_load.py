"""What a root says of its leaves, without opening one: enough to tell which of them to rewrite.

Owns: live and dead entries of each leaf, and the choice of leaves. Does not own: thresholds (`compaction_limits`), what
the chosen leaves become (`leaf_compaction_plan`).
Invariants: pure, and cheap: it only counts rows of the root; small leaves are merged with leaves of about their size,
so that an entry is rewritten only a few times, however many flushes there are; delete leaves in Avro stay as they are,
because their position delete files may be named nowhere else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from rootline.maintenance.compaction_limits import ENTRIES_MAX, CompactionLimits
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import ContentEntry, ContentType, Status
from rootline.tree.proof.adopted_rows import is_adopted

_BITS_A_TIER: Final = 3
"""Leaves are of one size when their live entries differ by less than a factor of about eight."""


@dataclass(frozen=True, slots=True)
class LoadedLeaf:
    """One leaf's root row, and how many of its entries are live."""

    row: ContentEntry
    live: int

    @property
    def location(self) -> str:
        """The leaf's."""
        return self.row.location

    @property
    def is_data(self) -> bool:
        """Whether it lists data files."""
        return self.row.content_type is ContentType.DATA_MANIFEST

    @property
    def is_adopted(self) -> bool:
        """Whether it is an Avro manifest: reading an entry of it costs hundreds of times what it costs in columns."""
        return is_adopted(self.row)

    def is_mostly_dead(self, limits: CompactionLimits) -> bool:
        """Whether its dead entries alone are reason enough. A leaf with no live entry needs no rewriting: it leaves."""
        dead = self.row.record_count - self.live
        return self.live > 0 and dead * 100 >= limits.dead_percent * self.row.record_count


@dataclass(frozen=True, slots=True)
class LeafLoad:
    """The leaves of a root that a compaction can read."""

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
        """The same without these leaves."""
        return LeafLoad(tuple(leaf for leaf in self.leaves if leaf.location not in locations))

    @property
    def dead(self) -> tuple[str, ...]:
        """Leaves in which nothing is live any more."""
        once = (leaf for leaf in self.leaves if leaf.row.record_count > _gone(leaf.row))
        return tuple(leaf.location for leaf in once if leaf.live == 0)

    def chosen(self, limits: CompactionLimits) -> tuple[LoadedLeaf, ...]:
        """Leaves that are to be replaced: data leaves first, each with the delete leaves that go along."""
        data = _bounded(_due([leaf for leaf in self.leaves if leaf.is_data], limits))
        owners = {leaf.location for leaf in data}
        of_owner: dict[tuple[str | None, int], list[LoadedLeaf]] = defaultdict(list)
        for leaf in self.leaves:
            if not leaf.is_data and leaf.live:
                of_owner[leaf.row.referenced_file, leaf.row.partition_spec_id].append(leaf)
        following = sum(len(leaves) for (owner, _), leaves in of_owner.items() if owner in owners)
        deletes: list[LoadedLeaf] = []
        for (owner, _), leaves in of_owner.items():  # a leaf is of one spec, so those of several never become one
            if owner is None:  # large ones would be large again
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
    """Small leaves of one spec that are many of one size, leaves that are mostly dead, and all that are not columns."""
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
    """The smallest ones, as many as one compaction may move; one at least."""
    found: list[LoadedLeaf] = []
    entries = 0
    for leaf in sorted(leaves, key=lambda leaf: (leaf.live, leaf.location)):
        entries += leaf.live
        if found and entries > ENTRIES_MAX:
            break
        found.append(leaf)
    return found
