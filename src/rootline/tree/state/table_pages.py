"""The pages of one version of a table.

Owns: the collection of pages in a state.
Does not own: pages (`rootline.schemas.bytes.root.ledger_page`, `outcome_page`, `condemned_page`, `left_page`), loading
them (`rootline.storage.metadata.object_reader`), making them (`ledger_spill`, `outcome_spill`, `left_spill`, the kind
`sweep`).
Invariants: Pages are in the order of the header's references, from the oldest to the newest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rootline.schemas.bytes.root.condemned_page import CondemnedPage
from rootline.schemas.bytes.root.kept_page import RetainedPage
from rootline.schemas.bytes.root.ledger_page import LedgerPage
from rootline.schemas.bytes.root.left_page import RetiredPage
from rootline.schemas.bytes.root.outcome_page import OutcomePage
from rootline.schemas.parts.page_reference import PageReference
from rootline.schemas.root_header import RootHeader


@dataclass(frozen=True, slots=True)
class TablePages:
    """The pages that a header references. Empty if the table was loaded without pages."""

    ledger: tuple[LedgerPage, ...] = ()
    outcomes: tuple[OutcomePage, ...] = ()
    condemned: tuple[CondemnedPage, ...] = ()
    kept: RetainedPage | None = None
    left: tuple[RetiredPage, ...] = ()

    def are_those_of(self, header: RootHeader) -> bool:
        """Whether these are exactly the pages that a header references."""
        kept = None if header.versions.expiry is None else header.versions.expiry.kept
        return (
            _are(self.ledger, header.ledger.pages)
            and _are(self.outcomes, header.outcomes.pages)
            and _are(self.condemned, [item.page for item in header.locations.condemned])
            and _are(self.left, [item.page for item in header.locations.retired.pages])
            and (None if self.kept is None else self.kept.reference) == kept
        )


def _are(
    pages: Sequence[LedgerPage | OutcomePage | CondemnedPage | RetiredPage], references: Sequence[PageReference]
) -> bool:
    return len(pages) == len(references) and all(map(_is, pages, references))


def _is(page: LedgerPage | OutcomePage | CondemnedPage | RetiredPage, reference: PageReference) -> bool:
    return page.reference == reference


NO_PAGES: Final = TablePages()
