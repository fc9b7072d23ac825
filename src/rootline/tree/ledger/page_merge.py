"""Which pages a new one takes in.

Owns: the rule. Does not own: how pages are merged (`ledger_spill`, `outcome_spill`).
Invariants: pages are in order from the oldest to the newest, each at least `GROWTH` times as large as the next; only
neighbours are merged, the newest ones, so that the order stays that of time.

Theory. A page that is at least `GROWTH` times the next makes the number of pages logarithmic: all pages hold at least
GROWTH^(n-1) times what the newest holds, which is about half a header's limit, so that twelve pages are tens of
gigabytes. And a row is written again only when what came after it has grown to a part of its page, so that over its
life it is written a few times for each power of `GROWTH`, not once for each page that is made after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

GROWTH: Final = 4


def first_to_merge(content_bytes: Sequence[int], fresh_bytes: int) -> int:
    """The index from which on pages of these sizes are merged with `fresh_bytes` of new rows; their number: none."""
    weight = fresh_bytes
    at = len(content_bytes)
    while at and content_bytes[at - 1] < GROWTH * weight:
        at -= 1
        weight += content_bytes[at]
    return at
