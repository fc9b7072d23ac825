"""Keep a part of the header small: what no longer fits moves to pages, and small pages are merged into larger ones.

Owns: when a part moves, which pages are merged, the new page. Does not own: what moves first, and how contents are
merged (`ledger`, `outcomes`, `locations`).
Invariants:
* The header is within its limit, whatever was in it before.
* Each move reduces it to half of the limit, so that one page is made for a few hundred small commits.
* The same part and pages give the same page.
* Pages are ordered from oldest to newest, each at least `GROWTH` times as large as the next. Only the newest neighbors
  are merged, so the order remains that of time.

Theory. With a factor of `GROWTH` between pages, their number is logarithmic: n pages contain at least GROWTH^(n-1)
times the bytes of the newest page, which is about half of a header's limit. Twelve pages are tens of gigabytes. A row
is rewritten only when newer rows have grown to a fraction of its page. Over its life it is rewritten a few times for
each power of `GROWTH`, not once for every later page.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from rootline.schemas.bytes.root.page_codec import Page, PageKind
from rootline.tree.state.table_state import PendingObject, pending_page

GROWTH: Final = 4
Part = TypeVar("Part")
T = TypeVar("T")


class Fitted(NamedTuple, Generic[Part, T]):
    """The part in the header, the pages, and the page to store before the root, if there is a new one."""

    header: Part
    pages: tuple[Page[T], ...]
    objects: tuple[PendingObject, ...] = ()


@dataclass(frozen=True, slots=True)
class Spill(Generic[Part, T]):
    """The move of one part of the header to its pages.

    Args:
        kind: of the pages.
        fits: (part, limit) → whether the part has at most `limit` bytes in a header.
        divided: (part, target) → (the content that moves, the part that stays, which has about `target` bytes).
    """

    kind: PageKind[T]
    fits: Callable[[Part, int], bool]
    divided: Callable[[Part, int], tuple[T, Part]]

    def fitted(
        self,
        part: Part,
        pages: tuple[Page[T], ...],
        limit_bytes: int,
        merged: Callable[[Sequence[T], Part], T | None],
        *,
        table_uuid: uuid.UUID,
        salt: bytes,
    ) -> Fitted[Part, T]:
        """`part` within `limit_bytes`, with the rest in pages.

        Args:
            part: as it would be in the header.
            pages: of the parent.
            limit_bytes: of the header's part, encoded.
            merged: (contents from the oldest on, the part that stays) → the content of one page, or `None` for no page.
            table_uuid: of the pages' table.
            salt: of a new page's name.
        """
        if self.fits(part, limit_bytes):
            return Fitted(part, pages)
        moved, stays = self.divided(part, limit_bytes // 2)
        first = first_to_merge(
            [page.reference.content_bytes for page in pages], sum(map(len, self.kind.rows_of(moved)))
        )
        content = merged([*(page.content for page in pages[first:]), moved], stays)
        if content is None:
            return Fitted(stays, pages[:first])
        page, body = pending_page(self.kind, table_uuid, content, salt)
        return Fitted(stays, (*pages[:first], page), (body,))


def first_to_merge(content_bytes: Sequence[int], fresh_bytes: int) -> int:
    """The index of the first page to merge with `fresh_bytes` of new rows. `len(content_bytes)` means that none is
    merged.
    """
    weight = fresh_bytes
    at = len(content_bytes)
    while at and content_bytes[at - 1] < GROWTH * weight:
        at -= 1
        weight += content_bytes[at]
    return at
