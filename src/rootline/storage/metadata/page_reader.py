"""Reads and proves the pages of a root's ledger and outcomes.

Owns: the GETs. Does not own: the pages' form and proof (`rootline.schemas.bytes.root.page_codec`), what they say.
Invariants: a page is used only if it has the digest that the root names; one that is known is not read again.
"""

from __future__ import annotations

from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.root.kept_page import KeptPage, decode_kept_page
from rootline.schemas.bytes.root.ledger_page import decode_ledger_page
from rootline.schemas.bytes.root.outcome_page import decode_outcome_page
from rootline.schemas.errors import Corrupt
from rootline.schemas.root_header import PageReference, RootHeader
from rootline.storage.few_at_once import few_at_once
from rootline.storage.metadata.stored_file import read_stored, stored_key
from rootline.tree.state.table_pages import NO_PAGES, TablePages

PAGES_AT_ONCE = 8


async def read_pages(store: ObjectStore, header: RootHeader, known: TablePages = NO_PAGES) -> TablePages:
    """All pages that `header` names; those of `known` are not read again.

    Raises:
        Corrupt: `object-missing`, `page-corrupt` or `profile-unknown`, naming the page.
        Unavailable: `store-unavailable`.

    """
    ledger = {page.reference: page for page in known.ledger}
    outcomes = {page.reference: page for page in known.outcomes}
    of_ledger = set(header.ledger_pages)
    named = (*header.ledger_pages, *header.outcome_pages)
    wanted = [reference for reference in named if reference not in ledger and reference not in outcomes]

    async def body_of(reference: PageReference) -> bytes:
        return await read_stored(store, header.table, reference.location, code="page-corrupt")

    for reference, body in zip(wanted, await few_at_once(wanted, body_of, PAGES_AT_ONCE), strict=True):
        name = stored_key(header.table, reference.location)
        if reference in of_ledger:
            ledger[reference] = decode_ledger_page(body, reference, header.table_uuid, name=name)
        else:
            outcomes[reference] = decode_outcome_page(body, reference, header.table_uuid, name=name)
    return TablePages(
        tuple(ledger[reference] for reference in header.ledger_pages),
        tuple(outcomes[reference] for reference in header.outcome_pages),
        kept=await read_kept(store, header, known.kept),
    )


async def read_kept(store: ObjectStore, header: RootHeader, known: KeptPage | None = None) -> KeptPage | None:
    """The versions that are kept below the oldest addressable one; `None`: none is. Raises as `read_pages`."""
    reference = None if header.expiry is None else header.expiry.kept
    if reference is None:
        return None
    if known is not None and known.reference == reference:
        return known
    body = await read_stored(store, header.table, reference.location, code="page-corrupt")
    name = stored_key(header.table, reference.location)
    page = decode_kept_page(body, reference.digest, reference.size_in_bytes, header.table_uuid, name=name)
    if page.reference != reference:
        raise Corrupt("page-corrupt", f"{name}: it is not the page that the root names")
    return page
