"""The change that an accepted intent makes to the live set, complete before any of it is applied.

Owns: the value types between the rules of a kind and the draft. Does not own: the rules (`rootline.tree.intents`), the
draft.
Invariants: A change is complete before it is accepted, so a rejected intent leaves no trace.
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
    """The kind of work that was accepted. It decides the snapshot's operation."""

    NOTHING = 0
    ADDS = auto()
    REMOVES = auto()
    MAINTAINS = auto()


@dataclass(frozen=True, slots=True)
class MergedVector:
    """A vector that the coordinator writes. `entry` has no place until the batch's Puffin file is encoded."""

    entry: ContentEntry
    positions: BitMap64


@dataclass(frozen=True, slots=True)
class IncomingLeaf:
    """A leaf that enters the tree: `row` is its own row in the root, `dead` its dead ordinals.

    `added_tally` counts the entries that a writer's leaf adds. It is `None` for a leaf of maintenance, which takes over
    entries of the table.
    """

    lookup: LeafLookup
    row: Row
    dead: BitMap
    added_tally: Tally | None = None


def is_added_leaf(leaf: IncomingLeaf | None) -> bool:
    """Whether the entries of `leaf` are new, not taken over from the table."""
    return leaf is not None and leaf.added_tally is not None


@dataclass(frozen=True, slots=True)
class StoredManifestVector:
    """A leaf's manifest vector that is stored in a Puffin file: its row in the root, and its ordinals."""

    row: Row
    ordinals: BitMap


@dataclass(frozen=True, slots=True)
class Change:
    """Rows to add, live entries to remove (vectors of removed files included), and entries that maintenance moves.

    * `incoming`: leaves that take over the root rows `moved` and, of other leaves, the ordinals `moved_ordinals`.
    * `reaffiliate`: delete leaf → the data leaf that it belongs to from now on.
    * `stored_vectors`: leaf → the manifest vector that replaces its current one.
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
    """Leaf → ordinals to remove, for many entries. Entries of `removed` are not among them."""
    objects: tuple[PendingObject, ...] = ()
    """Objects to store before the root, such as leaves of `incoming` that the coordinator wrote."""
    replaced: tuple[Live, ...] = ()
    """Live entries that `rewritten` replaces with the same content. No root shows them as removed."""
    rewritten: tuple[Row, ...] = ()
    """EXISTING rows with the content of `replaced`: files with the same rows, vectors that delete the same rows."""
    prior_vectors: tuple[Row, ...] = ()
    """EXISTING rows of vectors that this root shows as removed, instead of the vectors removed by this batch.

    For conversions. A conversion adds the same positions to the vector before and after the batch, so that the
    difference is exactly what the other intents deleted.
    """
    written: Mapping[str, Mapping[str, BitMap64]] = field(default_factory=dict)
    """Vectors of `rewritten` that are among `objects`: location → data file → its deleted positions."""
    carried: CarriedFields | None = None
    """The header's carried fields from now on. `None`: unchanged."""
    definition: TableDefinition | None = None
    """The table's definition from now on, with `carried` and `objects` to match. `None`: unchanged."""
    restored: Version | None = None
    """The version whose content the table has from now on."""
    new_schema_id: int | None = None
    """Set when the table was replaced: all live entries are removed, and this is the first schema of the new table."""
    condemned: tuple[CondemnedPage, ...] | None = None
    """The pages that `carried.condemned` references. `None`: unchanged."""
    kept: tuple[RetainedPage, ...] | None = None
    """The page that `carried.expiry` references, or nothing. `None`: unchanged."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """A table that an intent begins: its definition, and the state of an Iceberg table that it continues.

    `carried`, `condemned`: the fields to carry on if the name had a root before, a tombstone or a table that is purged.
    `None`: there was no root before, or the field is unchanged.
    """

    definition: TableDefinition
    reference: DefinitionReference
    adopted: TableState | None
    effect: Effect
    objects: tuple[PendingObject, ...] = ()
    carried: CarriedFields | None = None
    condemned: tuple[CondemnedPage, ...] | None = None
