"""What an accepted intent does to the live set, worked out before anything is touched.

Owns: the value types between the rules of a kind and the draft. Does not own: the rules (`rootline.tree.intents`), the
draft.
Invariants: a change is complete before it is accepted, so a rejected intent leaves no trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Flag, auto

from pyroaring import BitMap, BitMap64

from rootline.schemas.bytes.root.condemned_page import CondemnedPage
from rootline.schemas.bytes.root.kept_page import RetainedPage
from rootline.schemas.bytes.root.root_codec import Row
from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.identifiers import Version
from rootline.schemas.root_header import DefinitionReference
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.draft.carried import CarriedFields
from rootline.tree.state.leaf_lookup import LeafLookup
from rootline.tree.state.live_index import Live
from rootline.tree.state.pending_object import PendingObject
from rootline.tree.state.table_state import TableState
from rootline.tree.state.totals import Tally


class Effect(Flag):
    """What kind of work was accepted; decides the snapshot's operation."""

    NOTHING = 0
    ADDS = auto()
    REMOVES = auto()
    MAINTAINS = auto()


@dataclass(frozen=True, slots=True)
class MergedVector:
    """A vector that the coordinator writes itself: `entry` has no place yet, that comes with the batch's Puffin."""

    entry: ContentEntry
    positions: BitMap64


@dataclass(frozen=True, slots=True)
class IncomingLeaf:
    """A leaf that comes into the tree: `row` is its own row in the root, `dead` its dead ordinals.

    One of maintenance takes entries over; one that a writer wrote adds them, and `brings` is what they count for.
    """

    lookup: LeafLookup
    row: Row
    dead: BitMap
    added_tally: Tally | None = None


def is_added_leaf(leaf: IncomingLeaf | None) -> bool:
    """Whether `leaf` adds entries in this batch, instead of taking them over."""
    return leaf is not None and leaf.added_tally is not None


@dataclass(frozen=True, slots=True)
class StoredManifestVector:
    """A leaf's manifest vector that is stored in a Puffin file: its row in the root, and what it holds."""

    row: Row
    ordinals: BitMap


@dataclass(frozen=True, slots=True)
class Change:
    """Rows to add, live entries that leave (vectors of removed files included), and what maintenance moves.

    `incoming` take over the root rows `moved` and, of other leaves, the ordinals `moved_ordinals`. `reaffiliate`:
    delete leaf → the data leaf that it belongs to from now on. `stored_vectors`: leaf → the manifest vector that
    replaces its own.
    """

    effect: Effect
    added: tuple[Row, ...] = ()
    removed: tuple[Live, ...] = ()
    merged: tuple[MergedVector, ...] = ()
    incoming: tuple[IncomingLeaf, ...] = ()
    moved: tuple[Row, ...] = ()
    moved_ordinals: Mapping[str, BitMap] = field(default_factory=dict)
    reaffiliate: Mapping[str, str | None] = field(default_factory=dict)
    stored_vectors: Mapping[str, StoredManifestVector] = field(default_factory=dict)
    removed_from: Mapping[str, BitMap] = field(default_factory=dict)
    """Leaf → ordinals that leave, many at once; those of `removed` are not among them."""
    objects: tuple[PendingObject, ...] = ()
    """To store before the root, such as leaves of `incoming` that the coordinator wrote itself."""
    replaced: tuple[Live, ...] = ()
    """Live entries that leave because `rewritten` says the same now: no root shows them as removed."""
    rewritten: tuple[Row, ...] = ()
    """EXISTING rows of what says the same as `replaced`: files that hold its rows, vectors that delete its rows."""
    prior_vectors: tuple[Row, ...] = ()
    """EXISTING rows of vectors that this root shows as removed in place of those of their data files that the batch has
    removed: a conversion adds to both, so that the difference is what other intents deleted."""
    written: Mapping[str, Mapping[str, BitMap64]] = field(default_factory=dict)
    """Vectors of `rewritten` that `objects` holds: location → data file → its deleted positions."""
    carried: CarriedFields | None = None
    """What the header carries from now on; `None`: as it was."""
    definition: TableDefinition | None = None
    """The table's from now on; `carried` and `objects` go with it. `None`: as it was."""
    restored: Version | None = None
    """The version that the table's content is now that of."""
    new_schema_id: int | None = None
    """The table was replaced: all that was live leaves, and this is the first schema that counts."""
    condemned: tuple[CondemnedPage, ...] | None = None
    """The pages that `carried.condemned` names; `None`: as they were."""
    kept: tuple[RetainedPage, ...] | None = None
    """The page that `carried.expiry` names, if it names one; `None`: as it was."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """A table that an intent begins: its definition, and what it goes on from, if that is an Iceberg table.

    `carried`, `condemned`: what the header carries on where there was a root before: a tombstone, or a table that is
    purged now. `None`: there was none, or as it was.
    """

    definition: TableDefinition
    reference: DefinitionReference
    adopted: TableState | None
    effect: Effect
    objects: tuple[PendingObject, ...] = ()
    carried: CarriedFields | None = None
    condemned: tuple[CondemnedPage, ...] | None = None
