"""The limit on rows and bytes of one root.

Owns: the limit, and the check before a change is accepted. Does not own: keeping roots small (`flush`).
Invariants: A batch never makes a root that readers reject. A full root rejects the intent.
"""

from __future__ import annotations

from typing import Final

from rootline.schemas.errors import Invalid
from rootline.tree.draft.change import Change
from rootline.tree.draft.draft import Draft

ROWS_MAX: Final = 200_000
"""Less than `root_codec` reads, as DELETED rows and rows of leaves are added."""
ADDED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of the rows that one batch adds, before compression."""


def has_room(draft: Draft, rows: int, size_in_bytes: int) -> bool:
    """Whether `rows` more rows fit, whose tails have `size_in_bytes` bytes."""
    return len(draft.rows) + rows <= ROWS_MAX and draft.rows.new_bytes + size_in_bytes <= ADDED_BYTES_MAX


def check_room(draft: Draft, change: Change) -> None:
    """Raises `Invalid` (`root-full`) if the root would have too many rows or bytes with `change`."""
    rows, size = change.room()
    if not has_room(draft, rows, size):
        rows += len(draft.rows)
        size += draft.rows.new_bytes
        raise Invalid(
            "root-full",
            f"the root would have {rows} rows, {size} bytes of them new; at most {ROWS_MAX} and {ADDED_BYTES_MAX} fit: "
            "flush the table, then publish again",
        )
