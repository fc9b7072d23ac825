"""Reads and proves the pages of a root's ledger and outcomes.

Owns: the GETs. Does not own: the pages' form and proof (`rootline.schemas.bytes.root.page_codec`), what they say.
Invariants: a page is believed only under the digest that the root names; one that is known is not read again.
"""

from __future__ import annotations

import asyncio

from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.root.ledger_page import decode_ledger_page
from rootline.schemas.bytes.root.outcome_page import decode_outcome_page
from rootline.schemas.root_header import PageReference, RootHeader
from rootline.storage.metadata.stored_file import read_stored, stored_key
from rootline.storage.task_groups import plain_task_group
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
    slots = asyncio.Semaphore(PAGES_AT_ONCE)

    async def body_of(reference: PageReference) -> bytes:
        async with slots:
            return await read_stored(store, header.table, reference.location, code="page-corrupt")

    async def read_ledger(reference: PageReference) -> None:
        body, key = await body_of(reference), stored_key(header.table, reference.location)
        ledger[reference] = decode_ledger_page(body, reference, header.table_uuid, name=key)

    async def read_outcomes(reference: PageReference) -> None:
        body, key = await body_of(reference), stored_key(header.table, reference.location)
        outcomes[reference] = decode_outcome_page(body, reference, header.table_uuid, name=key)

    async with plain_task_group() as group:
        for reference in header.ledger_pages:
            if reference not in ledger:
                group.create_task(read_ledger(reference))
        for reference in header.outcome_pages:
            if reference not in outcomes:
                group.create_task(read_outcomes(reference))
    return TablePages(
        tuple(ledger[reference] for reference in header.ledger_pages),
        tuple(outcomes[reference] for reference in header.outcome_pages),
    )
