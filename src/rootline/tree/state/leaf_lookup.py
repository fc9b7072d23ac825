"""Lookups of entries in one leaf: by place, by the data file of a vector, and all equality deletes.

Owns: lookups that are built on first use and kept with the leaf.
Does not own: dead entries (`live_index`), the leaf's bytes (`leaf_codec`).
Invariants: A leaf never changes, so its lookups stay valid for every later version of the table. No lookup finds an
entry with status DELETED, which leaves of other writers may contain.
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
        """Whether the leaf can contain entries of this type."""
        return (content_type is ContentType.DATA) == (self.leaf.content is LeafContent.DATA)

    @cached_property
    def keys(self) -> LeafKeys:
        """The compact keys, for finding one entry among many leaves."""
        return LeafKeys(self.leaf)

    def ordinal_of(self, place: EntryPlace) -> int | None:
        """The ordinal of the entry at `place`, dead or not, or `None`.

        The leaf builds a dictionary for it, so it suits lookups of many entries.
        """
        return self.leaf.ordinal_of(place) if self.holds(place.content_type) else None

    def entry(self, ordinal: int) -> ContentEntry:
        """The entry at `ordinal`."""
        return self.leaf.entry(ordinal)

    @cached_property
    def vectors(self) -> dict[str, int]:
        """The ordinals of the deletion vectors, by data file location. Empty for data leaves."""
        if self.leaf.content is LeafContent.DATA:
            return {}
        names = ("content_type", "file_format", "referenced_file")
        ordinals, rows = undeleted_rows(self.leaf, names)
        columns = (rows.column(name).to_pylist() for name in names)
        return {
            target: ordinal  # a position delete file of Iceberg V2 may name its data file too, and is not a vector
            for ordinal, content_type, file_format, target in zip(ordinals, *columns, strict=True)
            if content_type == ContentType.POSITION_DELETE and file_format == FileFormat.PUFFIN and target is not None
        }

    @cached_property
    def equality_deletes(self) -> tuple[tuple[int, ContentEntry], ...]:
        """The equality deletes, as (ordinal, entry)."""
        if self.leaf.content is LeafContent.DATA:
            return ()
        ordinals, rows = undeleted_rows(self.leaf, ("content_type",))
        return tuple(
            (ordinal, self.leaf.entry(ordinal))
            for ordinal, content_type in zip(ordinals, rows.column("content_type").to_pylist(), strict=True)
            if content_type == ContentType.EQUALITY_DELETE
        )
