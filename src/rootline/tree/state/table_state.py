"""One whole version of a table: its root, definition, leaves, pages, and the index of live entries.

Owns: the state to which batches are applied.
Does not own: loading it (`rootline.storage.metadata.table_loader`), advancing it (`next_root`), the lookups
(`live_index`).
Invariants: Callers never change a state. The index always agrees with the root's rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyroaring import BitMap

from rootline.schemas.bytes.leaf_codec import Leaf
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import LEAF_TYPES, ContentEntry, EntryPlace
from rootline.schemas.errors import Internal
from rootline.schemas.root_header import RootHeader
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.state.live_index import Live, LiveIndex, StoredAt
from rootline.tree.state.table_pages import NO_PAGES, TablePages


@dataclass(frozen=True, slots=True)
class TableState:
    """A version of a table.

    `leaves` has every leaf of the root by location. `pages` may be empty unless batches are applied to the state.
    """

    root: Root
    definition: TableDefinition
    leaves: Mapping[str, Leaf]
    live: LiveIndex
    pages: TablePages = NO_PAGES

    @staticmethod
    def of(
        root: Root,
        definition: TableDefinition,
        leaves: Mapping[str, Leaf],
        pages: TablePages = NO_PAGES,
        stored_vectors: Mapping[StoredAt, BitMap] | None = None,
    ) -> TableState:
        """The state of a table that has been read. `stored_vectors` has the manifest vectors in Puffin files.

        Raises:
            Corrupt: the root names a leaf that is not in `leaves`, or a manifest vector that is not in
                `stored_vectors`.

        """
        rows = {row.entry.location: row.entry for row in root.rows if row.entry.content_type in LEAF_TYPES}
        named = {name: leaf.of_row(rows[name]) if name in rows else leaf for name, leaf in leaves.items()}
        return TableState(root, definition, named, LiveIndex.of(root, named, stored_vectors), pages)

    @property
    def header(self) -> RootHeader:
        """The root's header."""
        return self.root.header

    @property
    def known_pages(self) -> TablePages:
        """The pages, for callers that need them. Raises `Internal` if the state was loaded without pages."""
        if not self.pages.are_those_of(self.header):
            raise Internal("invariant-broken", f"{self.header.table}: root {self.header.version} without its pages")
        return self.pages

    def find(self, place: EntryPlace) -> Live | None:
        """The live entry at `place`, in the root or in a leaf, or `None`."""
        return self.live.find(place)

    def vector_of(self, data_location: str) -> ContentEntry | None:
        """The live deletion vector of a data file, or `None`."""
        found = self.live.vector_of(data_location)
        return None if found is None else found.entry
