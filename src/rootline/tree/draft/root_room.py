"""How much fits into one root.

Owns: the limit and the check before a change is accepted. Does not own: keeping roots small (the flush does).
Invariants: a batch never makes a root that readers would refuse; a root that is full says so to the writer.
"""

from __future__ import annotations

from typing import Final

from rootline.schemas.errors import Invalid
from rootline.tree.draft.change import Change
from rootline.tree.draft.draft import Draft

ROWS_MAX: Final = 200_000
"""Below what `root_codec` reads, since DELETED rows and leaves' rows come on top."""
ADDED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of the rows that one batch adds, before compression."""


def has_room(draft: Draft, rows: int, size_in_bytes: int) -> bool:
    """Whether so many more rows fit, whose tails have so many bytes."""
    return len(draft.rows) + rows <= ROWS_MAX and draft.rows.came_bytes + size_in_bytes <= ADDED_BYTES_MAX


def check_room(draft: Draft, change: Change) -> None:
    """Raises `Invalid` (`root-full`) when the root would have too many rows or bytes with `change`."""
    rows = len(change.added) + len(change.rewritten) + len(change.removed)
    size = sum([len(row.tail) for row in (*change.added, *change.rewritten)])
    if not has_room(draft, rows, size):
        rows += len(draft.rows)
        size += draft.rows.came_bytes
        raise Invalid(
            "root-full",
            f"the root would have {rows} rows, {size} bytes of them new; at most {ROWS_MAX} and {ADDED_BYTES_MAX} fit",
        )
