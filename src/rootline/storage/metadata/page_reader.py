"""Reading and verifying the pages that a root's header names.

A page is used only with the digest that the root names, and a known one is not re-read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar

from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.root.page_codec import Page, PageKind
from rootline.schemas.bytes.root.retained_page import RETAINED_PAGES, RetainedPage
from rootline.schemas.parts.page_reference import PageReference
from rootline.schemas.root_header import RootHeader
from rootline.storage.stored_objects import gather_bounded, read_stored, stored_key
from rootline.tree.state.table_state import NO_PAGES, PAGE_KINDS, TablePages

T = TypeVar("T")
PAGES_AT_ONCE: Final = 8


async def read_pages(
    store: ObjectStore,
    header: RootHeader,
    known: TablePages = NO_PAGES,
    *,
    kinds: Iterable[PageKind[Any]] = PAGE_KINDS,
) -> TablePages:
    """The pages of these kinds that `header` names. Pages in `known` are not re-read.

    Raises:
        Corrupt: `object-missing`, `page-corrupt` or `profile-unknown`, naming the page.
        Unavailable: `store-unavailable`.
    """
    found = {(kind, page.reference): page for kind in kinds for page in known.of(kind)}
    named = [(kind, reference) for kind in kinds for reference in kind.named_in(header)]

    async def read(item: tuple[PageKind[Any], PageReference]) -> None:
        kind, reference = item
        body = await read_stored(store, header.table, reference.location, code="page-corrupt")
        found[item] = kind.decode(body, reference, header.table_uuid, name=stored_key(header.table, reference.location))

    await gather_bounded([item for item in dict.fromkeys(named) if item not in found], read, PAGES_AT_ONCE)
    pages = NO_PAGES
    for kind in kinds:
        pages = pages.having(kind, [found[kind, reference] for reference in kind.named_in(header)])
    return pages


async def read_pages_of(
    store: ObjectStore, header: RootHeader, kind: PageKind[T], known: Iterable[Page[T]] = ()
) -> tuple[Page[T], ...]:
    """The pages of one kind, the oldest first. See `read_pages` for arguments and errors."""
    pages = await read_pages(store, header, NO_PAGES.having(kind, known), kinds=(kind,))
    return pages.of(kind)


async def read_kept(store: ObjectStore, header: RootHeader) -> RetainedPage | None:
    """The page of versions that are retained though they are older than the oldest version that has not expired.

    `None` if there are no such versions. Raises the errors of `read_pages`.
    """
    pages = await read_pages(store, header, kinds=(RETAINED_PAGES,))
    return pages.newest(RETAINED_PAGES)
