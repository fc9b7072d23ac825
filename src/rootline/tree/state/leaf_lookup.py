"""Find entries in one leaf: by place, by the data file that a vector belongs to, equality deletes.

Owns: lookups that are built when first asked for and kept with the leaf. Does not own: which entries are dead
(`live_index`), the leaf's bytes (`leaf_codec`).
Invariants: a leaf never changes, so what was built stays right for every later version of the table; entries that the
leaf lists as DELETED, which those of other writers do, are found by none of the lookups.
"""

from __future__ import annotations

from functools import cached_property

from rootline.schemas.bytes.leaf_codec import Leaf, LeafContent
from rootline.schemas.content_entry import ContentEntry, ContentType, EntryPlace, FileFormat
from rootline.tree.state.leaf_keys import LeafKeys
from rootline.tree.state.live_mask import undeleted_rows


class LeafLookup:
    """One leaf and its lookups."""

    def __init__(self, leaf: Leaf) -> None:
        self.leaf = leaf

    @property
    def location(self) -> str:
        """The leaf's location."""
        return self.leaf.location

    def holds(self, content_type: ContentType) -> bool:
        """Whether the leaf can hold entries of this type at all."""
        return (content_type is ContentType.DATA) == (self.leaf.content is LeafContent.DATA)

    @cached_property
    def keys(self) -> LeafKeys:
        """For one entry among many leaves."""
        return LeafKeys(self.leaf)

    def ordinal_of(self, place: EntryPlace) -> int | None:
        """The ordinal of the entry at `place`, dead or not; for many of them: it keeps a dictionary of the leaf's."""
        return self.leaf.ordinal_of(place) if self.holds(place.content_type) else None

    def entry(self, ordinal: int) -> ContentEntry:
        """The entry at `ordinal`."""
        return self.leaf.entry(ordinal)

    @cached_property
    def vectors(self) -> dict[str, int]:
        """Data file's location → ordinal of its vector. Empty for leaves of data files."""
        if self.leaf.content is LeafContent.DATA:
            return {}
        names = ("content_type", "file_format", "referenced_file")
        ordinals, rows = undeleted_rows(self.leaf, names)
        columns = (rows.column(name).to_pylist() for name in names)
        return {
            target: ordinal  # a position delete file of Iceberg V2 may name its data file too, and is no vector
            for ordinal, content_type, file_format, target in zip(ordinals, *columns, strict=True)
            if content_type == ContentType.POSITION_DELETE and file_format == FileFormat.PUFFIN and target is not None
        }

    @cached_property
    def equality_deletes(self) -> tuple[tuple[int, ContentEntry], ...]:
        """(ordinal, entry) of each equality delete."""
        if self.leaf.content is LeafContent.DATA:
            return ()
        ordinals, rows = undeleted_rows(self.leaf, ("content_type",))
        return tuple(
            (ordinal, self.leaf.entry(ordinal))
            for ordinal, content_type in zip(ordinals, rows.column("content_type").to_pylist(), strict=True)
            if content_type == ContentType.EQUALITY_DELETE
        )
