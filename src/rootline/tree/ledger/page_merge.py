"""The rule for merging existing pages into a new one.

Owns: the rule. Does not own: how pages are merged (`ledger_spill`, `outcome_spill`).
Invariants: Pages are ordered from oldest to newest, each at least `GROWTH` times as large as the next. Only the newest
neighbors are merged, so the order remains that of time.

Theory. With a factor of `GROWTH` between pages, their number is logarithmic: n pages contain at least GROWTH^(n-1)
times the bytes of the newest page, which is about half of a header's limit. Twelve pages are tens of gigabytes. A row
is rewritten only when newer rows have grown to a fraction of its page. Over its life it is rewritten a few times for
each power of `GROWTH`, not once for every later page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

GROWTH: Final = 4


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
