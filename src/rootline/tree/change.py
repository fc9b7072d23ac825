"""What an accepted intent does to the live set, worked out before anything is touched.

Owns: the value types between the rules of a kind and the draft. Does not own: the rules (`apply_*`), the draft.
Invariants: a change is complete before it is accepted, so a rejected intent leaves no trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, auto
from typing import Final

from pyroaring import BitMap, BitMap64

from rootline.schemas.content_entry import ContentEntry
from rootline.schemas.quick_values import quick
from rootline.schemas.root_codec import Row
from rootline.tree.leaf_lookup import LeafLookup
from rootline.tree.live_index import Live


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
class FlushedLeaf:
    """A leaf that takes over root rows: `row` is its own row in the root, `masked` its dead ordinals."""

    lookup: LeafLookup
    row: Row
    masked: BitMap


@dataclass(frozen=True, slots=True)
class Change:
    """Rows to add, live entries that leave (vectors of removed files included), and for a flush what moves."""

    effect: Effect
    added: tuple[Row, ...] = ()
    removed: tuple[Live, ...] = ()
    merged: tuple[MergedVector, ...] = ()
    flushed: tuple[FlushedLeaf, ...] = ()
    moved: tuple[Row, ...] = ()


quick_change: Final = quick(Change)
