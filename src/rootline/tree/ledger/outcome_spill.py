"""Keep the header's part of the outcomes small: the oldest move to pages.

Owns: which outcomes move, merging them into pages, when a page is dropped. Does not own: what is recorded (`outcomes`),
the pages' bytes (`rootline.schemas.bytes.root.outcome_page`), which pages are merged (`page_merge`).
Invariants: No unacknowledged outcome is lost. The header is within its limit, however large the batch was. A page is
dropped when all of it is acknowledged, or when its remaining outcomes are merged into a new page.

Source: protocol page, sections 1 and 4. Format page, "Pages".
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Final, NamedTuple

from rootline.schemas.bytes.root.outcome_page import OutcomePage, encode_outcome, encode_outcome_page
from rootline.schemas.parts.outcomes import Outcome, OutcomeException, OutcomeRun, Outcomes, encode_outcomes
from rootline.tree.ledger.outcomes import Acknowledged, kept
from rootline.tree.ledger.page_merge import first_to_merge
from rootline.tree.state.pending_object import PendingObject

_NUMBERS_BYTES: Final = 5 * 20 + 16  # of one outcome: numbers of 64 bits, brackets, commas, quotes


class FittedOutcomes(NamedTuple):
    """The outcomes in the header, the pages, and the page to store before the root, if there is a new one."""

    header: Outcomes
    pages: tuple[OutcomePage, ...]
    objects: tuple[PendingObject, ...] = ()


def fit_outcomes(
    outcomes: Outcomes,
    pages: tuple[OutcomePage, ...],
    *,
    limit_bytes: int,
    acknowledged: Acknowledged,
    table_uuid: uuid.UUID,
    salt: bytes = b"",
) -> FittedOutcomes:
    """`outcomes` within `limit_bytes`, with the rest in pages. Pages of the parent are dropped if all of them is
    acknowledged.
    """
    pages = tuple(page for page in pages if not is_acknowledged(page, acknowledged)) if pages else pages
    if are_within(outcomes, limit_bytes):
        return FittedOutcomes(outcomes, pages)
    spilled, header = _divided(outcomes, limit_bytes // 2)
    rows_bytes = sum(map(len, map(encode_outcome, spilled.items)))
    first = first_to_merge([page.reference.content_bytes for page in pages], rows_bytes)
    parts = [*(kept(page.outcomes, acknowledged) for page in pages[first:]), spilled]
    merged = Outcomes(
        tuple(run for part in parts for run in part.runs), tuple(item for part in parts for item in part.exceptions)
    )
    fresh, body = encode_outcome_page(table_uuid, merged, salt)
    return FittedOutcomes(header, (*pages[:first], fresh), (PendingObject(fresh.reference.location, body),))


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


def _divided(outcomes: Outcomes, target: int) -> tuple[Outcomes, Outcomes]:
    """(the outcomes to move, the outcomes that stay): oldest first, down to `target` bytes."""
    size = len(encode_outcomes(outcomes))
    moved: set[Outcome] = set()
    for item in sorted(outcomes.items, key=_age):
        if size <= target:
            break
        size -= len(_encoded(item)) - _EMPTY_BYTES + 1
        moved.add(item)
    return (
        Outcomes(
            tuple(run for run in outcomes.runs if run in moved), tuple(x for x in outcomes.exceptions if x in moved)
        ),
        Outcomes(
            tuple(run for run in outcomes.runs if run not in moved),
            tuple(x for x in outcomes.exceptions if x not in moved),
        ),
    )


def _age(item: Outcome) -> tuple[int, str, int, int]:
    version = item.version if isinstance(item, OutcomeRun) else item.decided_in
    return version, item.log, item.partition, item[2]


def _encoded(item: Outcome) -> bytes:
    return encode_outcomes(Outcomes((item,)) if isinstance(item, OutcomeRun) else Outcomes((), (item,)))


_EMPTY_BYTES: Final = len(encode_outcomes(Outcomes()))
