"""Leaves that the coordinator writes itself, because the root has grown too long.

Owns: how such leaves become part of a draft. Does not own: when that is due and what is in them
(`rootline.maintenance.flush_plan`), when they are written (`rootline.coordinator.protocol.self_flush_rules`),
storing them (the caller stores a batch's objects).
Invariants: they hold EXISTING entries of a root that the draft's parent follows from; what is not live any more in the
place that it came from is dead in the leaf; nothing that is live changes, and no intent's verdict does.

Source: format page, "Leaf manifest"; architecture page, "The way of a flush"; decision 0025.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rootline.schemas.bytes.leaf_codec import EncodedLeaf, Leaf
from rootline.schemas.intent import AddedManifest
from rootline.tree.draft.change import Change, Effect
from rootline.tree.draft.draft import Draft
from rootline.tree.intents.flush import Takeover
from rootline.tree.state.pending_object import PendingObject


@dataclass(frozen=True, slots=True)
class OwnFlush:
    """What a flush of a worker would name, store and have fetched: `manifests` (data leaves first), bytes, leaves."""

    manifests: tuple[AddedManifest, ...] = ()
    encoded: tuple[EncodedLeaf, ...] = ()
    leaves: Mapping[str, Leaf] = field(default_factory=dict)

    @property
    def entries(self) -> int:
        """In all leaves together."""
        return sum(manifest.record_count for manifest in self.manifests)


def take_own_leaves(draft: Draft, flush: OwnFlush) -> tuple[PendingObject, ...]:
    """Let leaves take over what they hold and the draft still has; the objects to store before the root.

    A leaf that the table has already is left out: a root that names it landed, of this coordinator or of another; so is
    one that was condemned since it was encoded. The snapshot's operation is that of its intents.
    """
    work = Takeover(draft, ())
    for manifest in flush.manifests:
        if manifest.location not in draft.live.leaf_rows and not draft.is_condemned(manifest.location):
            work.take(manifest, flush.leaves[manifest.location])
    if not work.incoming:
        return ()
    draft.accept(Change(Effect.NOTHING, incoming=tuple(work.incoming.values()), moved=tuple(work.moved.values())))
    return tuple(PendingObject(leaf.location, leaf.body) for leaf in flush.encoded if leaf.location in work.incoming)
