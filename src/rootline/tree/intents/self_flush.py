"""Leaves that the coordinator writes itself, as part of a commit, because the root has grown too long.

Owns: how such leaves become part of a draft. Does not own: when that is due and what is in them
(`rootline.maintenance.self_flush_plan`), storing them (whoever stores a batch's objects).
Invariants: they hold EXISTING entries of the parent only; what this batch removes of those is masked; nothing that is
live changes, and no intent's verdict does.

Source: format page, "Leaf manifest"; architecture page, "The way of a flush"; decision 0025.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rootline.schemas.bytes.leaf.leaf_codec import Leaf
from rootline.schemas.identifiers import Location
from rootline.schemas.intent import AddedManifest
from rootline.tree.draft.change import Change, Effect
from rootline.tree.draft.draft import Draft
from rootline.tree.intents.flush import Takeover
from rootline.tree.state.pending_object import PendingObject
from rootline.tree.state.table_state import TableState


@dataclass(frozen=True, slots=True)
class OwnLeaf:
    """A leaf of entries of the parent's root: as an intent would name it, its bytes, and read back from them."""

    manifest: AddedManifest
    body: bytes
    leaf: Leaf


Relief = Callable[[TableState], Sequence[OwnLeaf]]
"""From the parent: the leaves to write, data leaves first; empty while its root is short enough."""


def relieve(draft: Draft, leaves: Sequence[OwnLeaf]) -> tuple[PendingObject, ...]:
    """Let `leaves` take over what they hold and the draft still has; the objects to store before the root.

    The snapshot's operation is that of its intents.
    """
    work = Takeover(draft, ())
    for own in leaves:
        work.take(own.manifest, own.leaf)
    if not work.incoming:
        return ()
    draft.accept(Change(Effect.NOTHING, incoming=tuple(work.incoming.values()), moved=tuple(work.moved.values())))
    taking = [own for own in leaves if own.manifest.location in work.incoming]
    return tuple(PendingObject(Location(own.manifest.location), own.body) for own in taking)
