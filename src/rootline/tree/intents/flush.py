"""The kinds `flush` and `compact_leaves`, and the coordinator's own flush: leaves that take over entries.

Owns: which entries of a leaf are live at their source, the leaf's own root row, how leaves that the coordinator wrote
become part of a draft. Does not own: what is moved and when (`rootline.maintenance`), when the coordinator writes
leaves (`rootline.coordinator.protocol.held_rules`), the sources, dropped leaves and the affiliation of delete leaves
(`leaf_moves`), the aggregates (`aggregates`).
Invariants:
* The live set, all row counts and the verdicts of other intents are unchanged.
* An entry that was removed, replaced or moved since the plan is dead in the new leaf, so it neither becomes live nor is
  counted twice.
* A vector in an affiliated leaf moves only together with its data file.
* Leaves of the coordinator contain EXISTING entries of the draft's parent or of an earlier root.

Source: protocol page, section 5. Format page, "Leaf manifest". Architecture page, "The way of a flush". Decision 0025.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import Final

from pyroaring import BitMap

from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.bytes.leaf_codec import MAX_ENTRIES, EncodedLeaf
from rootline.schemas.bytes.root.root_codec import Row
from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace, FileFormat, Status
from rootline.schemas.errors import Corrupt, Invalid
from rootline.schemas.intent import AddedManifest, Intent, IntentKind
from rootline.schemas.intent_rules import check_location
from rootline.tree.draft.batch import Absent, FetchedObjects, Needs
from rootline.tree.draft.change import Change, Edit, Effect, IncomingLeaf, MoveOrdinals, MoveRows, Reattach, TakeLeaf
from rootline.tree.draft.draft import Draft
from rootline.tree.draft.leaf_moves import LeafSources, is_dead_as_a_whole
from rootline.tree.rules.leaf_rules import CONTENT_OF, LEAVES_PREFIX, LeafNeed, check_stated
from rootline.tree.state.aggregates import aggregates_of
from rootline.tree.state.leaf_lookup import LeafLookup
from rootline.tree.state.table_state import PendingObject

_STALE: Final = {IntentKind.FLUSH: "flush-stale", IntentKind.COMPACT_LEAVES: "compaction-stale"}
_NONE: Final = BitMap()


def flush(draft: Draft, intent: Intent, fetched: FetchedObjects) -> Change | Needs:
    """Take over entries into the intent's leaves, for `flush` and `compact_leaves`.

    Raises:
        Invalid: `leaf-invalid`, `location-invalid`, `version-unknown`, `flush-stale` or `compaction-stale`.
    """
    stale = _STALE[intent.kind]
    for manifest in intent.add_manifests:
        _check_manifest(draft, manifest, stale)
    missing = fetched.missing(LeafNeed(item.location) for item in intent.add_manifests)
    if missing:
        return missing
    work = Takeover(draft, intent.replaces)
    data_first = sorted(intent.add_manifests, key=lambda manifest: manifest.content_type)
    for manifest in data_first:
        work.take(manifest, _proven(manifest, fetched))
    reattached = [
        Reattach(item.location, item.referenced_file)
        for item in intent.reaffiliate
        if item.location in draft.live.leaf_rows
    ]
    has_use = bool(reattached) or any(is_dead_as_a_whole(draft, location) for location in intent.replaces)
    if not work.incoming and (intent.add_manifests or not has_use):
        places = [*(manifest.location for manifest in intent.add_manifests), *intent.replaces]
        names = ", ".join(repr(place) for place in places[:4])
        raise Invalid(stale, f"no entry of {names} is live at its source any more: plan again")
    return Change.of(Effect.MAINTAINS, *work.edits(), *reattached)


class Takeover:
    """The entries that new leaves take over, for one intent or for the coordinator's own flush. The draft is not
    changed.
    """

    def __init__(self, draft: Draft, replaces: Sequence[str]) -> None:
        self.draft = draft
        self.moved: dict[EntryPlace, Row] = {}
        self.moved_ordinals: dict[str, BitMap] = {}
        self.incoming: dict[str, IncomingLeaf] = {}
        self._sources = LeafSources.of(draft, replaces)

    def take(self, manifest: AddedManifest, leaf: Leaf) -> None:
        """Match a leaf's entries with their sources."""
        draft = self.draft
        try:
            origins = self._sources.origins(leaf)
            moves = self._moves(manifest, leaf)
            dead = BitMap(
                ordinal
                for ordinal, origin in enumerate(origins)
                if origin is None or not (moves is None or ordinal in moves)
            )
            if len(dead) == leaf.length:
                return
            leaf_row = Row.of(self._root_row(manifest, leaf), draft.codec)
        except Corrupt as error:
            raise Invalid("leaf-invalid", error.message) from error
        for ordinal, origin in enumerate(origins):
            if origin is None or ordinal in dead:
                continue
            if origin.row is not None:
                self.moved[origin.row.entry.place] = origin.row
            else:
                self.moved_ordinals.setdefault(origin.leaf, BitMap()).add(origin.ordinal)
        self.incoming[manifest.location] = IncomingLeaf(LeafLookup(leaf), leaf_row, dead)

    def edits(self) -> list[Edit]:
        """The edits that let the leaves take over their entries."""
        leaves = map(TakeLeaf, self.incoming.values())
        return [MoveRows(tuple(self.moved.values())), *leaves, *starmap(MoveOrdinals, self.moved_ordinals.items())]

    def _moves(self, manifest: AddedManifest, leaf: Leaf) -> BitMap | None:
        """The ordinals of an affiliated delete leaf that may move to it, or `None` for any other leaf: all may."""
        owner = manifest.referenced_file
        if owner is None:
            return None
        return BitMap(
            ordinal for ordinal, entry in enumerate(leaf.entries()) if self._target_moves(entry, leaf.location, owner)
        )

    def _target_moves(self, entry: ContentEntry, location: str, owner: str) -> bool:
        """Whether a vector's data file is live in `owner`, the data leaf of the vector's leaf."""
        if entry.content_type is not ContentType.POSITION_DELETE:
            raise Invalid(
                "leaf-invalid",
                f"{location!r} belongs to one data leaf, but contains {entry.location!r}, which is not a vector",
            )
        place = EntryPlace(ContentType.DATA, entry.referenced_file or "")
        ours = self.incoming.get(owner)
        if ours is not None:
            ordinal = ours.lookup.ordinal_of(place)
            return ordinal is not None and ordinal not in ours.dead
        lookup = self.draft.live.lookups.get(owner)
        if lookup is None or not lookup.holds(ContentType.DATA):
            return False
        ordinal = lookup.ordinal_of(place)
        moved = self.moved_ordinals.get(lookup.location, _NONE)
        return (
            ordinal is not None and ordinal not in moved and not self.draft.in_leaves.is_dead(lookup.location, ordinal)
        )

    def _root_row(self, manifest: AddedManifest, leaf: Leaf) -> ContentEntry:
        spec_ids = self.draft.definition.spec_by_id(manifest.partition_spec_id).expr_ids
        aggregates = aggregates_of(leaf, spec_ids)
        return ContentEntry(
            content_type=manifest.content_type,
            location=manifest.location,
            file_format=FileFormat.PARQUET,
            version_info=self.draft.numbers(Status.EXISTING),
            partition_spec_id=manifest.partition_spec_id,
            record_count=leaf.length,
            file_size_in_bytes=leaf.size_in_bytes,
            manifest_stats=aggregates.manifest_stats,
            referenced_file=manifest.referenced_file,
            content_stats=aggregates.content_stats,
        )


def _check_manifest(draft: Draft, manifest: AddedManifest, stale: str) -> None:
    check_location(manifest.location)
    if not manifest.location.startswith(LEAVES_PREFIX):
        raise Invalid("location-invalid", f"leaf {manifest.location[:80]!r} is not in {LEAVES_PREFIX}")
    if manifest.content_type not in CONTENT_OF:
        raise Invalid(
            "leaf-invalid", f"{manifest.location!r}: content type {int(manifest.content_type)} is not a leaf's"
        )
    if manifest.file_format is not FileFormat.PARQUET:
        raise Invalid("leaf-invalid", f"{manifest.location!r}: a flushed leaf is Parquet, not {manifest.file_format}")
    if manifest.location in draft.live.leaf_rows or manifest.location in draft.in_leaves.incoming:
        raise Invalid(stale, f"leaf {manifest.location!r} is already part of the table")
    if manifest.referenced_file is not None and manifest.content_type is ContentType.DATA_MANIFEST:
        raise Invalid("leaf-invalid", f"{manifest.location!r}: a data leaf must not have referenced_file")
    draft.definition.spec_by_id(manifest.partition_spec_id)


def _proven(manifest: AddedManifest, fetched: FetchedObjects) -> Leaf:
    """The leaf, if it matches the intent."""
    name, found = repr(manifest.location), fetched.of(LeafNeed(manifest.location))
    if isinstance(found, Absent):
        raise Invalid("leaf-invalid", f"{name} is absent or cannot be read")
    leaf = found.leaf
    check_stated(manifest, leaf, name)
    if leaf.length > MAX_ENTRIES:
        raise Invalid(
            "leaf-invalid",
            f"{name} has {leaf.length} entries, an inline manifest vector covers {MAX_ENTRIES}: write smaller leaves",
        )
    specs = set(leaf.columns(["partition_spec_id"]).column(0).to_pylist())
    if specs != {manifest.partition_spec_id}:
        raise Invalid("leaf-invalid", f"{name} has entries of spec {sorted(specs)}, not {manifest.partition_spec_id}")
    return leaf


@dataclass(frozen=True, slots=True)
class OwnFlush:
    """The leaves of a flush: `manifests` as a worker's intent would list them (data leaves first), bytes, decoded
    leaves.
    """

    manifests: tuple[AddedManifest, ...] = ()
    encoded: tuple[EncodedLeaf, ...] = ()
    leaves: Mapping[str, Leaf] = field(default_factory=dict)

    @property
    def entries(self) -> int:
        """The number of entries in all leaves."""
        return sum(manifest.record_count for manifest in self.manifests)


def take_own_leaves(draft: Draft, own: OwnFlush) -> tuple[PendingObject, ...]:
    """Let leaves take over their live entries from the draft. Returns the objects to store before the root.

    A leaf that is already part of the table is skipped: an earlier commit, of this coordinator or another, added it. A
    leaf that was condemned since it was encoded is skipped too. The snapshot's operation is that of its intents.
    """
    work = Takeover(draft, ())
    for manifest in own.manifests:
        if manifest.location not in draft.live.leaf_rows and not draft.swept_locations.why_closed(manifest.location):
            work.take(manifest, own.leaves[manifest.location])
    if not work.incoming:
        return ()
    draft.accept(Change.of(Effect.NOTHING, *work.edits()))
    return tuple(PendingObject(leaf.location, leaf.body) for leaf in own.encoded if leaf.location in work.incoming)
