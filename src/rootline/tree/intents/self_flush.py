"""Leaves that the coordinator writes itself when the root has become too long.

Owns: how such leaves become part of a draft. Does not own: when this is due and their content
(`rootline.maintenance.flush_plan`), when they are written (`rootline.coordinator.protocol.held_rules`),
storing them (the caller stores a batch's objects).
Invariants: They contain EXISTING entries of the draft's parent or of an earlier root. An entry that is no longer live
at its source is dead in the leaf. No live entry changes, and no intent's verdict changes.

Source: format page, "Leaf manifest". Architecture page, "The way of a flush". Decision 0025.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rootline.schemas.bytes.leaf_codec import EncodedLeaf, Leaf
from rootline.schemas.intent import AddedManifest
from rootline.tree.draft.change import Change, Effect
from rootline.tree.draft.draft import Draft
from rootline.tree.intents.flush import Takeover
from rootline.tree.state.table_state import PendingObject


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


def take_own_leaves(draft: Draft, flush: OwnFlush) -> tuple[PendingObject, ...]:
    """Let leaves take over their live entries from the draft. Returns the objects to store before the root.

    A leaf that is already part of the table is skipped: an earlier commit, of this coordinator or another, added it. A
    leaf that was condemned since it was encoded is skipped too. The snapshot's operation is that of its intents.
    """
    work = Takeover(draft, ())
    for manifest in flush.manifests:
        if manifest.location not in draft.live.leaf_rows and not draft.swept_locations.why_closed(manifest.location):
            work.take(manifest, flush.leaves[manifest.location])
    if not work.incoming:
        return ()
    draft.accept(Change.of(Effect.NOTHING, *work.edits()))
    return tuple(PendingObject(leaf.location, leaf.body) for leaf in flush.encoded if leaf.location in work.incoming)
