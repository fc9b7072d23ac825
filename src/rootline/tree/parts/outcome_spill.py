"""The outcomes' move to pages: the oldest move first.

Owns: which outcomes move, merging them, when a page is dropped. Does not own: what is recorded (`outcomes`), the pages'
bytes (`rootline.schemas.bytes.root.outcome_page`), when a part moves and which pages are merged (`page_merge`).
Invariants: No unacknowledged outcome is lost. A page is dropped when all of it is acknowledged, or when its remaining
outcomes are merged into a new page.

Source: protocol page, sections 1 and 4. Format page, "Pages".
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from rootline.schemas.bytes.root.outcome_page import (
    OUTCOME_PAGES,
    OutcomePage,
    PagedOutcomes,
)
from rootline.schemas.parts.outcomes import Outcome, OutcomeException, OutcomeRun, Outcomes, encode_outcomes
from rootline.tree.parts.outcomes import Acknowledged, joined, kept
from rootline.tree.parts.page_merge import Fitted, Spill

_NUMBERS_BYTES: Final = 5 * 20 + 16  # of one outcome: numbers of 64 bits, brackets, commas, quotes


def fit_outcomes(
    outcomes: Outcomes,
    pages: tuple[OutcomePage, ...],
    *,
    limit_bytes: int,
    acknowledged: Acknowledged,
    table_uuid: uuid.UUID,
    salt: bytes = b"",
) -> Fitted[Outcomes, PagedOutcomes]:
    """`outcomes` within `limit_bytes`, with the rest in pages. Pages of the parent are dropped if all of them is
    acknowledged.
    """
    pages = tuple(page for page in pages if not is_acknowledged(page, acknowledged)) if pages else pages

    def merged(contents: Sequence[PagedOutcomes], _: Outcomes) -> PagedOutcomes:
        *earlier, moved = [content.outcomes for content in contents]
        return PagedOutcomes(joined([*(kept(outcomes, acknowledged) for outcomes in earlier), moved]))

    return _SPILL.fitted(outcomes, pages, limit_bytes, merged, table_uuid=table_uuid, salt=salt)


def is_acknowledged(page: OutcomePage, acknowledged: Acknowledged) -> bool:
    """Whether all outcomes of a page are acknowledged. The page is not read: its reference states the offsets that it
    covers.
    """
    covers = page.reference.covers
    return all(item.last_offset < acknowledged.get((item.log, item.partition), 0) for item in covers)


def are_within(outcomes: Outcomes, limit_bytes: int) -> bool:
    """Whether these outcomes fit in the header. Encodes them only if an upper bound exceeds the limit."""
    if _most_bytes(outcomes.runs) + _most_bytes(outcomes.exceptions) <= limit_bytes:
        return True
    return len(encode_outcomes(outcomes)) <= limit_bytes


def _most_bytes(items: Iterable[Outcome]) -> int:
    most = 8
    for item in items:
        most += _NUMBERS_BYTES + _most_bytes_of(item.log)
        if isinstance(item, OutcomeException):
            most += _most_bytes_of(item.code or "") + _most_bytes_of(item.message or "")
    return most


def _most_bytes_of(text: str) -> int:
    return len(text) * (2 if text.isascii() and text.isprintable() else 12)  # up to two escaped surrogates


def _divided(outcomes: Outcomes, target: int) -> tuple[PagedOutcomes, Outcomes]:
    """(the outcomes to move, the outcomes that stay): oldest first, down to `target` bytes."""
    size = len(encode_outcomes(outcomes))
    moved: set[Outcome] = set()
    for item in sorted(outcomes.items, key=_age):
        if size <= target:
            break
        size -= len(_encoded(item)) - _EMPTY_BYTES + 1
        moved.add(item)
    return (
        PagedOutcomes(_those(outcomes, lambda item: item in moved)),
        _those(outcomes, lambda item: item not in moved),
    )


def _those(outcomes: Outcomes, wanted: Callable[[Outcome], bool]) -> Outcomes:
    return Outcomes(tuple(filter(wanted, outcomes.runs)), tuple(filter(wanted, outcomes.exceptions)))


def _age(item: Outcome) -> tuple[int, str, int, int]:
    version = item.version if isinstance(item, OutcomeRun) else item.decided_in
    return version, item.log, item.partition, item[2]


def _encoded(item: Outcome) -> bytes:
    return encode_outcomes(Outcomes((item,)) if isinstance(item, OutcomeRun) else Outcomes((), (item,)))


_EMPTY_BYTES: Final = len(encode_outcomes(Outcomes()))
_SPILL: Final = Spill(OUTCOME_PAGES, are_within, _divided)
