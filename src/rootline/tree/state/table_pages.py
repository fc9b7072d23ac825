"""The kinds of pages that a root may name, and the pages of one version of a table.

Owns: the table of kinds, the collection of pages in a state. Does not own: the content and rows of a kind (its module
in `rootline.schemas.bytes.root`), loading pages (`rootline.storage.metadata.object_reader`), making them (`page_merge`,
the kind `sweep`).
Invariants: The pages of a kind are in the order of the header's references, from the oldest to the newest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from rootline.schemas.bytes.root.ledger_page import LEDGER_PAGES
from rootline.schemas.bytes.root.location_pages import CONDEMNED_PAGES, RETIRED_PAGES
from rootline.schemas.bytes.root.outcome_page import OUTCOME_PAGES
from rootline.schemas.bytes.root.page_codec import Page, PageKind
from rootline.schemas.bytes.root.retained_page import RETAINED_PAGES
from rootline.schemas.parts.page_reference import PageReference
from rootline.schemas.root_header import RootHeader

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
