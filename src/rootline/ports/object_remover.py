"""Deletion, as a separate port: only workers that expire and sweep are given one.

Owns: the port and its value. Does not own: which objects may be deleted (`rootline.maintenance`, and the roots that
condemn).
Invariants: an adapter that removes objects can also list them with the store's own dates and sizes. Nothing else can
remove.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from rootline.schemas.identifiers import ObjectKey


@dataclass(frozen=True, slots=True)
class DatedObject:
    """`length`: bytes. `last_modified_ms`: the store's own date, milliseconds since the epoch."""

    key: ObjectKey
    length: int
    last_modified_ms: int


class ObjectRemover(Protocol):
    """One warehouse. Every method raises `Unavailable` when the store cannot be reached or denies it."""

    def inventory(self, prefix: str) -> AsyncIterator[Sequence[DatedObject]]:
        """All objects under `prefix` (which ends in `/`), ascending by key, a page at a time.

        Those that other software stored under names that are no keys (`key_fault`) are listed too.
        """
        ...

    async def remove(self, keys: Sequence[ObjectKey]) -> None:
        """Remove these. Keys that are not there are no error, so that a repetition is safe. Keys are never absolute.

        Raises:
            Invalid: `location-invalid`, one of them can name no object (`key_fault`); nothing is removed then.

        """
        ...

    async def close(self) -> None:
        """Give back connections; the remover is not used afterwards."""
        ...
