"""The change that an accepted intent makes to a table: a tuple of edits, complete before any of them is applied.

Owns: the edits, their order, and what a change answers about all of its edits. Does not own: the rules of a kind that
makes a change (`rootline.tree.intents`), applying it (`draft`).
Invariants: A change is complete before it is accepted, so a rejected intent leaves no trace. Its edits are in the order
of `ORDER`. Every edit is about many rows, so that an intent has few edits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Any, Final, Generic, TypeVar

from pyroaring import BitMap, BitMap64

from rootline.schemas.bytes.root.page_codec import Page, PageKind
from rootline.schemas.bytes.root.root_codec import Row
from rootline.schemas.content_entry import ContentEntry, ContentType
from rootline.schemas.errors import Internal
from rootline.schemas.identifiers import Version
from rootline.schemas.parts.definition import DefinitionReference
from rootline.schemas.parts.header_part import HeaderPart, Part
from rootline.schemas.parts.name import NameRecord
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.state.leaf_lookup import LeafLookup
from rootline.tree.state.live_index import Live
from rootline.tree.state.table_state import PendingObject, TableState
from rootline.tree.state.totals import Tally


class Effect(Flag):
    """The kind of work that was accepted. It decides the snapshot's operation."""

    NOTHING = 0
    ADDS = auto()
    REMOVES = auto()
    MAINTAINS = auto()


CHANGES_OF_ROWS: Final = Effect.ADDS | Effect.REMOVES


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
class _OfRows:
    rows: tuple[Row, ...]

    def __bool__(self) -> bool:
        """Whether there is any row."""
        return bool(self.rows)


@dataclass(frozen=True, slots=True)
class Define:
    """Continue under another definition, whose object is one of the change's objects."""

    definition: TableDefinition
    reference: DefinitionReference


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove live entries, vectors of removed files included. The next root shows them as removed."""

    lives: tuple[Live, ...]

    def __bool__(self) -> bool:
        """Whether any entry is removed."""
        return bool(self.lives)


@dataclass(frozen=True, slots=True)
class Replace:
    """Replace live entries with EXISTING rows of the same content. No root shows either as a change.

    Files are replaced by files with the same rows, vectors and equality deletes by vectors that delete the same rows.

    * `vectors`: the vectors of `by` that the coordinator wrote: location → data file → its deleted positions.
    """

    lives: tuple[Live, ...]
    by: tuple[Row, ...]
    vectors: Mapping[str, Mapping[str, BitMap64]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether anything is replaced, or replaces something."""
        return bool(self.lives or self.by or self.vectors)


@dataclass(frozen=True, slots=True)
class RemoveOrdinals:
    """Remove many entries of one leaf. The next root shows them as removed. No `Remove` of the change has them too."""

    leaf: str
    ordinals: BitMap


class Add(_OfRows):
    """Add rows, which the next root shows as added."""

    __slots__ = ()


class ShowPrior(_OfRows):
    """Show EXISTING rows of vectors as removed, in place of the vectors that the batch removed.

    A conversion adds the same positions to the vector before and after the batch, so that the difference is exactly
    what the other intents of the batch deleted.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Merge:
    """Add vectors that the coordinator writes into the batch's Puffin file."""

    vectors: tuple[MergedVector, ...]

    def __bool__(self) -> bool:
        """Whether there is any vector."""
        return bool(self.vectors)


class MoveRows(_OfRows):
    """Drop rows of the parent without a trace. A leaf of the same change takes over their entries."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class TakeLeaf:
    """Add a leaf to the table."""

    leaf: IncomingLeaf


@dataclass(frozen=True, slots=True)
class MoveOrdinals:
    """Drop entries of one leaf without a trace. Another leaf of the same change takes them over."""

    leaf: str
    ordinals: BitMap


@dataclass(frozen=True, slots=True)
class Reattach:
    """Let a delete leaf belong to `data_leaf` from now on, if that leaf has all its data files. `None`: to no leaf."""

    delete_leaf: str
    data_leaf: str | None


@dataclass(frozen=True, slots=True)
class StoreVector:
    """Replace a leaf's manifest vector with one that is stored in a Puffin file: its row in the root, its ordinals."""

    row: Row
    ordinals: BitMap

    @property
    def leaf(self) -> str:
        """The location of the leaf."""
        return self.row.entry.referenced_file or ""


@dataclass(frozen=True, slots=True)
class SetPart(Generic[Part]):
    """Give a part of the header a new value. `pages`: all pages of each kind whose pages change with it."""

    part: HeaderPart[Part]
    value: Part
    pages: Mapping[PageKind[Any], tuple[Page[Any], ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RestoreVersion:
    """Record that the table has the content of an earlier version from now on."""

    version: Version


@dataclass(frozen=True, slots=True)
class ReplaceTable:
    """Record that the table has only the content of this change from now on, under a new first schema."""

    first_schema_id: int


Edit = (
    Define
    | Remove
    | Replace
    | RemoveOrdinals
    | Add
    | ShowPrior
    | Merge
    | MoveRows
    | TakeLeaf
    | MoveOrdinals
    | Reattach
    | StoreVector
    | SetPart[Any]
    | RestoreVersion
    | ReplaceTable
)
ORDER: Final[tuple[type[Edit], ...]] = (
    Define,  # rows of the other edits have the layout of the new definition
    Remove,
    Replace,
    RemoveOrdinals,
    Add,  # a new vector of a data file follows the removal of the earlier one
    ShowPrior,
    Merge,
    MoveRows,
    TakeLeaf,
    MoveOrdinals,
    Reattach,
    StoreVector,
    SetPart,
    RestoreVersion,
    ReplaceTable,
)
"""The order in which the edits of a change are applied."""
_RANKS: Final[Mapping[type, int]] = {kind: rank for rank, kind in enumerate(ORDER)}
_ADDING: Final = frozenset((Add, TakeLeaf))
_Kind = TypeVar("_Kind")


@dataclass(frozen=True, slots=True)
class Change:
    """The edits of one intent, in the order of `ORDER`, and the objects to store before the root.

    Raises `Internal` (`invariant-broken`) if the edits are in another order.
    """

    effect: Effect
    edits: tuple[Edit, ...] = ()
    objects: tuple[PendingObject, ...] = ()

    def __post_init__(self) -> None:
        last = 0
        for edit in self.edits:
            rank = _RANKS[type(edit)]
            if rank < last:
                raise Internal(
                    "invariant-broken",
                    f"a change has {type(edit).__name__} after {ORDER[last].__name__}: list its edits in the order of "
                    "`ORDER`",
                )
            last = rank

    @staticmethod
    def of(effect: Effect, *edits: Edit, objects: tuple[PendingObject, ...] = ()) -> Change:
        """A change of `edits`, without those that have no rows."""
        return Change(effect, tuple(filter(None, edits)), objects)

    def edits_of(self, kind: type[_Kind]) -> list[_Kind]:
        """The edits of one class."""
        return [edit for edit in self.edits if isinstance(edit, kind)]

    @property
    def adds_only(self) -> bool:
        """Whether the change adds entries and does nothing else."""
        return _ADDING.issuperset(map(type, self.edits))

    @property
    def starts_over(self) -> bool:
        """Whether the table's whole content becomes an earlier version's, or a new table's."""
        return any(isinstance(edit, RestoreVersion | ReplaceTable) for edit in self.edits)

    @property
    def removed(self) -> list[Live]:
        """Live entries that the next root shows as removed, except entries of `RemoveOrdinals`."""
        return [live for edit in self.edits_of(Remove) for live in edit.lives]

    @property
    def replaced(self) -> list[Live]:
        """Live entries whose content other rows have from now on."""
        return [live for edit in self.edits_of(Replace) for live in edit.lives]

    @property
    def rows(self) -> list[Row]:
        """Rows of files and vectors that enter the root and are stored already."""
        added = [row for edit in self.edits_of(Add) for row in edit.rows]
        return added + [row for edit in self.edits_of(Replace) for row in edit.by]

    def room(self) -> tuple[int, int]:
        """The rows that the change takes up in the next root, and the bytes of their tails."""
        rows = size = 0
        for edit in self.edits:
            match edit:
                case Add(new) | Replace(by=new):
                    rows += len(new)
                    size += sum([len(row.tail) for row in new])
                case Remove(lives):
                    rows += len(lives)
        return rows, size

    def arriving(self) -> Iterator[str]:
        """The locations of everything that enters the table: files, vectors, leaves and the entries that leaves add."""
        yield from (row.entry.location for row in self.rows)
        for edit in self.edits_of(TakeLeaf):
            yield edit.leaf.row.entry.location
            if is_added_leaf(edit.leaf):
                yield from _locations_in(edit.leaf)
        yield from (edit.row.entry.location for edit in self.edits_of(StoreVector))

    def arriving_files(self) -> Iterator[str]:
        """The locations of the data files and equality deletes that enter the table."""
        for row in self.rows:
            if row.entry.content_type is not ContentType.POSITION_DELETE:
                yield row.entry.location
        for leaf in [edit.leaf for edit in self.edits_of(TakeLeaf) if is_added_leaf(edit.leaf)]:
            if leaf.lookup.holds(ContentType.DATA):
                yield from _locations_in(leaf)
            else:
                yield from (entry.location for _, entry in leaf.lookup.equality_deletes)


def _locations_in(leaf: IncomingLeaf) -> list[str]:
    found: list[str] = leaf.lookup.leaf.columns(["location"]).column(0).to_pylist()
    return found


@dataclass(frozen=True, slots=True)
class Beginning:
    """A table that an intent begins: its definition, the state of its name, and its first change.

    `adopted`: the state of an Iceberg table that it continues, or nothing.
    """

    definition: TableDefinition
    reference: DefinitionReference
    name: NameRecord
    adopted: TableState | None
    change: Change
