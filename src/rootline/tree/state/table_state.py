"""One whole version of a table: its root, definition, leaves, pages, and the index of live entries.

Owns: the state to which batches are applied, the table of the kinds of pages, the pages of a state, and the objects
that must be stored before a root.
Does not own: loading a state and its pages (`rootline.storage.metadata.table_loader`), advancing it (`next_root`), the
lookups (`live_index`), the content and rows of a kind of pages (its module in `rootline.schemas.bytes.root`), making
pages (`page_merge`, the kind `sweep`).
Invariants: Callers never change a state. The index always agrees with the root's rows. The pages of a kind are in the
order of the header's references, from the oldest to the newest.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from pyroaring import BitMap

from rootline.schemas.bytes.leaf import Leaf
from rootline.schemas.bytes.root.ledger_page import LEDGER_PAGES
from rootline.schemas.bytes.root.location_pages import CONDEMNED_PAGES, RETIRED_PAGES
from rootline.schemas.bytes.root.outcome_page import OUTCOME_PAGES
from rootline.schemas.bytes.root.page_codec import Page, PageKind
from rootline.schemas.bytes.root.retained_page import RETAINED_PAGES
from rootline.schemas.bytes.root.root_codec import Root
from rootline.schemas.content_entry import LEAF_TYPES, ContentEntry, EntryPlace
from rootline.schemas.errors import Internal
from rootline.schemas.identifiers import Location
from rootline.schemas.parts.page_reference import PageReference
from rootline.schemas.root_header import RootHeader
from rootline.schemas.table_definition import TableDefinition
from rootline.tree.state.live_index import Live, LiveIndex, StoredAt

PAGE_KINDS: Final[tuple[PageKind[Any], ...]] = (
    LEDGER_PAGES,
    OUTCOME_PAGES,
    CONDEMNED_PAGES,
    RETIRED_PAGES,
    RETAINED_PAGES,
)
"""Reading, checks and states go through this table. A new kind is its module and a row here."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TablePages:
    """The pages that a header references, by kind. Empty if the table was loaded without pages."""

    _by_kind: Mapping[PageKind[Any], tuple[Page[Any], ...]] = field(default_factory=dict)

    def of(self, kind: PageKind[T]) -> tuple[Page[T], ...]:
        """The pages of a kind, the oldest first."""
        return self._by_kind.get(kind, ())

    def newest(self, kind: PageKind[T]) -> Page[T] | None:
        """The newest page of a kind, or `None` if the table has no page of it."""
        pages = self.of(kind)
        return pages[-1] if pages else None

    def having(self, kind: PageKind[T], pages: Iterable[Page[T]]) -> TablePages:
        """These pages, with `pages` as those of a kind."""
        found = tuple(pages)
        if found is self.of(kind):  # after most commits
            return self
        others = {known: those for known, those in self._by_kind.items() if known is not kind}
        return TablePages({**others, kind: found} if found else others)

    def are_those_of(self, header: RootHeader) -> bool:
        """Whether these are exactly the pages that a header references."""
        for kind in PAGE_KINDS:
            pages, references = self._by_kind.get(kind, ()), kind.named_in(header)
            if (pages or references) and not _are(pages, references):
                return False
        return True


def _are(pages: tuple[Page[Any], ...], references: Sequence[PageReference]) -> bool:
    return len(pages) == len(references) and all(map(_is, pages, references))


def _is(page: Page[Any], reference: PageReference) -> bool:
    return page.reference == reference


def changed_pages(kind: PageKind[T], before: TablePages, after: TablePages) -> tuple[list[Page[T]], list[Page[T]]]:
    """(pages of a kind that were added, pages that were dropped)."""
    old, new = before.of(kind), after.of(kind)
    if old is new:
        return [], []
    known, named = {page.reference for page in old}, {page.reference for page in new}
    return [page for page in new if page.reference not in known], [page for page in old if page.reference not in named]


NO_PAGES: Final = TablePages()


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
        known: LiveIndex | None = None,
    ) -> TableState:
        """The state of a table that has been read. `stored_vectors` has the manifest vectors in Puffin files.

        `known`: see `LiveIndex.of`.

        Raises:
            Corrupt: the root names a leaf that is not in `leaves`, or a manifest vector that is not in
                `stored_vectors`.

        """
        rows = {row.entry.location: row.entry for row in root.rows if row.entry.content_type in LEAF_TYPES}
        named = {name: leaf.of_row(rows[name]) if name in rows else leaf for name, leaf in leaves.items()}
        return TableState(root, definition, named, LiveIndex.of(root, named, stored_vectors, known), pages)

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


@dataclass(frozen=True, slots=True)
class PendingObject:
    """An object to store before the root, at a relative `location`.

    It is put if absent. An object with identical bytes is not a conflict.
    """

    location: Location
    body: bytes


def pending_page(
    kind: PageKind[T], table_uuid: uuid.UUID, content: T, salt: bytes = b""
) -> tuple[Page[T], PendingObject]:
    """(a new page, the object to store for it). Arguments as in `PageKind.encode`."""
    page, body = kind.encode(table_uuid, content, salt)
    return page, PendingObject(page.reference.location, body)
