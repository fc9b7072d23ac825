"""Reads and proves the pages that a root names: of its ledger, its outcomes, what it condemned, and what left.

Owns: the GETs. Does not own: the pages' form and proof (`rootline.schemas.bytes.root.page_codec`), what they say.
Invariants: a page is used only if it has the digest that the root names; one that is known is not read again.
"""

from __future__ import annotations

from collections.abc import Mapping

from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.root.condemned_page import CondemnedPage, decode_condemned_page
from rootline.schemas.bytes.root.kept_page import RetainedPage, decode_retained_page
from rootline.schemas.bytes.root.ledger_page import decode_ledger_page
from rootline.schemas.bytes.root.left_page import RetiredPage, decode_retired_page
from rootline.schemas.bytes.root.outcome_page import decode_outcome_page
from rootline.schemas.errors import Corrupt
from rootline.schemas.root_header import PageReference, RootHeader
from rootline.storage.few_at_once import gather_bounded
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
    condemned = {page.reference: page for page in known.condemned}
    left = {page.reference: page for page in known.left}
    of_ledger = set(header.ledger_pages)
    of_condemned = {item.page for item in header.condemned}
    of_left = {item.page for item in header.left.pages}
    named = (*header.ledger_pages, *header.outcome_pages, *of_condemned, *of_left)
    held = ledger.keys() | outcomes.keys() | condemned.keys() | left.keys()
    wanted = [reference for reference in named if reference not in held]

    async def body_of(reference: PageReference) -> bytes:
        return await read_stored(store, header.table, reference.location, code="page-corrupt")

    for reference, body in zip(wanted, await gather_bounded(wanted, body_of, PAGES_AT_ONCE), strict=True):
        name = stored_key(header.table, reference.location)
        if reference in of_ledger:
            ledger[reference] = decode_ledger_page(body, reference, header.table_uuid, name=name)
        elif reference in of_condemned:
            condemned[reference] = condemned_page_of(body, reference, header, name=name)
        elif reference in of_left:
            left[reference] = decode_retired_page(body, reference, header.table_uuid, name=name)
        else:
            outcomes[reference] = decode_outcome_page(body, reference, header.table_uuid, name=name)
    return TablePages(
        tuple(ledger[reference] for reference in header.ledger_pages),
        tuple(outcomes[reference] for reference in header.outcome_pages),
        tuple(condemned[item.page] for item in header.condemned),
        kept=await read_kept(store, header, known.kept),
        left=tuple(left[item.page] for item in header.left.pages),
    )


async def read_kept(store: ObjectStore, header: RootHeader, known: RetainedPage | None = None) -> RetainedPage | None:
    """The versions that are kept below the oldest addressable one; `None`: none is. Raises as `read_pages`."""
    reference = None if header.expiry is None else header.expiry.kept
    if reference is None:
        return None
    if known is not None and known.reference == reference:
        return known
    body = await read_stored(store, header.table, reference.location, code="page-corrupt")
    name = stored_key(header.table, reference.location)
    page = decode_retained_page(body, reference.digest, reference.size_in_bytes, header.table_uuid, name=name)
    if page.reference != reference:
        raise Corrupt("page-corrupt", f"{name}: it is not the page that the root names")
    return page


async def read_condemned(
    store: ObjectStore, header: RootHeader, known: Mapping[bytes, CondemnedPage] | None = None
) -> tuple[CondemnedPage, ...]:
    """The pages of condemned locations that a header names; those of `known`, by digest, are not read again.

    Raises:
        Corrupt: `object-missing` or `page-corrupt`.

    """
    found = []
    for item in header.condemned:
        page = (known or {}).get(item.page.digest)
        if page is None:
            body = await read_stored(store, header.table, item.page.location, code="page-corrupt")
            page = condemned_page_of(body, item.page, header, name=stored_key(header.table, item.page.location))
        found.append(page)
    return tuple(found)


async def read_left(store: ObjectStore, header: RootHeader) -> tuple[RetiredPage, ...]:
    """The pages of rewritten locations that a header names. Raises as `read_condemned`."""
    references = [item.page for item in header.left.pages]

    async def page_of(reference: PageReference) -> RetiredPage:
        body = await read_stored(store, header.table, reference.location, code="page-corrupt")
        name = stored_key(header.table, reference.location)
        return decode_retired_page(body, reference, header.table_uuid, name=name)

    return tuple(await gather_bounded(references, page_of, PAGES_AT_ONCE))


def condemned_page_of(body: bytes, reference: PageReference, header: RootHeader, *, name: str) -> CondemnedPage:
    """The page that `reference` names. Raises `Corrupt` as `read_pages`."""
    location, digest, size, content = reference[:4]
    page = decode_condemned_page(body, location, digest, size, header.table_uuid, name=name)
    if page.reference.content_bytes != content:
        raise Corrupt("page-corrupt", f"{name}: the rows do not take the {content} bytes that the root says")
    return page
