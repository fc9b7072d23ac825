"""Which files a table takes no more: it had them, and rewrote them or is about to delete them."""

from __future__ import annotations

from collections.abc import Iterable

from rootline.ports.object_store import ObjectStore
from rootline.schemas.bytes.root.condemned_page import is_condemned
from rootline.schemas.root_header import RootHeader
from rootline.storage.metadata.object_reader import read_condemned, read_left
from rootline.tree.draft.carried import CarriedFields
from rootline.tree.draft.left import RetiredDraft, restored_through
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
    left, undone = RetiredDraft(header.left, pages.left), restored_through(CarriedFields.of(header))

    def is_refused(location: str) -> bool:
        has_left = bool(left) and left.find(location, undone) is not None
        return has_left or is_condemned(location, header.table, pages.condemned)

    return frozenset(filter(is_refused, locations))
