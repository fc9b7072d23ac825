"""Which files a table takes no more: it had them, and rewrote them or is about to delete them."""

from __future__ import annotations

from collections.abc import Iterable

from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.root.location_hashes import location_hash
from rootline.schemas.object_keys import own_forms
from rootline.schemas.root_header import RootHeader
from rootline.storage.metadata.page_reader import read_condemned, read_left
from rootline.tree.draft.left import LeftDraft
from rootline.tree.state.table_pages import TablePages


async def refused_locations(store: ObjectStore, header: RootHeader, locations: Iterable[str]) -> frozenset[str]:
    """Those of `locations` that an intent could not bring in at the version of `header`: they would be `file-removed`.

    Raises:
        Corrupt: `object-missing`, `page-corrupt`.
        Unavailable: `store-unavailable`.

    """
    condemned, left = await read_condemned(store, header), await read_left(store, header)
    return refused_by(header, TablePages((), (), condemned, left=left), locations)


def refused_by(header: RootHeader, pages: TablePages, locations: Iterable[str]) -> frozenset[str]:
    """As `refused_locations`, from the pages of condemned and of rewritten locations."""
    left, undone_at = LeftDraft(header.left, pages.left), max(header.restored_at, header.replaced_at)

    def is_refused(location: str) -> bool:
        if left and left.find(location, undone_at) is not None:
            return True
        forms = [location_hash(form) for form in own_forms(location, header.table)]
        return any(form in page.locations for page in pages.condemned for form in forms)

    return frozenset(filter(is_refused, locations))
