"""The kinds of pages that a root may name. A new kind is its module and a row here."""

from __future__ import annotations

from typing import Any, Final

from rootline.schemas.bytes.root.ledger_page import LEDGER_PAGES
from rootline.schemas.bytes.root.location_pages import CONDEMNED_PAGES, RETIRED_PAGES
from rootline.schemas.bytes.root.outcome_page import OUTCOME_PAGES
from rootline.schemas.bytes.root.page_codec import PageKind
from rootline.schemas.bytes.root.retained_page import RETAINED_PAGES

PAGE_KINDS: Final[tuple[PageKind[Any], ...]] = (
    LEDGER_PAGES,
    OUTCOME_PAGES,
    CONDEMNED_PAGES,
    RETIRED_PAGES,
    RETAINED_PAGES,
)
